package proxy

import (
	"maps"
	"slices"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Milliseconds returns a copy of the loop's milliseconds from number from on, at most
// MillisecondsKept-1. It runs on the loop, for about 30 µs, or 2 µs for a quarter of a second.
// With a service, which need not exist, they are of that alone: it counts them from the first call on,
// until 10 s after the last. ok is false if 4 others do.
func (w *Worker) Milliseconds(service string, from int64) (m stats.Milliseconds, ok bool) {
	if service == "" {
		return w.shard.Milliseconds.Since(from, w.shard.Loop.Now()), true
	}
	if s := w.services[service]; s != nil {
		return s.Milliseconds(from)
	}
	m = w.shard.Milliseconds.Since(from, w.shard.Loop.Now())
	clear(m.List)
	return m, true
}

// Held returns the exact number of message bytes in memory. It may be called only while
// no loop runs callbacks.
func (p *Process) Held() int64 {
	n := p.shared.Budget.Held()
	for _, w := range p.workers {
		n += w.shard.Uncounted
	}
	return n - p.Interned()
}

// Interned returns the bytes of the interning tables of links.
// It may be called only while no loop runs callbacks.
func (p *Process) Interned() (n int64) {
	for _, w := range p.workers {
		n += int64(w.shard.Tables.Bytes())
	}
	return n
}

// Kept returns the number of bytes of buffers that the loops keep for the next long
// messages. It may be called only while no loop runs callbacks.
func (p *Process) Kept() (n int64) {
	for _, w := range p.workers {
		n += int64(w.shard.Buffers.Kept())
	}
	return n
}

// Slots returns how many of a service's slots are in use, and how many requests wait for one.
func (p *Process) Slots(service string) (used, queued int) {
	return p.sharedOf(service).SlotsInUse()
}

// SlotLimit returns the number of slots that a service has now; 0 means no limit.
func (p *Process) SlotLimit(service string) int { return p.sharedOf(service).SlotLimit() }

// Report returns the state of the loop. It is called on the loop, or by Peek. It takes about 200 ns
// per endpoint there: it is for people and scrapes, not for requests.
func (w *Worker) Report(d stats.Detail) stats.WorkerReport {
	r := stats.WorkerReport{
		Generation: w.generation, Stats: w.shard.Stats, Uncounted: w.shard.Uncounted,
		Services: make([]stats.ServiceReport, 0, len(w.services)),
	}
	r.Stats.Errors, r.Stats.Unrouted = maps.Clone(w.shard.Stats.Errors), maps.Clone(w.shard.Stats.Unrouted)
	r.Stats.HTTP2 = maps.Clone(w.shard.Stats.HTTP2)
	if l, ok := w.shard.Loop.(stats.Metered); ok {
		r.Loop = l.Stats()
	}
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		r.Services = append(r.Services, w.services[name].Report(d))
	}
	return r
}

// Applied reports, on the loop, whether it has a snapshot of the service, which may be empty.
func (w *Worker) Applied(service string) bool {
	s := w.services[service]
	return s != nil && s.Version != 0
}

// Post runs f on the worker's loop soon, unless that has stopped. Any goroutine may call it.
func (w *Worker) Post(f func()) { w.shard.Loop.Post(f) }

// Peek runs f, which only reads, if the worker's loop waits, and reports whether it did. It does not
// wake the loop. Any other goroutine may call it.
func (w *Worker) Peek(f func()) bool {
	l, ok := w.shard.Loop.(loop.Peeker)
	return ok && l.Peek(f)
}

// Turns returns the number of turns of the worker's loop. ok is false if the loop does not wait. Any
// other goroutine may call it.
func (w *Worker) Turns() (n uint64, ok bool) {
	l, metered := w.shard.Loop.(stats.Metered)
	ok = metered && w.Peek(func() {
		s := l.Stats()
		n = s.Turns.Count()
	})
	return n, ok
}

// ServicePending is Pending for one service.
func (p *Process) ServicePending(service string) int { return p.sharedOf(service).InFlight() }

// ServiceStats returns a copy of the loop's counts for a service. It is called on the loop.
func (w *Worker) ServiceStats(service string) *stats.ServiceStats {
	s := w.services[service].Counts()
	return &s
}
