package race

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestVisits: what the outcome of visits says of an endpoint, beside an endpoint that responds well within 20 ms. The visits take 1 ms.
// An endpoint that quickly refuses requests or responds with errors counts as slow and is avoided.
func TestVisits(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		visit   visit
		outcome stats.AttemptOutcome
		refused *fault.Failure

		latency  time.Duration // that the last visit returns
		done     bool          // the application has done the work
		ofErrors time.Duration // latency of a quick error of the endpoint
		mean     time.Duration // latency of the endpoint; 0 means that nothing is known
		slow     bool          // in place of mean: the latency is raised by that of the peer, to at least 10 ms
		avoided  bool          // no pick goes to it
		failed   bool          // it fails
		good     bool          // it responds well
	}{
		"responses":                {outcome: stats.AttemptServed, latency: ms, done: true, mean: ms, good: true},
		"errors":                   {visit: visit{isError: true}, outcome: stats.AttemptServed, latency: 20 * ms, done: true, ofErrors: 20 * ms, slow: true, avoided: true, good: true},
		"responses that go on":     {visit: visit{verdictDue: true}, outcome: stats.AttemptServed, latency: ms, done: true, mean: ms},
		"batch responses":          {visit: visit{batch: true}, outcome: stats.AttemptServed, done: true, good: true},
		"batch errors":             {visit: visit{batch: true, isError: true}, outcome: stats.AttemptServed, done: true, ofErrors: 20 * ms, avoided: true, good: true},
		"bad responses":            {visit: visit{isError: true}, outcome: stats.AttemptFailure, done: true, ofErrors: 20 * ms, avoided: true, failed: true},
		"lost connections":         {outcome: stats.AttemptBroken, ofErrors: 20 * ms, avoided: true, failed: true},
		"nothing":                  {outcome: stats.AttemptNone},
		"refusals":                 {outcome: stats.AttemptNone, refused: fault.Overloaded, ofErrors: 20 * ms, avoided: true},
		"refusals of batch":        {visit: visit{batch: true}, outcome: stats.AttemptNone, refused: fault.Overloaded, ofErrors: 20 * ms, avoided: true},
		"refusals by this sidecar": {outcome: stats.AttemptNone, refused: fault.NoSlot},
		"late responses":           {outcome: stats.AttemptUnseen, latency: ms, done: true, mean: ms},
		"closed connections":       {outcome: stats.AttemptClosed, latency: ms, done: true, mean: ms},
		"streams":                  {visit: visit{stream: true}, outcome: stats.AttemptServed, good: true},
	} {
		s := newScriptedRace(t, 2, func(*config.Service) {})
		var now time.Duration
		s.do(func() { now = s.loop.Now() })
		take := func(ep *lb.Endpoint, v visit, outcome stats.AttemptOutcome, took time.Duration) (latency time.Duration, done bool) {
			v.ep, v.sent = ep, now
			switch v.endpoint().CountSent(0, false, false); {
			case v.stream:
				ep.OpenStream(now)
			default:
				ep.Start(now)
			}
			if v.batch {
				ep.CountBatch(1)
			}
			now += took
			if c.refused != nil && ep == s.svc.Set.At(0) {
				v.refused(now, c.refused)
			}
			return v.end(now, outcome)
		}
		ep, peer := s.svc.Set.At(0), s.svc.Set.At(1)
		var latency time.Duration
		var done bool
		s.do(func() {
			for range 50 {
				take(peer, visit{}, stats.AttemptServed, 20*ms)
				for range 5 {
					latency, done = take(ep, c.visit, c.outcome, ms)
				}
			}
		})
		// about allows a tenth. Of 0 only 0 is about.
		about := func(got, want time.Duration) bool { return got >= want*9/10 && got <= want*11/10 }
		if !about(latency, c.latency) || done != c.done {
			t.Errorf("%s: the latency is %v, the application is done: %t", name, latency, done)
		}
		if got := ep.LatencyOfError(0); !about(got, c.ofErrors) {
			t.Errorf("%s: the latency of errors is %v", name, got)
		}
		switch got := ep.Latency(); {
		case c.slow && got < 10*ms:
			t.Errorf("%s: the endpoint takes %v, want at least 10 ms", name, got)
		case !c.slow && !about(got, c.mean):
			t.Errorf("%s: the endpoint takes %v, want %v", name, got, c.mean)
		}
		if failed, good := ep.Streak(now); failed > 0 != c.failed || good > 0 != c.good {
			t.Errorf("%s: %d failed in a row, %d were good", name, failed, good)
		}
		picks := 0
		s.do(func() {
			for range 50 {
				q := s.svc.Query(0, nil)
				if q.Now = now; s.svc.Set.Pick(q) == ep {
					picks++
				}
			}
		})
		if avoided := picks == 0; avoided != c.avoided {
			t.Errorf("%s: the endpoint gets %d of 50 requests", name, picks)
		}
		if ep.Pending() != 0 || ep.Streams() != 0 || ep.OfProcess() != 0 {
			t.Errorf("%s: %d visits and %d streams are left, %d of them no batch", name, ep.Pending(), ep.Streams(), ep.OfProcess())
		}
	}
}
