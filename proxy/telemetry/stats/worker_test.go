package stats_test

import (
	"fmt"
	"testing"

	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestErrorsAreBounded: however many listeners reloads bring, the counts have a bound, and none is lost.
func TestErrorsAreBounded(t *testing.T) {
	const listeners = 3000
	var s stats.WorkerStats
	for range 2 {
		for i := range listeners {
			s.CountFailure(fmt.Sprint(i), fault.NoRoute)
			s.CountUnrouted(fmt.Sprint(i))
		}
	}
	unrouted := uint64(0)
	for _, n := range s.Unrouted {
		unrouted += n
	}
	if n := s.Errors.Of("no-route"); n != 2*listeners || unrouted != n {
		t.Errorf("%d errors, %d without a service, want %d of both", n, unrouted, 2*listeners)
	}
	if n, m := s.Errors[stats.ErrorKey{Code: "no-route"}], s.Unrouted[""]; n != 2*(listeners-1024) || m != n {
		t.Errorf("%d errors and %d requests without a listener, want %d", n, m, 2*(listeners-1024))
	}
	if len(s.Errors) > 1025 || len(s.Unrouted) > 1025 {
		t.Errorf("%d and %d counts", len(s.Errors), len(s.Unrouted))
	}
	if n := s.Errors[stats.ErrorKey{Listener: "7", Code: "no-route"}]; n != 2 {
		t.Errorf("%d errors of a listener, want 2", n)
	}
}
