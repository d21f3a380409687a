package proxy

import (
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// leaser is the race.Leaser of one client's stream.
type leaser struct {
	*Worker
	from shard.Client
}

// From implements race.Leaser.
func (w *Worker) From(c shard.Client) race.Leaser { return leaser{w, c} }

// Lease implements race.Leaser.
func (w *Worker) Lease(service string, picked func(l *race.Lease, at race.Target, f *fault.Failure)) {
	leaser{Worker: w}.Lease(service, picked)
}

// Lease implements race.Leaser.
func (l leaser) Lease(name string, picked func(l *race.Lease, at race.Target, f *fault.Failure)) {
	w := l.Worker
	w.shard.Loop.Post(func() {
		svc := w.services[name]
		if svc == nil { // a stream may have left its loop just before the switch
			svc = w.removed[name]
		}
		if svc == nil {
			shard.ReportStream(w.shard, l.from, name, fault.NoEndpoint)
			picked(nil, race.Target{}, fault.NoEndpoint)
			return
		}
		race.TakeLease(svc, l.from, picked)
	})
}

// Passed counts a redirected connection of a client that is passed on to its original destination.
// If f is not nil it counts one that could not be passed on. Any goroutine may call it.
func (w *Worker) Passed(from shard.Client, f *fault.Failure) {
	w.shard.Loop.Post(func() {
		if f != nil {
			shard.ReportStream(w.shard, from, "", f)
			return
		}
		w.shard.Stats.Handoffs[stats.HandoffPass]++
	})
}

// Failed implements race.Leaser.
func (w *Worker) Failed(f *fault.Failure) { leaser{Worker: w}.Failed(f) }

// Failed implements race.Leaser.
func (l leaser) Failed(f *fault.Failure) {
	l.shard.Loop.Post(func() { shard.ReportStream(l.shard, l.from, "", f) })
}

// Refused counts a connection that was refused with f before it had a service, and logs why, seldom
// enough that no peer can fill the log. msg must be a constant. Any goroutine may call it.
func (w *Worker) Refused(from shard.Client, f *fault.Failure, msg string, args ...any) {
	w.shard.Loop.Post(func() {
		w.shard.Stats.Failed(from.Listener, f)
		w.shard.Stats.Refused(from.Listener)
		if omitted, due := w.shard.Log.Due(msg, from.Listener, f.Code); due {
			w.shard.Log.Example(msg, omitted, append([]any{"listener", from.Listener, "code", f.Code, "peer", from.Addr}, args...)...)
		}
	})
}

// RefusedProxy is Refused for a connection without a valid header of the PROXY protocol.
func (w *Worker) RefusedProxy(listener, peer string, err error) {
	w.Refused(shard.Client{Listener: listener, Addr: peer}, fault.BadProxyHeader, "connection refused: no header of the PROXY protocol from a trusted proxy", "error", err)
}

// StreamRecord begins the access log record of a stream of an unknown protocol. It
// returns nil if there is no access log. Any goroutine may call it.
func (w *Worker) StreamRecord(listener, client, service string) *accesslog.StreamRecord {
	if w.proc.current.Load().accessLog == nil {
		return nil
	}
	return w.shard.AccessLog.OpaqueStream(listener, client, service)
}
