package proxy

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/registry"
)

// service is one upstream service on one loop: its endpoints with their
// connections, its queue for slots, and what hedging knows of it.
type service struct {
	w       *shard
	log     *quietLog // of its endpoints, apart from those of other services
	speaks  connectors
	shared  *sharedService
	cfg     *config.Service
	bounds  *serviceBounds
	set     lb.Set
	version uint64      // of the snapshot that set holds
	known   atomic.Bool // some snapshot has been applied; other goroutines read it
	hedging hedge.Service
	queue   admissionQueue
	stats   ServiceStats

	routes    []*route      // that lead here
	stallNext time.Duration // when Stall is worked out again
	lastID    uint32        // of an endpoint
	latency   lb.Recent     // of the application, for LOAD
}

// stallEvery is how often the threshold of a stall follows the latency.
const stallEvery = 100 * time.Millisecond

// endpoint is what the core keeps beside an lb.Endpoint, in its Ext.
type endpoint struct {
	id       uint32 // within the service
	lb       *lb.Endpoint
	protocol string
	streams  streamAccess
	up       upstream
	stats    EndpointStats
}

// connector makes the upstreams of one protocol on one loop.
type connector interface {
	upstream(s *service, e *endpoint) upstream
}

// connection is how a loop connects to endpoints that speak a protocol.
type connection struct {
	connector
	streams streamAccess
	opaque  bool // a service of the protocol takes streams of bytes, and no requests
}

// connectors are those of one loop, by the protocol's name. The entry of the empty name
// is for endpoints whose protocol is not known.
type connectors map[string]connection

func (c connectors) of(proto string) connection {
	if by, ok := c[proto]; ok {
		return by
	}
	return c[""]
}

// streamAccess is how a stream reaches an endpoint.
type streamAccess uint8

const (
	streamPlain streamAccess = iota // by a plain connection
	streamLink                      // by a connection to a sidecar's link port, which expects the preface of a stream
	streamNone                      // not at all
)

// opaque reports whether the service takes streams of bytes, and no requests.
func (s *service) opaque() bool { return s.speaks[s.cfg.Protocol].opaque }

func newService(w *shard, zone string, speaks connectors, m member) *service {
	s := &service{
		w: w, log: w.log.apart(), speaks: speaks, shared: m.sharedService,
		hedging: hedge.NewService(w.shared.loops),
	}
	s.queue.oldest.Store(neverQueued)
	s.queue.grant.Do = s.giveOut
	s.queue.post = func() {
		s.queue.granted++
		s.giveOut()
	}
	s.set.Zone = zone
	s.tune(m)
	return s
}

// apply takes over a snapshot unless a newer one has been applied. Endpoints
// that stay keep their connections and history; those that go serve what they
// carry to its end.
// The targets are those of the snapshot that this process uses.
func (s *service) apply(snap *registry.Snapshot, targets []lb.Target, own map[string]*atomic.Int32) {
	if snap.Version <= s.version {
		return
	}
	s.version = snap.Version
	defer s.known.Store(true)
	_, removed := s.set.Update(targets)
	for _, e := range removed {
		e.Ext.(*endpoint).up.retire()
	}
	for i := range snap.Endpoints {
		e := s.set.Lookup(snap.Endpoints[i].Addr)
		if e == nil { // not in the subset
			continue
		}
		e.CountIn(own[e.Addr])
		s.connect(e, cmp.Or(snap.Endpoints[i].Protocol, s.cfg.Protocol))
	}
}

// connect gives an endpoint the upstream for its protocol, unless it has it.
func (s *service) connect(e *lb.Endpoint, proto string) {
	if old, ok := e.Ext.(*endpoint); ok {
		if old.protocol == proto {
			return
		}
		old.up.retire()
	}
	s.lastID++
	by := s.speaks.of(proto)
	target := &endpoint{id: s.lastID, lb: e, protocol: proto, streams: by.streams}
	target.up = by.upstream(s, target)
	e.Ext = target
}

// pick chooses the endpoint of a primary or a retry. A retry may go where it
// has been when there is nowhere else, but rather to an endpoint that refused a
// hedge than to the one in failed, where the latest attempt came to nothing.
func (s *service) pick(now time.Duration, tried, failed []*lb.Endpoint) *lb.Endpoint {
	if now >= s.stallNext {
		s.stallNext = now + stallEvery
		s.refreshStall(now)
	}
	if ep := s.set.Pick(now, s.w.rnd, tried); ep != nil || len(tried) == 0 {
		return ep
	}
	if ep := s.set.Pick(now, s.w.rnd, failed); ep != nil {
		return ep
	}
	return s.set.Pick(now, s.w.rnd, nil)
}

func (s *service) refreshStall(now time.Duration) {
	var st lb.Stall
	for _, r := range s.routes {
		st.After = max(st.After, r.hedging.Estimator.StallAfter(now, &r.hedging.Policy))
		st.Probe = max(st.Probe, r.hedging.Delay(now))
	}
	s.set.Stall = st
}

// observe notes that the application has answered, and how long that took; 0: it
// tells nothing.
func (s *service) observe(now, latency time.Duration) {
	s.shared.lastAnswer.Store(int64(now))
	if latency > 0 {
		s.latency.Add(now, latency)
	}
}

// load is what this sidecar tells its consumers about the service.
func (s *service) load() lb.Load {
	l := lb.Load{
		Pending:     int(s.shared.pending.Load()),
		Queued:      int(s.shared.slots.queued.Load()),
		Latency:     s.latency.Mean(),
		SinceAnswer: -1,
	}
	if last := time.Duration(s.shared.lastAnswer.Load()); last != 0 {
		l.SinceAnswer = max(0, s.w.loop.Now()-last)
	}
	return l
}
