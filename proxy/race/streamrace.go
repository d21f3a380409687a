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

// streamRace is a stream on the loop of its service: the owner of a race, whose attempts the carrier of the stream
// carries out. The attempt that won lasts until the stream ends. All fields belong to the loop, but carried is its
// carrier's.
//
// The stream passes the service's rate limit and breaker as a request does, and takes no slot. It counts as
// load of its endpoint. Its outcome counts for outlier ejection.
type streamRace struct {
	race    Race
	state   streamState
	from    shard.Client
	passage service.Passage
	picked  Picked   // of Open or Retry; nil for a stream that was adopted
	attempt *Attempt // the latest; it is at an endpoint if state says so

	carried Stream
}

// streamRequest is what the race of a stream knows of its request. The carrier knows whether it can send
// the request again, and how long it waits for a response.
var streamRequest = &protocol.Request{Idempotent: true, Deadline: math.MaxInt64}

func newStreamRace(svc *service.Service, from shard.Client) *streamRace {
	r := &streamRace{from: from}
	r.carried = Stream{race: r, loop: svc.Shard.Loop, shared: svc.Shared, call: from.GRPC, code: protocol.GRPCCancelled}
	r.race.Init(svc.Shard, nil, r, streamRequest)
	r.race.Service, r.race.Policy, r.race.stream = svc, streamPolicy, r
	return r
}

// Open begins a stream at the service, on its loop. It calls picked before it returns.
func Open(svc *service.Service, from shard.Client, picked Picked) {
	r, now := newStreamRace(svc, from), svc.Shard.Loop.Now()
	r.picked = picked
	if f := svc.Bounds.PassStream(&r.passage, now); f != nil {
		r.Lost(f)
		return
	}
	svc.Hedging.Stream(now, svc.Config.Policy.Hedge.Budget)
	if ss := svc.Sessions; ss != nil {
		r.race.Key, r.race.Pin = ss.Join(&r.from, svc.Shard.Rand)
	}
	r.race.startStream(nil)
}

// startStream launches the first attempt of a stream: at ep or, if ep is nil, where the policy picks.
func (r *Race) startStream(ep *lb.Endpoint) {
	r.state.become(raceOn)
	r.launch(streamAttempt, ep)
}

// adopt begins with the stream at ep.
func (r *streamRace) adopt(ep *lb.Endpoint) {
	svc := r.race.Service
	r.state.become(streamAdopted)
	svc.Bounds.AdoptStream(&r.passage)
	r.race.startStream(ep)
	r.attempt.visit.judged = true
	svc.Stats.Streams++
	svc.Stats.StreamsOpen++
}

// open has the carrier carry out the attempt, unless the endpoint takes no streams.
func (r *streamRace) open(a *Attempt) {
	v := &a.visit
	own := v.endpoint()
	r.attempt = a
	if r.state == streamAdopted { // own may have another protocol than the response has come by
		v.ep.OpenStream(v.sent)
		r.state.become(streamOpen)
		return
	}
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
	ss, session := r.race.Service.Sessions, &r.from.Session
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
		r.race.Service.Stats.GRPC[f.GRPC()]++
	}
	r.end(r.race.shard.Loop.Now())
	r.picked(nil, Target{}, f)
}

// Lingered implements Owner. No attempt of a stream lingers.
func (*streamRace) Lingered(bool) {}

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
		r.race.Service.DialFailed(a.visit.ep.Addr, err)
	}
	r.picked = picked
	r.state.become(streamSeeking)
	a.Fail(why)
}

// connected is Stream.Connected on the loop. awaits says that the end of the stream gives the verdict.
func (r *streamRace) connected(now time.Duration, o outcome, awaits bool) {
	if !awaits || r.passage.Probes() { // others wait for a probe: the end of a call may be far off
		r.passage.Judge(now, o.service)
	}
	if !awaits || r.probesEndpoint() {
		r.judgeEndpoint(now, o)
	}
	if r.state == streamConnecting { // else Close was faster
		r.state.become(streamOpen)
		r.Won(r.attempt, nil)
	}
	st := &r.race.Service.Stats
	st.Streams++
	st.StreamsOpen++
}

// fail counts the failure of the stream.
func (r *streamRace) fail(f *fault.Failure) {
	svc := r.race.Service
	shard.ReportStream(svc.Shard, r.from, svc.Config.Name, f)
	svc.Stats.StreamsFailed++
	r.judge(svc.Shard.Loop.Now(), outcomeOf(f))
}

// judge gives the outcome to the breaker and to the endpoint, unless these have one already.
func (r *streamRace) judge(now time.Duration, o outcome) {
	r.passage.Judge(now, o.service)
	r.judgeEndpoint(now, o)
}

func (r *streamRace) judgeEndpoint(now time.Duration, o outcome) {
	if r.state.atEndpoint() {
		r.attempt.visit.judgeStream(now, o.endpoint, o.isError)
	}
}

// probesEndpoint reports whether the endpoint is ejected until a verdict.
func (r *streamRace) probesEndpoint() bool {
	if !r.state.atEndpoint() {
		return false
	}
	_, ejected := r.attempt.visit.ep.Ejected()
	return ejected
}

// await is Stream.await on the loop. The head of the response is the verdict on an endpoint that is ejected.
func (r *streamRace) await() (due bool) {
	due = !r.probesEndpoint()
	r.attempt.visit.judged = !due
	return due
}

// follow is Stream.Follow on the loop. awaits says that the end of the stream gives the verdict.
func (r *streamRace) follow(from shard.Client, p *service.Passage, awaits bool) {
	if r.from = from; awaits {
		p.Transfer(&r.passage)
	}
}

// end gives back what the stream holds: the attempt that is at an endpoint, and the place among the streams of the
// service. It follows the verdicts of Lost or Close.
func (r *streamRace) end(now time.Duration) {
	r.race.Stop()
	if r.state.atEndpoint() {
		r.attempt.end(now, stats.AttemptNone)
	}
	r.state.become(streamOver)
	r.passage.End()
}
