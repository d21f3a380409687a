package race

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/affinity"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Stream is a stream at a service. It owns a race, whose attempts the stream's goroutine carries out: it
// connects to the endpoint of the attempt, and says by Connected that the attempt has won, or by Retry why
// the attempt has failed. The attempt that won lasts until Close.
//
// The stream passes the service's rate limit and breaker as a request does, and takes no slot. It counts as
// load of its endpoint. Its outcome counts for outlier ejection.
//
// The stream runs on goroutines. Any of them may call the methods, which post to the loop of
// the Stream. The next call must wait for the callback of the one before. A nil Stream belongs to a
// stream without a service: Connected and Close do nothing.
type Stream struct {
	race    Race
	state   streamState
	from    shard.Client
	passage service.Passage
	picked  Picked // of Open or Retry; nil for a stream that was adopted
	// last is the outcome that Connected or Failed reported. The caller's goroutine
	// writes it for Close, which may overtake them on the way to the loop.
	last outcome

	attempt *Attempt // the latest; it is at an endpoint if state says so

	// cookies are for the response of the endpoint. They are set before the caller's goroutine gets it.
	cookies affinity.Cookies

	call   bool              // a gRPC call, which Close counts
	code   protocol.GRPCCode // what it ended with; NoteCode and Close are like Connected and Close
	awaits bool              // its end gives the verdict, not its head

	heads      *hedge.Heads  // that learns when the first byte of the body has come; nil means nobody
	headsUntil time.Duration // until when that byte has come in time
}

// Picked gets an endpoint for the stream s to connect to. After the failure f the stream is closed, and s is nil.
// Picked is called on the loop, so it must not block. It is not called after the loop has stopped.
type Picked func(s *Stream, at Target, f *fault.Failure)

// outcome is a stream's verdict on its service, for the breaker, and what its attempt says of the endpoint.
type outcome struct {
	service  fault.Verdict
	endpoint stats.AttemptOutcome
	isError  bool // the endpoint responded with an error of 4xx or 5xx
}

func outcomeOfStatus(status int) outcome {
	o := outcome{fault.VerdictOf(status), stats.AttemptServed, status >= 400}
	if o.service == fault.VerdictBad {
		o.endpoint = stats.AttemptFailure
	}
	return o
}

func outcomeOf(f *fault.Failure) outcome { return outcome{service: f.Verdict(), endpoint: brokenBy(f)} }

// Target is an endpoint to connect to.
type Target struct {
	Addr string // "ip:port"
	Host string // name that Addr was resolved from, or ""
	Link bool   // a sidecar's link port: it expects the preface of a stream

	// Socket is a pipe to the endpoint, which takes one HTTP/1.1 request; nil means to dial Addr.
	// Who gets the Target closes or resets it. The pipe may not be open yet.
	Socket loop.Socket
}

// Opener opens streams at services. proxy.Worker is one.
type Opener interface {
	// Open begins a stream at the service. Any goroutine may call Open.
	Open(service string, picked Picked)
	// Failed counts a stream that is refused with f before it is opened. Any goroutine may
	// call it.
	Failed(f *fault.Failure)
	// From returns an Opener that says, where it counts and logs failures, who the stream came
	// from. Any goroutine may call it.
	From(c shard.Client) Opener
}

// streamRequest is what the race of a stream knows of its request. The goroutine knows whether it can send
// the request again, and how long it waits for a response.
var streamRequest = &protocol.Request{Idempotent: true, Deadline: math.MaxInt64}

func newStream(svc *service.Service, from shard.Client) *Stream {
	s := &Stream{from: from, call: from.GRPC, code: protocol.GRPCCancelled}
	s.race.Init(svc.Shard, nil, streamOwner{s}, streamRequest)
	s.race.Service, s.race.Policy, s.race.stream = svc, streamPolicy, s
	return s
}

// Open begins a stream at the service, on its loop. It calls picked before it returns.
func Open(svc *service.Service, from shard.Client, picked Picked) {
	s, now := newStream(svc, from), svc.Shard.Loop.Now()
	s.picked = picked
	if f := svc.Bounds.PassStream(&s.passage, now); f != nil {
		s.race.owner.Lost(f)
		return
	}
	svc.Hedging.Stream(now, svc.Config.Policy.Hedge.Budget)
	if ss := svc.Sessions; ss != nil {
		s.race.Key, s.race.Pin = ss.Join(&s.from, svc.Shard.Rand)
	}
	s.race.startStream(nil)
}

