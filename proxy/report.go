package proxy

import (
	"maps"
	"slices"

	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Milliseconds copies what the loop remembers of the milliseconds from the given
// one on, and of no more than MillisecondsKept-1. It is called on the loop, and
// takes some 30 µs there for all of them, and 2 µs for a quarter of a second.
func (w *Worker) Milliseconds(from int64) stats.Milliseconds {
	return w.shard.Milliseconds.Since(from, w.shard.Loop.Now())
}

// Held is the number of message bytes in memory, exactly; it may be asked for
// only while no loop is running callbacks.
func (p *Process) Held() int64 {
	n := p.shared.Budget.Held()
	for _, w := range p.workers {
		n += w.shard.Uncounted
	}
	return n
}

// Kept is how many bytes of buffers the loops keep for the next long messages; it may
// be asked for as Held may.
func (p *Process) Kept() (n int64) {
	for _, w := range p.workers {
		n += int64(w.shard.Buffers.Kept())
	}
	return n
}

// Slots is how many of a service's slots are in use, and how many requests wait
// for one.
func (p *Process) Slots(service string) (used, queued int) {
	s := p.sharedOf(service)
	if s == nil {
		return 0, 0
	}
	return s.SlotsInUse()
}

// SlotLimit is how many slots a service has now; 0: there is no limit.
func (p *Process) SlotLimit(service string) int {
	if s := p.sharedOf(service); s != nil {
		return s.SlotLimit()
	}
	return 0
}

// Report describes the loop. It is called on the loop, and takes about 200 ns an
// endpoint there: for people and scrapes, not for requests.
func (w *Worker) Report() stats.WorkerReport {
	r := stats.WorkerReport{Generation: w.generation, Stats: w.shard.Stats, Services: make([]stats.ServiceReport, 0, len(w.services))}
	r.Stats.Errors = maps.Clone(w.shard.Stats.Errors)
	if l, ok := w.shard.Loop.(stats.Metered); ok {
		r.Loop = l.Stats()
	}
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		r.Services = append(r.Services, w.services[name].Report())
	}
	return r
}

// Applied tells whether the loop has endpoints of the service to work with, be
// it none: some snapshot of it has arrived. It is called on the loop.
func (w *Worker) Applied(service string) bool {
	s := w.services[service]
	return s != nil && s.Version != 0
}

// Post runs f on the worker's loop, soon, or drops it when the loop has stopped.
// Any goroutine may call it.
func (w *Worker) Post(f func()) { w.shard.Loop.Post(f) }

// ServicePending is how many requests of the service are in flight on all loops,
// losers that are still at an application included.
func (p *Process) ServicePending(service string) int {
	if s := p.sharedOf(service); s != nil {
		return s.InFlight()
	}
	return 0
}

// ServiceStats returns a copy of the loop's counts for a service. It is called
// on the loop.
func (w *Worker) ServiceStats(service string) *stats.ServiceStats {
	s := w.services[service].Counts()
	return &s
}
