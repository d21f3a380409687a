package lb

import "time"

// Reported is the load that the endpoint's sidecar last spoke of, without this
// process's part; ok is false when it said nothing within the last second.
func (e *Endpoint) Reported(now time.Duration) (others float64, ok bool) {
	if !e.reported || now-e.reportedAt >= reportLife {
		return 0, false
	}
	return e.others * e.Weight, true
}
