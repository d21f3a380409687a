package proxy

import (
	"github.com/remora-proxy/remora/lb"
)

// Lease is a stream's place at a service: it passes the service's rate limit and
// breaker as a request does, and counts as one of max_pending, and as load of the
// endpoint that was picked, until Close. Whether the endpoint takes it, and answers
// well, counts for outlier ejection as a request does. The stream itself is on goroutines, so
// the methods may be called from any; each posts to the loop of the Lease. One
// call is made after the answer to the one before.
type Lease struct {
	w      *shard
	svc    *service
	bounds *serviceBounds // of svc when the stream was admitted
	pass   pass           // of the breaker in bounds
	// last is what Connected or Failed has to say. The caller's goroutine writes
	// it for Close, which may overtake them on the way.
	last findings

	ep     *lb.Endpoint   // that counts the stream; nil between two picks
	judged bool           // ep is, for this stream
	tried  []*lb.Endpoint // ep too
	asked  int            // endpoints given out
}

// findings are what a stream says of its service, to the breaker, and of its
// endpoint, to outlier ejection.
type findings struct{ service, endpoint verdict }

func findingsOf(f *Failure) findings {
	endpoint := verdictNone
	if f.blames() {
		endpoint = verdictBad
	}
	return findings{f.verdict(), endpoint}
}

// Place is an endpoint to connect to.
type Place struct {
	Addr string // "ip:port"
	Link bool   // a sidecar's link port: it expects the preface of a stream
}

// Leaser gives streams their place at a service. A Worker is one.
type Leaser interface {
	// Lease asks for a place at the service, and for an endpoint to connect to.
	// picked is called on the loop, so it must not block; when it gets a Failure
	// there is no Lease to Close. After the loop has stopped it is not called.
	// Any goroutine may call Lease.
	Lease(service string, picked func(l *Lease, at Place, f *Failure))
}

// lease asks for a place at the service. It runs on the loop; picked is called
// before it returns.
func (svc *service) lease(picked func(l *Lease, at Place, f *Failure)) {
	l := &Lease{w: svc.w, svc: svc, bounds: svc.bounds}
	var f *Failure
	if l.pass, f = svc.shared.admit(svc.w.loop.Now(), l.bounds); f != nil {
		l.fail(f)
		picked(nil, Place{}, f)
		return
	}
	if f = l.pick(); f != nil {
		l.fail(f)
		l.svc.shared.pending.Add(-1)
		picked(nil, Place{}, f)
		return
	}
	picked(l, l.place(), nil)
}

// fail counts that the stream came to nothing.
func (l *Lease) fail(f *Failure) {
	l.w.stats.failed(f)
	l.svc.stats.StreamsFailed++
	l.judge(findingsOf(f))
}

// judge tells the service's breaker and the endpoint, each once, what came of the
// stream.
func (l *Lease) judge(found findings) {
	l.bounds.judge(l.w.loop.Now(), &l.pass, found.service)
	l.judgeEndpoint(found.endpoint)
}

func (l *Lease) judgeEndpoint(v verdict) {
	if l.ep != nil && !l.judged && v != verdictNone {
		l.judged = true
		l.ep.Judge(l.w.loop.Now(), v == verdictGood)
	}
}

func (l *Lease) place() Place {
	return Place{Addr: l.ep.Addr, Link: l.ep.Ext.(*endpoint).streams == streamLink}
}

// pick chooses an endpoint that was not tried.
func (l *Lease) pick() *Failure {
	if l.asked == maxFreeEndpoints {
		return FailConnect
	}
	ep := l.svc.set.Pick(l.w.loop.Now(), l.w.rnd, l.tried)
	switch {
	case ep != nil:
	case l.asked > 0:
		return FailConnect
	default:
		return FailNoEndpoint
	}
	if ep.Ext.(*endpoint).streams == streamNone {
		return FailUnsupported
	}
	l.tried = append(l.tried, ep)
	l.ep, l.judged = ep, false
	l.asked++
	ep.Opened(l.w.loop.Now())
	return nil
}

// Again gives the endpoint back, which did not take the stream, and asks for
// another, at most three in all. why is FailConnect or what the endpoint refused
// it for; err, which is logged with the former, is how its dial ended. When picked gets a
// Failure, the Lease is closed.
func (l *Lease) Again(why *Failure, err error, picked func(at Place, f *Failure)) {
	l.w.loop.Post(func() {
		if why == FailConnect {
			l.svc.dialFailed(l.place().Addr, err)
		}
		l.judgeEndpoint(findingsOf(why).endpoint)
		l.leave()
		f := l.pick()
		if f == nil {
			picked(l.place(), nil)
			return
		}
		l.fail(f)
		l.svc.shared.pending.Add(-1)
		picked(Place{}, f)
	})
}

// Connected tells that the stream is open: that the endpoint took the connection,
// or, if an answer with a status comes first, that its head is here. The breaker
// and the endpoint's record learn from the status; 0 is that of streams without one.
func (l *Lease) Connected(status int) {
	found := findings{verdictOf(status), verdictOf(status)}
	l.last = found
	l.w.loop.Post(func() {
		l.judge(found)
		l.svc.stats.Streams++
		l.svc.stats.StreamsOpen++
	})
}

// Failed counts that the stream came to nothing after its endpoint took the
// connection.
func (l *Lease) Failed(f *Failure) {
	l.last = findingsOf(f)
	l.w.loop.Post(func() { l.fail(f) })
}

// Close gives the place back, after Connected or before. in and out are the
// bytes that went to the endpoint and came from it.
func (l *Lease) Close(connected bool, in, out int64) {
	l.w.loop.Post(func() {
		l.judge(l.last)
		if connected {
			l.svc.stats.StreamsOpen--
		}
		l.svc.stats.StreamBytesIn += uint64(in)
		l.svc.stats.StreamBytesOut += uint64(out)
		l.leave()
		l.svc.shared.pending.Add(-1)
	})
}

// adoptStream is the Lease of a stream that ep already carries: an answer that turned
// out to have no end in sight. It counts beside max_pending, where the exchange
// that it was part of has gone through.
func (svc *service) adoptStream(ep *lb.Endpoint) *Lease {
	l := &Lease{w: svc.w, svc: svc, ep: ep, judged: true}
	svc.shared.pending.Add(1)
	ep.Opened(svc.w.loop.Now())
	svc.stats.Streams++
	svc.stats.StreamsOpen++
	return l
}

func (l *Lease) leave() {
	if l.ep != nil {
		l.ep.Closed()
		l.ep = nil
	}
}
