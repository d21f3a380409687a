// Package injection is the filter that injects faults: it delays requests of a route, or aborts
// them.
package injection

import (
	"time"

	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// filter injects the faults of one route on one loop. A request that waits is bounded by
// max_pending, as any other.
type filter struct {
	shard  *shard.Shard
	counts *stats.FilterStats

	delay      time.Duration
	delayShare float64
	abort      *fault.Failure // nil means none
	abortShare float64

	waiting map[*exchange.Exchange]*wait // those of requests that have not ended
	free    shard.FreeList[*wait]
}

// wait is the delay of one request.
type wait struct {
	ex    *exchange.Exchange
	timer loop.Timer
}

// New returns the filter of a route, or nil if that injects no faults.
func New(at *exchange.FilterPlace) exchange.Filter {
	c := at.Route.Fault()
	if !c.Enabled() {
		return nil
	}
	f := &filter{
		shard: at.Shard, counts: &at.Service.Stats.FilterStats,
		delay: c.Delay, delayShare: c.DelayShare, abortShare: c.AbortShare,
		waiting: make(map[*exchange.Exchange]*wait),
	}
	if c.Abort != 0 {
		f.abort = fault.Injected.WithStatus(c.Abort)
	}
	f.counts.Injects = true
	return f
}

func (f *filter) Request(ex *exchange.Exchange) exchange.Next {
	if f.delay != 0 && f.shard.Draw(f.delayShare) {
		f.counts.Delayed++
		ex.Injected |= stats.InjectedDelay
		f.hold(ex)
		return exchange.Wait
	}
	return f.mayAbort(ex)
}

// End implements exchange.Filter. It forgets a request that waits or has waited.
func (f *filter) End(ex *exchange.Exchange) {
	if w := f.waiting[ex]; w != nil {
		f.shard.Loop.Stop(&w.timer)
		delete(f.waiting, ex)
		w.ex = nil
		f.free.Put(w)
	}
}

// Retire implements exchange.Filter.
func (*filter) Retire() {}

// hold delays a request.
func (f *filter) hold(ex *exchange.Exchange) {
	w, ok := f.free.Take()
	if !ok {
		w = &wait{}
		w.timer.Fire = func() { f.onDelay(w) }
	}
	w.ex = ex
	f.waiting[ex] = w
	f.shard.Loop.After(f.delay, &w.timer)
}

func (f *filter) onDelay(w *wait) {
	if f.mayAbort(w.ex) == exchange.Continue {
		w.ex.Resume()
	}
}

// mayAbort aborts the request if it is drawn.
func (f *filter) mayAbort(ex *exchange.Exchange) exchange.Next {
	if f.abort == nil || !f.shard.Draw(f.abortShare) {
		return exchange.Continue
	}
	f.counts.Aborted++
	ex.Injected |= stats.InjectedAbort
	ex.Refuse(f.abort)
	return exchange.Decided
}
