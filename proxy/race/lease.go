package race

import (
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/affinity"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
)

// Lease is a stream's place at a service. It passes the service's rate limit and
// breaker as a request does. Until Close it counts as load of the endpoint that was picked.
// Its outcome counts for outlier ejection.
//
// The stream runs on goroutines. Any of them may call the methods, which post to the loop of
// the Lease. The next call must wait for the callback of the one before. A nil Lease belongs to a
// stream without a service: Connected and Close do nothing.
type Lease struct {
	shard   *shard.Shard
	service *service.Service
	from    shard.Client
	passage service.Passage
	// last is the outcome that Connected or Failed reported. The caller's goroutine
	// writes it for Close, which may overtake them on the way to the loop.
	last outcome

	key    uint64         // for the policy
	pin    *lb.Endpoint   // that the stream is pinned to; nil means none
	ep     *lb.Endpoint   // counts the stream; nil between two picks
	judged bool           // the outcome at ep is recorded
	tried  []*lb.Endpoint // includes ep
	picks  int            // endpoints picked
	picked time.Duration  // when ep was
	why    *fault.Failure // why the last one did not take the stream

	// cookies are for the response of ep. They are set before the caller's goroutine gets ep.
	cookies affinity.Cookies

	call   bool              // a gRPC call, which Close counts
	code   protocol.GRPCCode // what it ended with; Ended and Close are like Connected and Close
	awaits bool              // its end gives the verdict, not its head
}

// outcome is a stream's verdict on its service, for the breaker, and endpoint, for ejection.
type outcome struct {
	service, endpoint fault.Verdict
	errs              bool // the endpoint responded with an error of 4xx or 5xx
}

func outcomeOfStatus(status int) outcome {
	v := fault.VerdictOf(status)
	return outcome{v, v, status >= 400}
}

func outcomeOf(f *fault.Failure) outcome {
	endpoint := fault.VerdictNone
	if f.BlamesEndpoint() {
		endpoint = fault.VerdictBad
	}
	return outcome{f.Verdict(), endpoint, endpoint == fault.VerdictBad}
}

// Target is an endpoint to connect to.
type Target struct {
	Addr string // "ip:port"
	Host string // name that Addr was resolved from, or ""
	Link bool   // a sidecar's link port: it expects the preface of a stream

	// Socket is a pipe to the endpoint, which takes one HTTP/1.1 request; nil means to dial Addr.
	// Who gets the Target closes or resets it. The pipe may not be open yet.
	Socket loop.Socket
}

// Leaser gives streams their place at a service. proxy.Worker is one.
type Leaser interface {
	// Lease asks for a place at the service, and for an endpoint to connect to. picked is
	// called on the loop, so it must not block, and not after the loop has stopped. If it gets
	// a Failure, there is no Lease to close. Any goroutine may call Lease.
	Lease(service string, picked func(l *Lease, at Target, f *fault.Failure))
	// Failed counts a stream that is refused with f before it takes a lease. Any goroutine may
	// call it.
	Failed(f *fault.Failure)
	// From returns a Leaser that says, where it counts and logs failures, who the stream came
	// from. Any goroutine may call it.
	From(c shard.Client) Leaser
}

// TakeLease asks for a place at the service, on its loop. It calls picked before it returns.
func TakeLease(svc *service.Service, from shard.Client, picked func(l *Lease, at Target, f *fault.Failure)) {
	l := &Lease{shard: svc.Shard, service: svc, from: from, call: from.GRPC, code: protocol.GRPCCancelled}
	var f *fault.Failure
	if f = svc.PassStream(&l.passage, svc.Shard.Loop.Now()); f != nil {
		l.refuse(f)
		picked(nil, Target{}, f)
		return
	}
	svc.Hedging.Stream(l.shard.Loop.Now(), svc.Config.Policy.Hedge.Budget)
	if ss := svc.Sessions; ss != nil {
		l.key, l.pin = ss.Join(&l.from, l.shard.Rand)
	}
	at, f := l.next()
	if f != nil {
		l = nil
	}
	picked(l, at, f)
}

// Key is the key of the service, see loop.Destined. Any goroutine may call it.
func (l *Lease) Key() string { return l.service.Key() }

// TLS is the tls block of the service with which the stream began, also after a reload. Any
// goroutine may call it.
func (l *Lease) TLS() *config.ServiceTLS { return l.service.TLS() }

