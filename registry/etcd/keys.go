package etcd

import (
	"context"
	"errors"
	"log/slog"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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
// called on the goroutine of all watches, so it must not block, and not after Close. A call may still run when stop
// returns.
func (r *Registry) Follow(key string, notify func(Value)) (stop func()) {
	ctx, cancel := context.WithCancel(r.tasks.Context())
	return r.watches.add(ctx, cancel, &follower{r: r, ctx: ctx, notify: notify}, key, "")
}

// follower is what is known of the value of one key, for one caller: the subject of a watch. The goroutine of watches owns all
// fields.
type follower struct {
	r      *Registry
	ctx    context.Context // ends with the watch
	notify func(Value)
	now    Value
	last   *Value // that notify had; nil means none
}

// unlisted implements subject.
func (f *follower) unlisted(time.Time, bool) (wake time.Time) { return time.Time{} }

// listed implements subject.
func (f *follower) listed(m, _ mark, resp *clientv3.GetResponse) (after mark) {
	f.now = Value{}
	for _, kv := range resp.Kvs {
		f.now = Value{kv.Value, kv.ModRevision}
	}
	return f.r.answered(m, resp.Header, false)
}

// changed implements subject.
func (f *follower) changed(resp *pb.WatchResponse) {
	for _, ev := range resp.Events {
		f.now = Value{}
		if ev.Type == mvccpb.PUT {
			f.now = Value{ev.Kv.Value, ev.Kv.ModRevision}
		}
	}
}

// settle implements subject: it calls notify, unless it had the value before.
func (f *follower) settle(time.Time) (wake time.Time, lacksList bool) {
	isNews := f.last == nil || f.last.Revision != f.now.Revision || string(f.last.Data) != string(f.now.Data)
	if f.ctx.Err() == nil && isNews {
		last := f.now
		f.last = &last
		f.notify(last)
	}
	return time.Time{}, false
}

// end implements subject.
func (f *follower) end() {}

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
