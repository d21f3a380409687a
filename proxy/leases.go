package proxy

import (
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Lease implements exchange.Leaser.
func (w *Worker) Lease(service string, picked func(l *exchange.Lease, at exchange.Target, f *fault.Failure)) {
	w.shard.Loop.Post(func() {
		svc := w.services[service]
		if svc == nil { // a stream may have left its loop just before the switch
			svc = w.removed[service]
		}
		if svc == nil {
			w.shard.Stats.Failed(fault.NoEndpoint)
			picked(nil, exchange.Target{}, fault.NoEndpoint)
			return
		}
		svc.Lease(picked)
	})
}

// Passed counts a redirected connection that is passed on to its original destination.
// If f is not nil it counts one that could not be passed on. Any goroutine may call it.
func (w *Worker) Passed(f *fault.Failure) {
	w.shard.Loop.Post(func() {
		if f != nil {
			w.shard.Stats.Failed(f)
			return
		}
		w.shard.Stats.Handoffs[stats.HandoffPass]++
	})
}

// Failed implements exchange.Leaser.
func (w *Worker) Failed(f *fault.Failure) {
	w.shard.Loop.Post(func() { w.shard.Stats.Failed(f) })
}

// StreamRecord begins the access log record of a stream of an unknown protocol. It
// returns nil if there is no access log. Any goroutine may call it.
func (w *Worker) StreamRecord(listener, client, service string) *accesslog.StreamRecord {
	if w.proc.current.Load().accessLog == nil {
		return nil
	}
	return w.shard.AccessLog.OpaqueStream(listener, client, service)
}
