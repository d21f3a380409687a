package mesh

import (
	"fmt"

	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// What holds in every run, whatever the Spec:
//
//   - A request gets one response, its own, or one to the same GET if they may share it. Its connection may close instead only if the
//     consumer's sidecar has ended. The response has one of a known set of statuses,
//     and arrives by the deadline. (journal.ended, callerConn)
//   - Hedges and paid retries stay within budget × primaries + burst + what was owed, by the
//     counts of the sidecars and of the applications. (checkBudget, checkExtra)
//   - No attempt goes to an endpoint that the request has tried if there is another. A
//     request that is not idempotent reaches one application, once. (journal.arrived)
//   - A request that has ended for its caller reaches no application. (journal.arrived)
//   - A turn of a loop makes a bounded number of callbacks. (journal.turn)
//   - In the end all requests have ended, and no sidecar has requests pending, bytes held or
//     slots in use. (checkRest)

// minTotal is the smallest burst of hedges and paid retries of a sidecar.
const minTotal = 10

// checkBudget checks the counts of a sidecar's process at its end.
func (l *journal) checkBudget(s *sidecar) {
	policy := &s.cfg.Services[s.service()].Policy
	for i, w := range s.proc.Workers() {
		stats := w.ServiceStats(s.service())
		// A stream earns when it is admitted; these counts come as close to that as there are.
		allowed := policy.Hedge.Budget*float64(stats.Primaries+stats.Streams+stats.StreamsFailed) + max(1, minTotal/float64(l.mesh.spec.Loops)) +
			float64(stats.RetriesAhead)
		l.allowance += allowed
		if extra := stats.Hedges - stats.HedgesMissed + stats.RetriesPaid; float64(extra) > allowed {
			l.wrong("%s, loop %d: %d hedges (%d missed) and %d paid retries for %d requests, over %.1f",
				s.host, i, stats.Hedges, stats.HedgesMissed, stats.RetriesPaid, stats.Primaries, allowed)
		}
	}
}

// checkExtra compares the attempts that applications got with what all budgets allow.
func (l *journal) checkExtra() {
	if float64(l.extra) > l.allowance {
		l.wrong("applications saw %d attempts beyond the first of each request, over %.1f", l.extra, l.allowance)
	}
}

// Each connection, timer or message that is ready in a turn may lead to some callbacks:
// data, requests that it releases, the flush of each peer, OnClose.
const (
	callbackFloor      = 64
	callbacksPerReady  = 8
	callbacksPerDemand = 4
)

// turn checks the length of a turn of a loop, in callbacks.
func (l *journal) turn(on *sim.Loop, ready, callbacks int) {
	if bound := callbackFloor + callbacksPerReady*ready + callbacksPerDemand*l.peak; callbacks > bound {
		l.wrong("a turn of %s made %d callbacks, over %d", on.Name(), callbacks, bound)
	}
}

// checkRest checks that the mesh is idle at its end.
func (m *mesh) checkRest() {
	if m.journal.open > 0 {
		for nonce := range m.journal.calls {
			if m.journal.calls[nonce].fate == undecided {
				m.journal.wrong("request %d was not answered within %v", nonce, restLimit)
			}
		}
	}
	for _, c := range m.consumers {
		m.checkSidecar(&c.sidecar)
	}
	for _, p := range m.providers {
		m.checkSidecar(&p.sidecar)
	}
	m.journal.checkExtra()
	if n := m.journal.hidden; n > 0 {
		m.journal.violations = append(m.journal.violations, fmt.Sprintf("and %d more", n))
	}
}

func (m *mesh) checkSidecar(s *sidecar) {
	l := &m.journal
	l.checkBudget(s)
	if n := s.proc.Pending(); n != 0 {
		l.wrong("%s has %d requests pending in the end", s.host, n)
	}
	if n := s.proc.Held(); n != 0 {
		l.wrong("%s holds %d bytes of messages in the end", s.host, n)
	}
	if used, queued := s.proc.Slots(s.service()); used != 0 || queued != 0 {
		l.wrong("%s has %d slots in use, %d requests queued in the end", s.host, used, queued)
	}
	for i, w := range s.proc.Workers() {
		var report stats.WorkerReport
		s.loops[i].Do(func() { report = w.Report(stats.Forecasts) })
		for _, svc := range report.Services {
			if svc.HedgesInFlight != 0 {
				l.wrong("%s counts %d hedges in flight in the end", s.host, svc.HedgesInFlight)
			}
			for _, e := range svc.Endpoints {
				if e.Pending != 0 {
					l.wrong("%s counts %d attempts at %s in the end", s.host, e.Pending, e.Addr)
				}
			}
		}
	}
}
