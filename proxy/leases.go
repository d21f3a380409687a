package proxy

import (
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Lease implements Leaser.
func (w *Worker) Lease(service string, picked func(l *exchange.Lease, at exchange.Target, f *fault.Failure)) {
	w.shard.Loop.Post(func() {
		svc := w.serviceForStream(service)
		if svc == nil {
			w.shard.Stats.Failed(fault.NoEndpoint)
			picked(nil, exchange.Target{}, fault.NoEndpoint)
			return
		}
		svc.Lease(picked)
	})
}

// serviceForStream is the service that a stream is for. One that has left its loop just
// before the service was removed is served all the same.
func (w *Worker) serviceForStream(name string) *exchange.Service {
	if s := w.services[name]; s != nil {
		return s
	}
	return w.removed[name]
}

// Passed counts a connection that was given to Streams.Pass, or by a driver to the
// same end, and that is open; with f, one that came to nothing. Any goroutine may
// call it.
func (w *Worker) Passed(f *fault.Failure) {
	w.shard.Loop.Post(func() {
		if f != nil {
			w.shard.Stats.Failed(f)
			return
		}
		w.shard.Stats.Handoffs[stats.HandoffPass]++
	})
}

// StreamRecord begins that of a stream of opaque bytes, or returns nil when there is no
// access log. Any goroutine may call it.
func (w *Worker) StreamRecord(listener, client, service string) *accesslog.StreamRecord {
	if w.proc.current.Load().lines == nil {
		return nil
	}
	return w.shard.AccessLog.OpaqueStream(listener, client, service)
}