// AdoptStream makes the Stream of a response that became a stream, which ep, of svc, sends already. Its
// exchange was admitted.
func AdoptStream(svc *service.Service, ep *lb.Endpoint) *Stream {
	s := newStream(svc, shard.Client{})
	s.state.become(streamAdopted)
	svc.Bounds.AdoptStream(&s.passage)
	s.race.startStream(ep)
	s.attempt.visit.judged = true
	svc.Stats.Streams++
	svc.Stats.StreamsOpen++
	return s
}

// startStream launches the first attempt of a stream: at ep or, if ep is nil, where the policy picks.
func (r *Race) startStream(ep *lb.Endpoint) {
	r.state.become(raceOn)
	r.launch(streamAttempt, ep)
}

// open lets the goroutine of the stream carry out the attempt, unless the endpoint takes no streams.
func (a *Attempt) open() {
	s, v := a.race.stream, &a.visit
	own := v.endpoint()
	s.attempt = a
	if s.state == streamAdopted { // own may have another protocol than the response has come by
		v.begin()
		s.state.become(streamOpen)
		return
	}
	if own.Streams == service.StreamNone {
		v.ep = nil // it has seen nothing
		a.Fail(fault.Unsupported)
		return
	}
	v.begin()
	s.state.become(streamConnecting)
	at := Target{Addr: v.ep.Addr, Host: v.ep.Host, Link: own.Streams == service.StreamLink}
	s.cookies = s.responseCookies(v.ep)
	if own.Streams == service.StreamPipe {
		at.Socket = upstreamOf(own).(StreamOpener).OpenStream(s.from)
	}
	s.picked(s, at, nil)
}

// streamOwner is a Stream as the Owner of its race.
type streamOwner struct{ *Stream }

// Won implements Owner: by has the stream.
func (o streamOwner) Won(by *Attempt, _ *Response) {
	o.race.Stop()
	if by.visit.ep.Refuses() {
		by.visit.ep.CountTaken(by.visit.sent)
	}
}

// Lost implements Owner.
func (o streamOwner) Lost(f *fault.Failure) {
	o.fail(f)
	o.count(f.GRPC())
	o.end(o.race.shard.Loop.Now())
	o.picked(nil, Target{}, f)
}

// Lingered implements Owner. No attempt of a stream lingers.
func (streamOwner) Lingered() {}

// Interim implements Owner. The goroutine of the stream reads interim responses.
func (streamOwner) Interim(*protocol.Response) {}

// Started implements Owner. No stream waits for a slot.
func (streamOwner) Started() {}

// Client implements Owner.
func (o streamOwner) Client() shard.Client { return o.from }

// end gives back what the stream holds: the attempt that is at an endpoint, and the place among the streams of the
// service. It follows the verdicts of Lost or Close.
func (s *Stream) end(now time.Duration) {
	s.race.Stop()
	if s.state.atEndpoint() {
		s.attempt.end(now, stats.AttemptNone)
	}
	s.state.become(streamOver)
	s.passage.Leave()
}

// post has the loop of the stream call do.
func (s *Stream) post(do func(svc *service.Service, now time.Duration)) {
	l := s.race.shard.Loop
	l.Post(func() { do(s.race.Service, l.Now()) })
}

// Key is the key of the service, see loop.Destined. Any goroutine may call it.
func (s *Stream) Key() string { return s.race.Service.Shared.Key }

// TLS is the tls block of the service with which the stream began, also after a reload. Any
// goroutine may call it.
func (s *Stream) TLS() *config.ServiceTLS { return s.race.Service.Shared.TLS }

func (s *Stream) fail(f *fault.Failure) {
	svc := s.race.Service
	shard.ReportStream(svc.Shard, s.from, svc.Config.Name, f)
	svc.Stats.StreamsFailed++
	s.judge(svc.Shard.Loop.Now(), outcomeOf(f))
}

func (s *Stream) count(c protocol.GRPCCode) {
	if s.call {
		s.race.Service.Stats.GRPC[c]++
	}
}

// judge gives the outcome to the breaker and to the endpoint, unless these have one already.
func (s *Stream) judge(now time.Duration, o outcome) {
	s.passage.Judge(now, o.service)
	s.judgeEndpoint(now, o)
}

func (s *Stream) judgeEndpoint(now time.Duration, o outcome) {
	if s.state.atEndpoint() {
		s.attempt.visit.judgeStream(now, o.endpoint, o.isError)
	}
}

