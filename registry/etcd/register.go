package etcd

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/pursuit"
)

// Register implements registry.Registrar.
//
// The key is put under a lease of its own. A put on an existing key moves it from its lease to
// the new one. So a node that restarts takes over the key of its predecessor: neither the end
// of the predecessor's lease nor its drain removes the key. For the same reason, this package
// never deletes a key.
func (r *Registry) Register(reg registry.Registration) registry.Handle {
	h := r.newHandle()
	h.service = reg.Service
	var err error
	if h.key, h.value, err = r.entry(&reg); err != nil {
		r.log.Error("registration is invalid", "service", reg.Service, "error", err)
		h.Fail(err)
		return h
	}
	h.start()
	return h
}

// newHandle returns a handle without a key and a value, whose goroutine does not run yet.
func (r *Registry) newHandle() *handle {
	return &handle{Pursuit: pursuit.New(r.tasks.Context(), ErrClosed), r: r, changed: make(chan struct{}, 1)}
}

// start starts the goroutine, unless the Registry is closed.
func (h *handle) start() {
	if !h.r.tasks.Go(func() { h.Run(h) }) {
		h.End()
	}
}

// errKey means that a changed registration would have another key.
var errKey = errors.New("registry/etcd: the change is for another service, node or address")

// handle is one registration.
type handle struct {
	*pursuit.Pursuit
	r       *Registry
	service string     // empty for a value that is no registration
	said    slog.Level // of what the log says after a success
	key     string
	changed chan struct{} // value has changed; capacity 1

	// lease may hold the key; 0 means that no lease does. It is dropped only when etcd reports
	// that it is gone: whatever the outcome of a request that timed out, revoking the lease
	// removes the key. The goroutine owns it, and pause.
	lease clientv3.LeaseID
	pause retry

	mu    sync.Mutex
	value string
}

// Change implements registry.Handle.
func (h *handle) Change(reg registry.Registration) {
	key, value, err := h.r.entry(&reg)
	if err == nil && key != h.key {
		err = errKey
	}
	if err != nil {
		h.r.log.Error("registration change is invalid, ignored", "service", h.service, "key", h.key, "error", err)
		return
	}
	h.set(value)
}

// set changes the value.
func (h *handle) set(value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.value == value {
		return
	}
	h.value = value
	h.Renew()
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

func (h *handle) failed(op context.Context, err error) {
	if op.Err() != nil {
		return // interrupted
	}
	if h.Err() == nil {
		what := "registration failed, will retry"
		if h.service == "" {
			what = "value not put in etcd, will retry"
		}
		h.r.log.Warn(what, "service", h.service, "key", h.key, "error", err)
	}
	h.Settle(op, registry.Pending, err)
}

// Keep implements pursuit.Registrant.
func (h *handle) Keep(op context.Context) {
	var lease keptLease
	gone, stop := h.watchRemovals(op)
	defer stop()
	for op.Err() == nil {
		if err := h.keepRegistered(op, &lease, gone); err != nil {
			h.failed(op, h.r.reason.explain(err))
			h.pause.wait(op)
		}
	}
}

// Pause implements pursuit.Registrant.
func (h *handle) Pause(op context.Context) { h.pause.wait(op) }

// keptLease is a lease that is kept alive, whatever is put under it: an etcd without space refuses
// puts, but renews leases.
type keptLease struct {
	id    clientv3.LeaseID
	alive <-chan struct{} // closed when the lease is no longer kept alive
}

// keep keeps id alive until op ends. 0 means no lease.
func (k *keptLease) keep(op context.Context, r *Registry, id clientv3.LeaseID) {
	for k.id == id && k.alive != nil {
		select {
		case _, ok := <-k.alive:
			if !ok {
				k.alive = nil
			}
			continue
		default:
		}
		return
	}
	if id != 0 {
		k.id, k.alive = id, r.keepAlive(op, id)
	}
}

// keepRegistered puts the key, and keeps it until the registration breaks or op ends. It returns nil if another
// value must be put under the same lease.
func (h *handle) keepRegistered(op context.Context, lease *keptLease, gone <-chan int64) error {
	client, err := h.r.await(op)
	if err != nil {
		return err
	}
	lease.keep(op, h.r, h.lease)
	select {
	case <-h.changed: // cleared before put reads the value
	default:
	}
	lost := h.r.position.mark().lost
	revision, err := h.put(op, client)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) { // an old lease
		h.lease = 0
		revision, err = h.put(op, client)
	}
	if err != nil {
		return err
	}
	lease.keep(op, h.r, h.lease)
	h.Settle(op, registry.Registered, nil)
	h.r.log.Log(op, h.said, "registered", "service", h.service, "key", h.key)
	return h.awaitBreak(op, revision, lease, lost, gone)
}

