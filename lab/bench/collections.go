package bench

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"

	"github.com/remora-proxy/remora/lab/child"
)

var collectionsMetric = regexp.MustCompile(`(?m)^go_gc_duration_seconds_count (\S+)$`)

// collections are the cycles of the garbage collector in all sidecars of the row,
// each of which stops it twice for some µs. To ask costs a sidecar thousands of
// allocations: it is done beside what is measured.
func (s *Stack) collections(ctx context.Context) (sum float64, err error) {
	for _, admin := range s.admins {
		metrics, err := child.Call(ctx, http.MethodGet, "http://"+admin+"/metrics")
		if err != nil {
			return 0, err
		}
		n, err := parseCollections(metrics)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func parseCollections(metrics []byte) (float64, error) {
	m := collectionsMetric.FindSubmatch(metrics)
	if m == nil {
		return 0, errors.New("GET /metrics: no cycles of the garbage collector")
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