func (l *Lease) fail(f *fault.Failure) {
	shard.ReportStream(l.shard, l.from, l.service.Config.Name, f)
	l.service.Stats.StreamsFailed++
	l.judge(outcomeOf(f))
}

// refuse fails a stream that has no Lease yet, or none any more.
func (l *Lease) refuse(f *fault.Failure) {
	l.fail(f)
	l.count(f.GRPC())
}

func (l *Lease) count(c protocol.GRPCCode) {
	if l.call {
		l.service.Stats.GRPC[c]++
	}
}

// judge gives the outcome to the breaker and to the endpoint, once each.
func (l *Lease) judge(o outcome) {
	l.passage.Judge(l.shard.Loop.Now(), o.service)
	l.judgeEndpoint(o)
}

func (l *Lease) judgeEndpoint(o outcome) {
	if l.ep == nil || l.judged || o.endpoint == fault.VerdictNone {
		return
	}
	l.judged = true
	now, good := l.shard.Loop.Now(), o.endpoint == fault.VerdictGood
	l.ep.Judge(now, good)
	if o.errs {
		l.ep.Declined(now, now-l.picked, !good)
	}
}

// next picks an endpoint. Without one the stream has failed, and the Lease is closed.
func (l *Lease) next() (Target, *fault.Failure) {
	if f := l.pick(); f != nil {
		return Target{}, l.end(f)
	}
	ep := l.ep.Ext.(*service.Endpoint)
	at := Target{Addr: l.ep.Addr, Host: l.ep.Host, Link: ep.Streams == service.StreamLink}
	l.cookies = l.responseCookies()
	if ep.Streams == service.StreamPipe {
		at.Socket = upstreamOf(ep).(service.StreamOpener).OpenStream(l.from.Addr)
	}
	return at, nil
}

// end closes a Lease that has no endpoint. It returns f, which the stream fails with.
func (l *Lease) end(f *fault.Failure) *fault.Failure {
	l.refuse(f)
	l.passage.Done()
	return f
}

// pick chooses an endpoint that was not tried. Without one, it tries one again if the last could be
// connected: another process may listen there by now, or take the stream on another connection.
func (l *Lease) pick() *fault.Failure {
	if l.picks == maxFreeEndpoints {
		return l.why
	}
	q := l.service.Query(l.key, l.tried)
	q.Pin = l.pin
	ep := l.service.Set.Pick(q)
	if ep == nil && l.picks > 0 && (l.why == fault.Reset || l.why.Retry == fault.RetryFree && l.why != fault.Connect) {
		q.Tried = nil
		ep = l.service.Set.Pick(q)
	}
	switch {
	case ep == nil && l.picks > 0:
		return l.why
	case ep == nil:
		return fault.NoEndpoint
	case ep.Ext.(*service.Endpoint).Streams == service.StreamNone:
		return fault.Unsupported
	}
	l.tried = append(l.tried, ep)
	l.ep, l.judged = ep, false
	l.picks++
	l.picked = l.shard.Loop.Now()
	ep.Opened(l.picked)
	return nil
}

// Retry asks for another endpoint after the last one did not accept the stream; at most
// three are tried. why is fault.Connect, with the error of the dial in err, or why the
// endpoint refused the stream, whose err is not looked at. fault.Reset means that the endpoint was lost:
// that costs a token, as for a request. Without another endpoint the stream fails with why. If
// picked gets a Failure, the Lease is closed.
func (l *Lease) Retry(why *fault.Failure, err error, picked func(at Target, f *fault.Failure)) {
	l.shard.Loop.Post(func() {
		l.why = why
		if why == fault.Connect && err != nil {
			l.service.DialFailed(l.ep.Addr, err)
		}
		l.judgeEndpoint(outcomeOf(why))
		if !why.BlamesEndpoint() {
			reportRefusal(l.ep, l.shard.Loop.Now(), l.picked, why, false)
		}
		l.releaseEndpoint()
		if why == fault.Reset && !l.service.Pay(true) {
			picked(Target{}, l.end(why))
			return
		}
		picked(l.next())
	})
}