// awaitBreak returns when the key, put at a revision, must be put again. The error is the reason; nil means that
// the value has changed. An operator may have removed the key, the drain of a twin, or an etcd that ended all
// leases at once.
func (h *handle) awaitBreak(op context.Context, revision int64, lease *keptLease, lost <-chan struct{}, gone <-chan int64) error {
	for {
		select {
		case <-op.Done():
			return op.Err()
		case <-h.changed:
			return nil
		case _, ok := <-lease.alive:
			if !ok {
				return errors.New("lease is not kept alive")
			}
			h.pause.reset()
		case at := <-gone:
			if at > revision {
				return errors.New("key was removed")
			}
		case <-lost:
			return errLost
		}
	}
}

// watchRemovals watches the key until stop is called. gone has the last revision that is known at which etcd did not have the key.
func (h *handle) watchRemovals(op context.Context) (gone <-chan int64, stop func()) {
	ctx, cancel := context.WithCancel(op)
	s := &removals{r: h.r, gone: make(chan int64, 1)}
	return s.gone, h.r.watches.add(ctx, cancel, s, h.key, "")
}

// removals are those of a key: the subject of a watch.
type removals struct {
	r    *Registry
	gone chan int64 // see watchRemovals
}

// unlisted implements subject.
func (s *removals) unlisted(time.Time, bool) (wake time.Time) { return time.Time{} }

// listed implements subject.
func (s *removals) listed(m, _ mark, resp *clientv3.GetResponse) (after mark) {
	if len(resp.Kvs) == 0 {
		s.note(resp.Header.Revision)
	}
	return s.r.answered(m, resp.Header, false)
}

// changed implements subject.
func (s *removals) changed(resp *pb.WatchResponse) {
	for _, ev := range resp.Events {
		if ev.Type == mvccpb.DELETE {
			s.note(ev.Kv.ModRevision)
		}
	}
}

// note notes a revision at which the key was missing.
func (s *removals) note(revision int64) {
	select {
	case <-s.gone: // an earlier one
	default:
	}
	s.gone <- revision
}

// settle implements subject.
func (s *removals) settle(time.Time) (wake time.Time, lacksList bool) { return time.Time{}, false }

// end implements subject.
func (s *removals) end() {}

// Leave implements pursuit.Registrant: the lease is kept alive.
func (h *handle) Leave(op context.Context) {
	if h.lease != 0 {
		for range h.r.keepAlive(op, h.lease) { // until the channel is closed
		}
	}
	<-op.Done()
}

// put writes the key, under the present lease or a new one.
func (h *handle) put(ctx context.Context, client *clientv3.Client) (revision int64, err error) {
	err = h.Put(func() error {
		revision, err = h.putUnder(ctx, client)
		return err
	})
	return revision, err
}

func (h *handle) putUnder(ctx context.Context, client *clientv3.Client) (revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if h.lease == 0 {
		resp, err := client.Grant(ctx, h.r.ttl)
		if err != nil {
			return 0, err
		}
		h.lease = resp.ID
	}
	h.mu.Lock()
	value := h.value
	h.mu.Unlock()
	resp, err := client.Put(ctx, h.key, value, clientv3.WithLease(h.lease))
	if err != nil {
		return 0, err
	}
	return resp.Header.Revision, nil
}

// Remove implements pursuit.Registrant: it ends the lease, and so removes the key if that is still under the lease.
func (h *handle) Remove(op context.Context) error {
	if h.lease == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(op, requestTimeout)
	defer cancel()
	began := time.Now()
	if _, err := h.r.client.Revoke(ctx, h.lease); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return h.r.reason.explain(err)
	}
	h.lease = 0
	h.pause.reset()
	h.r.log.Log(ctx, h.said, "withdrawn", "service", h.service, "key", h.key, "took", time.Since(began))
	return nil
}
