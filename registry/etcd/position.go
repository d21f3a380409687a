package etcd

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/stats"
)

// Why watches and registrations begin again.
var (
	errLost   = errors.New("etcd has lost its data")
	errBroken = errors.New("a connection to etcd broke")
	errRoom   = errors.New("a service with too many keys has room for more of them")
	errBehind = errors.New("etcd has responded from an earlier revision than before")
)

// position is the progress of etcd: within one cluster, the revision and the raft term never
// decrease. The zero value means unknown.
type position struct {
	cluster, term uint64
	revision      int64
}

func positionOf(h *pb.ResponseHeader) position {
	return position{cluster: h.ClusterId, term: h.RaftTerm, revision: h.Revision}
}

// lostSince reports whether an etcd that was at floor and is at p now has lost data in
// between. The cluster id alone is not enough: a server that starts without data but with the
// same flags has the same id.
func (p position) lostSince(floor position) bool {
	return floor != position{} && (p.cluster != floor.cluster || p.revision < floor.revision || p.term < floor.term)
}

// tracker follows etcd's position over all responses to a process, and informs all watches and
// registrations when etcd has lost its data. etcd itself does not: a watch that resumes on an
// empty server at a later revision gets no events until the server reaches that revision.
type tracker struct {
	mu  sync.Mutex
	now mark
}

// mark is the state of the tracker at one moment, such as before a request.
type mark struct {
	floor   position
	epoch   uint64        // grows with each loss of data
	doubted bool          // the last response was behind floor
	lost    chan struct{} // closed when the epoch ends
}

func (t *tracker) init() { t.now.lost = make(chan struct{}) }

func (t *tracker) mark() mark {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}

// doubts reports whether the response to a request sent at m must be ignored, because its revision is lower than one that was seen
// before. A member of etcd that was paused may respond so once, before etcd 3.6.9, although the request is linearizable. If the
// response to a later request is behind, too, etcd has lost its data.
func (t *tracker) doubts(m mark, h *pb.ResponseHeader) bool {
	p := positionOf(h)
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.epoch != t.now.epoch {
		return false
	}
	isBehind := p.cluster == m.floor.cluster && p.term >= m.floor.term && p.revision < m.floor.revision
	isConfirmed := m.doubted && t.now.doubted
	t.now.doubted = isBehind
	return isBehind && !isConfirmed
}

// answered processes the header of a linearizable response to a request sent at m, and returns
// the mark after it. Only such responses can be compared, because an earlier request may get a
// response from an earlier revision. rewritten means that the response shows a loss of data,
// whatever the header says.
func (t *tracker) answered(m mark, h *pb.ResponseHeader, rewritten bool) (after mark, lostNow bool) {
	p := positionOf(h)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case m.epoch != t.now.epoch:
	case rewritten || p.lostSince(m.floor):
		close(t.now.lost)
		t.now = mark{floor: p, epoch: m.epoch + 1, lost: make(chan struct{})}
		lostNow = true
	default:
		t.now.floor.advance(p)
	}
	return t.now, lostNow
}

// saw processes the position in an event of a watch, a lower limit for that of etcd.
func (t *tracker) saw(epoch uint64, p position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if epoch == t.now.epoch {
		t.now.floor.advance(p)
	}
}

// advance makes p the later of p and q, which are positions in one cluster.
func (p *position) advance(q position) {
	if p.cluster == 0 {
		*p = q
	}
	p.term, p.revision = max(p.term, q.term), max(p.revision, q.revision)
}

// probe requests etcd's position until the Registry closes: every third of a lease, and at
// least every three seconds. It is one small read per process.
func (r *Registry) probe() {
	every := min(r.opt.LeaseTTL/3, requestTimeout)
	for {
		pause := jitter(every)
		switch err := r.probeOnce(); {
		case errors.Is(err, errBehind):
			pause = minRetry
		case err != nil && r.tasks.Context().Err() == nil:
			r.fail(err)
		}
		if !sleep(r.tasks.Context(), pause) {
			return
		}
	}
}

func (r *Registry) probeOnce() error {
	ctx, cancel := context.WithTimeout(r.tasks.Context(), requestTimeout)
	defer cancel()
	m := r.position.mark()
	// No such key exists, but every user that may watch the prefix may read it.
	resp, err := r.client.Get(ctx, r.opt.Prefix+"/", clientv3.WithLimit(1))
	if err != nil {
		return err
	}
	if r.position.doubts(m, resp.Header) {
		r.succeed()
		return errBehind
	}
	r.answered(m, resp.Header, false)
	return nil
}

func (r *Registry) answered(m mark, h *pb.ResponseHeader, rewritten bool) mark {
	after, lost := r.position.answered(m, h, rewritten)
	r.succeed()
	if lost {
		r.stats.losses.Add(1)
		r.log.Warn("etcd has lost its data; known endpoints are kept until their nodes have registered again",
			"before", m.floor.revision, "now", h.Revision, "kept_at_most", (r.opt.LeaseTTL + r.opt.Grace).Round(time.Millisecond))
	}
	return after
}

// breaks counts the connections to etcd that have ended. It is a stats.Handler of gRPC.
type breaks struct{ atomic.Uint64 }

// HandleConn implements stats.Handler.
func (b *breaks) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnEnd); ok {
		b.Add(1)
	}
}

// HandleRPC implements stats.Handler.
func (b *breaks) HandleRPC(context.Context, stats.RPCStats) {}

// TagConn implements stats.Handler.
func (b *breaks) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// TagRPC implements stats.Handler.
func (b *breaks) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