// Connected notes that the stream is open: its endpoint accepted it, or the head of the
// response has arrived. The breaker and outlier ejection count the status; 0 means none. Of a gRPC
// call they count the code that it ends with, if the status is 200.
func (l *Lease) Connected(status int) {
	if l == nil {
		return
	}
	o := outcomeOfStatus(status)
	l.last, l.awaits = o, l.call && status == 200
	l.shard.Loop.Post(func() {
		if l.awaits {
			l.judgeProbe(o)
		} else {
			l.judge(o)
		}
		if l.ep != nil && l.ep.Refuses() {
			l.ep.Took(l.picked)
		}
		l.service.Stats.Streams++
		l.service.Stats.StreamsOpen++
	})
}

// judgeProbe judges a call that has begun, if others wait for what it says: its end may be far off.
func (l *Lease) judgeProbe(o outcome) {
	if l.passage.Probes() {
		l.passage.Judge(l.shard.Loop.Now(), o.service)
	}
	if l.probesEndpoint() {
		l.judgeEndpoint(o)
	}
}

func (l *Lease) probesEndpoint() bool {
	if l.ep == nil {
		return false
	}
	_, ejected := l.ep.Ejected()
	return ejected
}

// Ended notes the code that a gRPC call has ended with. said reports whether the endpoint said it:
// then it is the verdict on a call that has begun. Without it Close counts the call as cancelled.
func (l *Lease) Ended(c protocol.GRPCCode, said bool) {
	if l == nil {
		return
	}
	l.code = c
	if l.awaits && said {
		l.last = outcomeOfStatus(fault.StatusOfGRPC(c))
	}
}

// Call reports whether the stream is a gRPC call whose end counts.
func (l *Lease) Call() bool { return l != nil && l.call }

// Failed counts a stream that failed after its endpoint had accepted the connection.
func (l *Lease) Failed(f *fault.Failure) {
	l.last = outcomeOf(f)
	l.shard.Loop.Post(func() { l.fail(f) })
}

// Close ends the Lease. connected reports whether Connected was called; in and out are
// the bytes sent to the endpoint and received from it.
func (l *Lease) Close(connected bool, in, out int64) {
	if l == nil {
		return
	}
	l.shard.Loop.Post(func() {
		l.judge(l.last)
		l.count(l.code)
		if connected {
			l.service.Stats.StreamsOpen--
		}
		l.service.Stats.StreamBytesIn += uint64(in)
		l.service.Stats.StreamBytesOut += uint64(out)
		l.releaseEndpoint()
		l.passage.Done()
	})
}

// AdoptStream makes the Lease of a stream that ep, of svc, already carries: a response that
// became a stream. Its exchange was admitted.
func AdoptStream(svc *service.Service, ep *lb.Endpoint) *Lease {
	l := &Lease{shard: svc.Shard, service: svc, ep: ep, judged: true}
	svc.AdoptStream(&l.passage)
	l.picked = svc.Shard.Loop.Now()
	ep.Opened(l.picked)
	svc.Stats.Streams++
	svc.Stats.StreamsOpen++
	return l
}

// await leaves the verdict on the endpoint to the end of a gRPC call that has begun.
func (l *Lease) await() {
	l.awaits, l.judged = true, l.probesEndpoint()
	l.last = outcomeOfStatus(200)
}

// Follow makes the Lease count the end of the gRPC call that from has made. p is what let its request pass.
func (l *Lease) Follow(from shard.Client, p *service.Passage) {
	l.from = from
	if !l.awaits {
		return
	}
	l.call, l.code = true, protocol.GRPCCancelled
	p.HandOver(&l.passage)
}

// responseCookies returns what becomes of the cookies of a response of the endpoint.
func (l *Lease) responseCookies() affinity.Cookies {
	ss, session := l.service.Sessions, &l.from.Session
	switch {
	case ss == nil || ss.Sticky == nil:
		return affinity.Cookies{Set: session.Cookie}
	case l.ep == l.pin:
		return ss.Sticky.Keep()
	}
	return ss.Give(nil, l.ep, session.Secure)
}

// EditCookies changes the cookies of a response of the endpoint. A stream without a service keeps them.
func (l *Lease) EditCookies(res *protocol.Response) {
	if l != nil {
		res.Headers = l.cookies.Apply(res.Headers)
	}
}

func (l *Lease) releaseEndpoint() {
	if l.ep != nil {
		l.ep.Closed()
		l.ep = nil
	}
}
