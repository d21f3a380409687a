package race

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/affinity"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// streamRace finds an endpoint for a stream that was opened: it is the owner of a race, whose attempts the carrier of the
// stream carries out. The attempt that won lasts until the stream ends.
//
// The stream passes the service's rate limit and breaker as a request does, and takes no slot.
type streamRace struct {
	loopStream
	race    Race
	picked  Picked   // of Open or Retry
	attempt *Attempt // the latest; it is at an endpoint if state says so
}

// streamRequest is what the race of a stream knows of its request. The carrier knows whether it can send
// the request again, and how long it waits for a response.
var streamRequest = &protocol.Request{Idempotent: true, Deadline: math.MaxInt64}

// Open begins a stream at the service, on its loop. It calls picked before it returns.
func Open(svc *service.Service, from shard.Client, picked Picked) {
	r, now := &streamRace{picked: picked}, svc.Shard.Loop.Now()
	r.init(svc, from)
	r.opened = r
	r.race.Init(svc.Shard, nil, r, streamRequest)
	r.race.Service, r.race.Policy, r.race.stream = svc, streamPolicy, r
	if f := svc.Bounds.PassStream(&r.passage, now); f != nil {
		r.Lost(f)
		return
	}
	svc.Hedging.Stream(now, svc.Config.Policy.Hedge.Budget)
	if ss := svc.Sessions; ss != nil {
		r.race.Key, r.race.Pin = ss.Join(&r.from, svc.Shard.Rand)
	}
	r.race.state.become(raceOn)
	r.race.launch(streamAttempt, nil)
}

// open has the carrier carry out the attempt, unless the endpoint takes no streams.
func (r *streamRace) open(a *Attempt) {
	v := &a.visit
	own := v.endpoint()
	r.attempt, r.visit = a, v
	if own.Streams == service.StreamNone {
		v.ep = nil // it has seen nothing
		a.Fail(fault.Unsupported)
		return
	}
	v.ep.OpenStream(v.sent)
	r.state.become(streamConnecting)
	at := Target{Addr: v.ep.Addr, Host: v.ep.Host, Link: own.Streams == service.StreamLink, Cookies: r.cookies(v.ep)}
	if own.Streams == service.StreamPipe {
		at.Socket = upstreamOf(own).(StreamOpener).OpenStream(r.from)
	}
	r.picked(&r.carried, at, nil)
}

// cookies returns what becomes of the cookies of a response of ep.
func (r *streamRace) cookies(ep *lb.Endpoint) affinity.Cookies {
	ss, session := r.service.Sessions, &r.from.Session
	switch {
	case ss == nil || ss.Sticky == nil:
		return affinity.Cookies{Set: session.Cookie}
	case ep == r.race.Pin:
		return ss.Sticky.Keep()
	}
	return ss.Give(nil, ep, session.Secure)
}

var _ Owner = (*streamRace)(nil)

// Won implements Owner: by has the stream.
func (r *streamRace) Won(by *Attempt, _ *Response) {
	r.race.Stop()
	if v := &by.visit; v.ep.Refuses() {
		v.ep.CountTaken(v.sent)
	}
}

// Lost implements Owner.
func (r *streamRace) Lost(f *fault.Failure) {
	r.fail(f)
	if r.from.GRPC {
		r.service.Stats.GRPC[f.GRPC()]++
	}
	r.end(r.race.shard.Loop.Now())
	r.picked(nil, Target{}, f)
}

// Lingered implements Owner. No attempt of a stream lingers.
func (*streamRace) Lingered(Ended) {}

// Interim implements Owner. The carrier reads interim responses.
func (*streamRace) Interim(*protocol.Response) {}

// Started implements Owner. No stream waits for a slot.
func (*streamRace) Started() {}

// Client implements Owner.
func (r *streamRace) Client() shard.Client { return r.from }

// retry is Stream.Retry on the loop.
func (r *streamRace) retry(why *fault.Failure, err error, picked Picked) {
	a := r.attempt
	if why == fault.Connect && err != nil {
		r.service.DialFailed(a.visit.ep.Addr, err)
	}
	r.picked = picked
	r.state.become(streamSeeking)
	a.Fail(why)
}

// stop ends the race, and the attempt that is at an endpoint.
func (r *streamRace) stop(now time.Duration) {
	r.race.Stop()
	if r.state.atEndpoint() {
		r.attempt.end(now, stats.AttemptNone)
	}
}