// Retry asks for another endpoint after the last one did not accept the stream. why is fault.Connect, with
// the error of the dial in err, or why the endpoint refused the stream, whose err is not looked at.
// fault.Reset means that the endpoint was lost. Without another endpoint the stream fails.
func (s *Stream) Retry(why *fault.Failure, err error, picked Picked) {
	s.post(func(svc *service.Service, _ time.Duration) {
		a := s.attempt
		if why == fault.Connect && err != nil {
			svc.DialFailed(a.visit.ep.Addr, err)
		}
		s.picked = picked
		s.state.become(streamSeeking)
		a.Fail(why)
	})
}

// Connected notes that the stream is open: its endpoint accepted it, or the head of the
// response has arrived. The breaker and outlier ejection count the status; 0 means none. Of a gRPC
// call they count the code that it ends with, if the status is 200.
func (s *Stream) Connected(status int) {
	if s == nil {
		return
	}
	o := outcomeOfStatus(status)
	s.last, s.awaits = o, s.call && status == 200
	s.post(func(svc *service.Service, now time.Duration) {
		if !s.awaits || s.passage.Probes() { // others wait for a probe: the end of a call may be far off
			s.passage.Judge(now, o.service)
		}
		if !s.awaits || s.probesEndpoint() {
			s.judgeEndpoint(now, o)
		}
		if s.state == streamConnecting { // else Close was faster
			s.state.become(streamOpen)
			s.race.owner.Won(s.attempt, nil)
		}
		svc.Stats.Streams++
		svc.Stats.StreamsOpen++
	})
}

// probesEndpoint reports whether the endpoint is ejected until a verdict.
func (s *Stream) probesEndpoint() bool {
	if !s.state.atEndpoint() {
		return false
	}
	_, ejected := s.attempt.visit.ep.Ejected()
	return ejected
}

// NoteCode notes the code that a gRPC call has ended with. said reports whether the endpoint said it:
// then it is the verdict on a call that has begun. Without it Close counts the call as cancelled.
func (s *Stream) NoteCode(c protocol.GRPCCode, said bool) {
	if s == nil {
		return
	}
	s.code = c
	if s.awaits && said {
		s.last = outcomeOfStatus(fault.StatusOfGRPC(c))
	}
}

// Call reports whether the stream is a gRPC call whose end counts.
func (s *Stream) Call() bool { return s != nil && s.call }

// Failed counts a stream that failed after its endpoint had accepted the connection.
func (s *Stream) Failed(f *fault.Failure) {
	s.last = outcomeOf(f)
	s.post(func(*service.Service, time.Duration) { s.fail(f) })
}

// Close ends the Stream. connected reports whether Connected was called; sent and received are bytes to and from the
// endpoint.
func (s *Stream) Close(connected bool, sent, received int64) {
	if s == nil {
		return
	}
	s.post(func(svc *service.Service, now time.Duration) {
		s.judge(now, s.last)
		s.count(s.code)
		if connected {
			svc.Stats.StreamsOpen--
		}
		svc.Stats.StreamBytesIn += uint64(sent)
		svc.Stats.StreamBytesOut += uint64(received)
		s.end(now)
	})
}

// await leaves the verdict on the endpoint to the end of a gRPC call that has begun.
func (s *Stream) await() {
	s.awaits, s.attempt.visit.judged = true, s.probesEndpoint()
	s.last = outcomeOfStatus(200)
}

// Follow makes the Stream count the end of the gRPC call that from has made. p is what let its request pass.
func (s *Stream) Follow(from shard.Client, p *service.Passage) {
	s.from = from
	if !s.awaits {
		return
	}
	s.call, s.code = true, protocol.GRPCCancelled
	p.Transfer(&s.passage)
}

// responseCookies returns what becomes of the cookies of a response of ep.
func (s *Stream) responseCookies(ep *lb.Endpoint) affinity.Cookies {
	ss, session := s.race.Service.Sessions, &s.from.Session
	switch {
	case ss == nil || ss.Sticky == nil:
		return affinity.Cookies{Set: session.Cookie}
	case ep == s.race.Pin:
		return ss.Sticky.Keep()
	}
	return ss.Give(nil, ep, session.Secure)
}

// EditCookies changes the cookies of a response of the endpoint. A stream without a service keeps them.
func (s *Stream) EditCookies(res *protocol.Response) {
	if s != nil {
		res.Headers = s.cookies.Apply(res.Headers)
	}
}
