package etcd

import (
	"context"
	"errors"
	"log/slog"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Client returns the client of the connection, once it is made. It is the Registry's: the caller must not close it.
func (r *Registry) Client(ctx context.Context) (*clientv3.Client, error) { return r.await(ctx) }

// RequestError is why etcd has not done what was asked.
type RequestError struct {
	Code string // one of the codes of registry
	Err  error
}

func (e *RequestError) Error() string { return "etcd: " + e.Code + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *RequestError) Unwrap() error { return e.Err }

// Explain adds to the error of a request its code, and why it waited in vain for a connection.
func (r *Registry) Explain(err error) error {
	if now := r.contact.Condition(); now.Err != nil && errors.Is(err, context.DeadlineExceeded) {
		return &RequestError{now.Code, now.Err} // what the connection has waited for
	}
	err = r.reason.explain(err)
	return &RequestError{codeOf(err), err}
}

// Value is the value of a key.
type Value struct {
	Data     []byte // the receiver may keep it, and must not change it
	Revision int64  // of etcd, at which the value was put; 0 means that there is no such key
}

// Follow calls notify with the value of a key: first once etcd has responded, then after each change. A key that is
// missing is a value of revision 0, also if etcd has lost its data. Several changes at once may be one call. notify is
// called on one goroutine, and not after Close; a call may still run when stop returns.
func (r *Registry) Follow(key string, notify func(Value)) (stop func()) {
	ctx, cancel := context.WithCancel(r.tasks.Context())
	f := &follower{r: r, ctx: ctx, key: key, notify: notify}
	if !r.tasks.Go(f.run) {
		cancel()
	}
	return cancel
}

// follower follows one key. The goroutine of run owns all fields.
type follower struct {
	r      *Registry
	ctx    context.Context // ends with stop and with the Registry
	key    string
	notify func(Value)
	last   *Value // that notify had; nil means none
}

func (f *follower) run() {
	restarts(f.ctx, f.follow, func(err error) { f.r.log.Debug("watch of a key restarts", "key", f.key, "reason", err) })
}

// follow reads the value, and then each later one, until the watch breaks.
func (f *follower) follow() error {
	client, err := f.r.await(f.ctx)
	if err != nil {
		return err
	}
	breaks, m := f.r.breaks.Load(), f.r.position.mark()
	resp, err := f.get(client)
	if err != nil {
		return err
	}
	after := f.r.answered(m, resp.Header, false)
	now := Value{}
	for _, kv := range resp.Kvs {
		now = Value{kv.Value, kv.ModRevision}
	}
	f.deliver(now)
	return f.r.observe(f.ctx, &observation{
		key: f.key, opts: []clientv3.OpOption{clientv3.WithRev(resp.Header.Revision + 1)},
		breaks: breaks, lost: after.lost, settle: func() {}, apply: func(resp *clientv3.WatchResponse) {
			f.r.position.saw(after.epoch, positionOf(&resp.Header))
			for _, ev := range resp.Events {
				now = Value{}
				if ev.Type == mvccpb.PUT {
					now = Value{ev.Kv.Value, ev.Kv.ModRevision}
				}
			}
			f.deliver(now)
		},
	})
}

func (f *follower) get(client *clientv3.Client) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(f.ctx, requestTimeout)
	defer cancel()
	return client.Get(ctx, f.key)
}

// deliver calls notify, unless it had the value before.
func (f *follower) deliver(v Value) {
	if f.ctx.Err() != nil || f.last != nil && f.last.Revision == v.Revision && string(f.last.Data) == string(v.Data) {
		return
	}
	f.last = &v
	f.notify(v)
}

// Publication is a value that a process keeps at a key, under a lease of LeaseTTL. Unlike a registration it logs only
// failures. If another process puts the key, the key belongs to that process's lease until the next Set.
type Publication struct{ h *handle }

// Publish begins a publication. The caller must Close it. r must not be closed yet.
func (r *Registry) Publish(key, value string) *Publication {
	h := r.newHandle()
	h.key, h.value, h.said = key, value, slog.LevelDebug
	h.start()
	return &Publication{h}
}

// Set changes the value.
func (p *Publication) Set(value string) { p.h.set(value) }

// Close removes the key if it is still under this process's lease. After an error the lease expires.
func (p *Publication) Close(ctx context.Context) error { return p.h.Close(ctx) }
