package exchange

import (
	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/shard"
)

// Lease is a stream's place at a service: it passes the service's rate limit and
// breaker as a request does, and counts as one of max_pending, and as load of the
// endpoint that was picked, until Close. Whether the endpoint takes it, and answers
// well, counts for outlier ejection as a request does. The stream itself is on goroutines, so
// the methods may be called from any; each posts to the loop of the Lease. One
// call is made after the answer to the one before.
type Lease struct {
	shard   *shard.Shard
	service *Service
	bounds  *Bounds      // of svc when the stream was admitted
	permit  limit.Permit // of the breaker in bounds
	// last is what Connected or Failed has to say. The caller's goroutine writes
	// it for Close, which may overtake them on the way.
	last outcome

	ep     *lb.Endpoint   // that counts the stream; nil between two picks
	judged bool           // ep is, for this stream
	tried  []*lb.Endpoint // ep too
	asked  int            // endpoints given out
}

// outcome are what a stream says of its service, to the breaker, and of its
// endpoint, to outlier ejection.
type outcome struct{ service, endpoint fault.Verdict }

func outcomeOf(f *fault.Failure) outcome {
	endpoint := fault.VerdictNone
	if f.BlamesEndpoint() {
		endpoint = fault.VerdictBad
	}
	return outcome{f.Verdict(), endpoint}
}

// Target is an endpoint to connect to.
type Target struct {
	Addr string // "ip:port"
	Link bool   // a sidecar's link port: it expects the preface of a stream
}

// Leaser gives streams their place at a service. A Worker is one.
type Leaser interface {
	// Lease asks for a place at the service, and for an endpoint to connect to.
	// picked is called on the loop, so it must not block; when it gets a Failure
	// there is no Lease to Close. After the loop has stopped it is not called.
	// Any goroutine may call Lease.
	Lease(service string, picked func(l *Lease, at Target, f *fault.Failure))
}

// Lease asks for a place at the service. It runs on the loop; picked is called
// before it returns.
func (svc *Service) Lease(picked func(l *Lease, at Target, f *fault.Failure)) {
	l := &Lease{shard: svc.Shard, service: svc, bounds: svc.bounds}
	var f *fault.Failure
	if l.permit, f = svc.shared.admit(svc.Shard.Loop.Now(), l.bounds); f != nil {
		l.fail(f)
		picked(nil, Target{}, f)
		return
	}
	if f = l.pick(); f != nil {
		l.fail(f)
		l.service.shared.pending.Add(-1)
		picked(nil, Target{}, f)
		return
	}
	picked(l, l.place(), nil)
}

// fail counts that the stream came to nothing.
func (l *Lease) fail(f *fault.Failure) {
	l.shard.Stats.Failed(f)
	l.service.stats.StreamsFailed++
	l.judge(outcomeOf(f))
}

// judge tells the service's breaker and the endpoint, each once, what came of the
// stream.
func (l *Lease) judge(found outcome) {
	l.bounds.judge(l.shard.Loop.Now(), &l.permit, found.service)
	l.judgeEndpoint(found.endpoint)
}

func (l *Lease) judgeEndpoint(v fault.Verdict) {
	if l.ep != nil && !l.judged && v != fault.VerdictNone {
		l.judged = true
		l.ep.Judge(l.shard.Loop.Now(), v == fault.VerdictGood)
	}
}

func (l *Lease) place() Target {
	return Target{Addr: l.ep.Addr, Link: l.ep.Ext.(*Endpoint).streams == StreamLink}
}

// pick chooses an endpoint that was not tried.
func (l *Lease) pick() *fault.Failure {
	if l.asked == maxFreeEndpoints {
		return fault.Connect
	}
	ep := l.service.set.Pick(l.shard.Loop.Now(), l.shard.Rand, l.tried)
	switch {
	case ep != nil:
	case l.asked > 0:
		return fault.Connect
	default:
		return fault.NoEndpoint
	}
	if ep.Ext.(*Endpoint).streams == StreamNone {
		return fault.Unsupported
	}
	l.tried = append(l.tried, ep)
	l.ep, l.judged = ep, false
	l.asked++
	ep.Opened(l.shard.Loop.Now())
	return nil
}

// Retry gives the endpoint back, which did not take the stream, and asks for
// another, at most three in all. why is Connect or what the endpoint refused
// it for; err, which is logged with the former, is how its dial ended. When picked gets a
// Failure, the Lease is closed.
func (l *Lease) Retry(why *fault.Failure, err error, picked func(at Target, f *fault.Failure)) {
	l.shard.Loop.Post(func() {
		if why == fault.Connect {
			l.service.DialFailed(l.place().Addr, err)
		}
		l.judgeEndpoint(outcomeOf(why).endpoint)
		l.leave()
		f := l.pick()
		if f == nil {
			picked(l.place(), nil)
			return
		}
		l.fail(f)
		l.service.shared.pending.Add(-1)
		picked(Target{}, f)
	})
}

// Connected tells that the stream is open: that the endpoint took the connection,
// or, if an answer with a status comes first, that its head is here. The breaker
// and the endpoint's record learn from the status; 0 is that of streams without one.
func (l *Lease) Connected(status int) {
	found := outcome{fault.VerdictOf(status), fault.VerdictOf(status)}
	l.last = found
	l.shard.Loop.Post(func() {
		l.judge(found)
		l.service.stats.Streams++
		l.service.stats.StreamsOpen++
	})
}

// Failed counts that the stream came to nothing after its endpoint took the
// connection.
func (l *Lease) Failed(f *fault.Failure) {
	l.last = outcomeOf(f)
	l.shard.Loop.Post(func() { l.fail(f) })
}

// Close gives the place back, after Connected or before. in and out are the
// bytes that went to the endpoint and came from it.
func (l *Lease) Close(connected bool, in, out int64) {
	l.shard.Loop.Post(func() {
		l.judge(l.last)
		if connected {
			l.service.stats.StreamsOpen--
		}
		l.service.stats.StreamBytesIn += uint64(in)
		l.service.stats.StreamBytesOut += uint64(out)
		l.leave()
		l.service.shared.pending.Add(-1)
	})
}

// AdoptStream is the Lease of a stream that ep already carries: an answer that turned
// out to have no end in sight. It counts beside max_pending, where the exchange
// that it was part of has gone through.
func (svc *Service) AdoptStream(ep *lb.Endpoint) *Lease {
	l := &Lease{shard: svc.Shard, service: svc, ep: ep, judged: true}
	svc.shared.pending.Add(1)
	ep.Opened(svc.Shard.Loop.Now())
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
