package stream

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"weak"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// counts reads what a sidecar counts (streams, failures, and the memory that it holds) and
// waits for it.
type counts struct {
	t       *testing.T
	reactor *reactor.Reactor
	proc    *proxy.Process
	srv     *Server
}

// reports returns the report of each loop.
func (c *counts) reports() []stats.WorkerReport {
	c.t.Helper()
	var reports []stats.WorkerReport
	for _, w := range c.proc.Workers() {
		done := make(chan stats.WorkerReport, 1)
		w.Post(func() { done <- w.Report(stats.Forecasts) })
		reports = append(reports, receive(c.t, done, "a loop's report"))
	}
	return reports
}

// totals returns the counts of all loops together.
func (c *counts) totals() (sum stats.ServiceStats, failures map[string]uint64) {
	c.t.Helper()
	failures = map[string]uint64{}
	for _, r := range c.reports() {
		sum.Add(&r.Services[0].Stats)
		for k, n := range r.Stats.Errors {
			failures[k.Code] += n
		}
	}
	return sum, failures
}

// passes returns how many connections were passed on, and the failures by code.
func (c *counts) passes() (passed uint64, failures map[string]uint64) {
	_, failures = c.totals()
	return c.handoffs(stats.HandoffPass), failures
}

// handoffs returns how many connections and bodies the loops have handed off as d.
func (c *counts) handoffs(d stats.Handoff) (n uint64) {
	for _, r := range c.reports() {
		n += r.Stats.Handoffs[d]
	}
	return n
}

// endpointConnections returns the number of connections from the loops to endpoints.
func (c *counts) endpointConnections() (n int) {
	for _, r := range c.reports() {
		for _, e := range r.Services[0].Endpoints {
			n += e.Connections
		}
	}
	return n
}

// moved returns how many bytes the only stream has moved.
func (c *counts) moved() (n uint64) {
	c.srv.mu.Lock()
	defer c.srv.mu.Unlock()
	for p := range c.srv.open {
		n += p.moved()
	}
	return n
}

// wantFailure waits until the sidecar has counted the failure, once, and no other.
func (c *counts) wantFailure(code string) {
	c.t.Helper()
	eventually.Nil(c.t, "the failure to be counted", func() error {
		if _, failures := c.totals(); failures[code] != 1 || len(failures) != 1 {
			return fmt.Errorf("failures %v", failures)
		}
		return nil
	})
}

// wantNoMemory checks that no byte is counted.
func (c *counts) wantNoMemory() {
	c.t.Helper()
	if n := c.proc.Buffered(); n != 0 {
		c.t.Errorf("%d bytes still count", n)
	}
}

// waitReleased waits until early is collected and no longer counted.
func (c *counts) waitReleased(early weak.Pointer[byte]) {
	c.t.Helper()
	eventually.Nil(c.t, "early bytes to be released", func() error {
		runtime.GC()
		if early.Value() != nil {
			return errors.New("they are referenced")
		}
		if n := c.proc.Held(); n >= earlySize {
			return errors.New("they are counted")
		}
		return nil
	})
}

// waitIdle waits until no stream and no connection is left.
func (c *counts) waitIdle() {
	c.t.Helper()
	eventually.Nil(c.t, "all streams to be over", func() error {
		if st := c.reactor.Stats(); st.Open != 0 {
			return fmt.Errorf("engine %+v", st)
		}
		return c.checkNoStreams(0)
	})
}

// waitNoStreams waits until no stream is left. Connections to endpoints may stay.
func (c *counts) waitNoStreams() {
	c.t.Helper()
	eventually.Nil(c.t, "the sidecar to have no stream", func() error { return c.checkNoStreams(0) })
}

// checkNoStreams returns an error with what is left of streams. inbound is the number of
// accepted connections that must be left.
func (c *counts) checkNoStreams(inbound int64) error {
	c.t.Helper()
	sum, _ := c.totals()
	st := c.reactor.Stats()
	if st.Inbound != inbound || sum.StreamsOpen != 0 || c.proc.Pending() != 0 || c.srv.Open() != 0 {
		return fmt.Errorf("%d streams count, %d are open, %d pending, %d connections may stay of %+v",
			sum.StreamsOpen, c.srv.Open(), c.proc.Pending(), inbound, st)
	}
	for _, r := range c.reports() {
		if svc := r.Services[0]; svc.HedgesInFlight != 0 {
			return errors.New("a hedge is in flight")
		}
		for _, e := range r.Services[0].Endpoints {
			if e.Pending != 0 {
				return fmt.Errorf("endpoint %+v", e)
			}
		}
	}
	return nil
}
