package etcd

import (
	"context"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// leaseKeeper keeps a lease alive by a stream to one member of etcd. If the member is silent, the keeper opens further streams. The
// client's balancer sends each stream to the next member. The first stream that responds stays, and the others end. etcd's own
// client waits for the end of the connection to a frozen member, and the lease may end before.
//
// A stream is kept between renewals, because etcd checks the password for each new stream.
type leaseKeeper struct {
	r         *Registry
	id        clientv3.LeaseID
	alive     chan struct{} // see keepAlive
	responses chan leaseResponse
	streams   []*leaseStream // that were asked and have not failed; between renewals at most one
}

// leaseStream is a stream by which a lease is renewed.
type leaseStream struct {
	cancel context.CancelFunc
	ask    chan struct{} // has an element if etcd is to be asked again
}

// leaseResponse is what a stream has brought: a response, or its end.
type leaseResponse struct {
	of  *leaseStream
	ttl time.Duration // that the lease has now; 0 means that it is gone
	err error         // why the stream has ended
}

// The parts of a lease's time after which it is renewed, and after which a renewal that has brought no response is tried again.
const (
	renewPart = 3
	retryPart = 9
)

// keepAlive keeps a lease alive until ctx ends. alive has an element after a renewal. It is closed at the end, when the lease may
// be gone. The client must be ready.
func (r *Registry) keepAlive(ctx context.Context, id clientv3.LeaseID) (alive <-chan struct{}) {
	k := &leaseKeeper{r: r, id: id, alive: make(chan struct{}, 1), responses: make(chan leaseResponse)}
	ctx, cancel := context.WithCancel(ctx) // also ends the streams
	run := func() {
		defer close(k.alive)
		defer cancel()
		k.run(ctx)
	}
	if !r.tasks.Go(run) {
		cancel()
		close(k.alive)
	}
	return k.alive
}

// run renews the lease again and again.
func (k *leaseKeeper) run(ctx context.Context) {
	ttl := time.Duration(k.r.ttl) * time.Second
	for renewed := time.Now(); ; {
		began := time.Now()
		if ttl = k.renew(ctx, ttl/retryPart, renewed.Add(ttl)); ttl <= 0 {
			return
		}
		select {
		case k.alive <- struct{}{}:
		default:
		}
		renewed = began
		if !sleep(ctx, time.Until(renewed.Add(ttl/renewPart))) {
			return
		}
	}
}

// renew renews the lease, and returns the lease's time. It returns 0 if the lease is gone, or may be gone at the time end, or
// ctx has ended. every is how long a stream may take before another stream is tried.
func (k *leaseKeeper) renew(ctx context.Context, every time.Duration, end time.Time) (ttl time.Duration) {
	if len(k.streams) > 0 {
		k.streams[0].ask <- struct{}{}
	} else {
		k.open(ctx)
	}
	again := time.NewTicker(every)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return 0
		case now := <-again.C:
			if now.After(end) {
				return 0
			}
			k.open(ctx)
		case resp := <-k.responses:
			i := slices.Index(k.streams, resp.of)
			if i < 0 {
				continue // of an earlier renewal
			}
			if resp.err == nil {
				k.settleOn(resp.of)
				return resp.ttl
			}
			k.r.log.Debug("lease is not renewed", "lease", k.id, "error", resp.err)
			k.streams = slices.Delete(k.streams, i, i+1)
		}
	}
}

// open renews the lease by a further stream.
func (k *leaseKeeper) open(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	s := &leaseStream{cancel: cancel, ask: make(chan struct{}, 1)}
	k.streams = append(k.streams, s)
	k.r.tasks.Go(func() {
		defer cancel()
		err := k.serve(ctx, s)
		k.bring(ctx, leaseResponse{of: s, err: err})
	})
}

// settleOn ends all streams but one.
func (k *leaseKeeper) settleOn(best *leaseStream) {
	for _, s := range k.streams {
		if s != best {
			s.cancel()
		}
	}
	k.streams = append(k.streams[:0], best)
}

// serve renews the lease at once, and whenever it is asked to, until the stream ends.
func (k *leaseKeeper) serve(ctx context.Context, s *leaseStream) error {
	stream, err := pb.NewLeaseClient(k.r.client.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return err
	}
	for {
		_ = stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(k.id)}) // Recv returns the error
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		k.bring(ctx, leaseResponse{of: s, ttl: time.Duration(resp.TTL) * time.Second})
		select {
		case <-s.ask:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// bring waits until renew takes what a stream has brought.
func (k *leaseKeeper) bring(ctx context.Context, resp leaseResponse) {
	select {
	case k.responses <- resp:
	case <-ctx.Done():
	}
}
