package proxy

import (
	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/config"
)

// Lease is a stream's place at a service: it passes the service's rate limit and
// breaker as a request does, and counts as one of max_pending, and as load of the
// endpoint that was picked, until Close. The stream itself is on goroutines, so
// the methods may be called from any; each posts to the loop of the Lease. One
// call is made after the answer to the one before.
type Lease struct {
	w    *Worker
	svc  *service
	pass pass // of the service's breaker
	// last is what Connected or Failed has to say to the breaker. The caller's
	// goroutine writes it for Close, which may overtake them on the way.
	last verdict

	ep    *lb.Endpoint   // that counts the stream; nil between two picks
	tried []*lb.Endpoint // ep too
	asked int            // endpoints given out
}

// Place is an endpoint to connect to.
type Place struct {
	Addr string // "ip:port"
	Link bool   // a sidecar's link port: it expects the preface of a stream
}

// Lease asks for a place at the service, and for an endpoint to connect to.
// picked is called on the loop, so it must not block; when it gets a Failure
// there is no Lease to Close. After the loop has stopped it is not called.
func (w *Worker) Lease(service string, picked func(l *Lease, at Place, f *Failure)) {
	w.loop.Post(func() {
		l := &Lease{w: w, svc: w.services[service]}
		var f *Failure
		if l.pass, f = l.svc.shared.admit(w.loop.Now()); f != nil {
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
	})
}

// fail counts that the stream came to nothing.
func (l *Lease) fail(f *Failure) {
	l.w.stats.failed(f)
	l.svc.stats.StreamsFailed++
	l.judge(f.verdict())
}

// judge tells the service's breaker, once, what came of the stream.
func (l *Lease) judge(v verdict) { l.svc.shared.judge(l.w.loop.Now(), &l.pass, v) }

func (l *Lease) place() Place {
	return Place{Addr: l.ep.Addr, Link: l.ep.Ext.(*endpoint).protocol == config.ProtocolLink}
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
	if ep.Ext.(*endpoint).protocol == config.ProtocolDubbo {
		return FailUnsupported
	}
	l.tried = append(l.tried, ep)
	l.ep = ep
	l.asked++
	ep.Opened()
	return nil
}

// Again gives the endpoint back as one that can't be connected, and asks for
// another, at most three in all. When picked gets a Failure, the Lease is
// closed.
func (l *Lease) Again(picked func(at Place, f *Failure)) {
	l.w.loop.Post(func() {
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
// learns from the status; 0 is that of streams without one.
func (l *Lease) Connected(status int) {
	l.last = verdictOf(status)
	l.w.loop.Post(func() {
		l.judge(verdictOf(status))
		l.svc.stats.Streams++
		l.svc.stats.StreamsOpen++
	})
}

// Failed counts that the stream came to nothing after its endpoint took the
// connection.
func (l *Lease) Failed(f *Failure) {
	l.last = f.verdict()
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

// adopt is the Lease of a stream that ep already carries: an answer that turned
// out to have no end in sight. It counts beside max_pending, where the exchange
// that it was part of has gone through.
func (w *Worker) adopt(svc *service, ep *lb.Endpoint) *Lease {
	l := &Lease{w: w, svc: svc, ep: ep}
	svc.shared.pending.Add(1)
	ep.Opened()
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
