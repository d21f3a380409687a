package proxy

import (
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// opener is the race.Opener of one client's stream.
type opener struct {
	*Worker
	from shard.Client
}

// From implements race.Opener.
func (w *Worker) From(c shard.Client) race.Opener { return opener{w, c} }

// Open implements race.Opener.
func (w *Worker) Open(service string, picked race.Picked) {
	opener{Worker: w}.Open(service, picked)
}

// Open implements race.Opener.
func (o opener) Open(name string, picked race.Picked) {
	w := o.Worker
	w.shard.Loop.Post(func() {
		svc := w.services[name]
		if svc == nil { // a stream may have left its loop just before the switch
			svc = w.removed[name]
		}
		if svc == nil {
			shard.ReportStream(w.shard, o.from, name, fault.NoEndpoint)
			picked(nil, race.Target{}, fault.NoEndpoint)
			return
		}
		race.Open(svc, o.from, picked)
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

// Failed implements race.Opener.
func (w *Worker) Failed(f *fault.Failure) { opener{Worker: w}.Failed(f) }

// Failed implements race.Opener.
func (o opener) Failed(f *fault.Failure) {
	o.shard.Loop.Post(func() { shard.ReportStream(o.shard, o.from, "", f) })
}

// Refused counts a connection that was refused with f before it had a service, and logs why, seldom
// enough that no peer can fill the log. msg must be a constant. Any goroutine may call it.
func (w *Worker) Refused(from shard.Client, f *fault.Failure, msg string, args ...any) {
	w.shard.Loop.Post(func() {
		w.shard.Stats.CountFailure(from.Listener, f)
		w.shard.Stats.CountUnrouted(from.Listener)
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
