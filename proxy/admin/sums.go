package admin

import (
	"context"

	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Sums returns the counts of all services by their names, over all loops. They are since the start, or since a reload
// has replaced the service.
func (s *Server) Sums(ctx context.Context) (map[string]*stats.ServiceStats, error) {
	reports, err := report(ctx, s, stats.Totals)
	if err != nil {
		return nil, err
	}
	sums := make(map[string]*stats.ServiceStats)
	for _, svc := range merge(reports) {
		sums[svc.Name] = &svc.Stats
	}
	return sums, nil
}
