// Package record records the history of an etcd and of sidecars, for package history.
//
// A Recorder watches etcd on its own: it shares no code with the sidecars' watcher. It begins at a known revision, and records each
// change once, in the order of revisions, whatever member of etcd it is connected to. Compaction may take changes from it that it has not
// had: then it lists the keys again, and says of which revisions it knows no more than the result.
package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/remora-proxy/remora/lab/history"
)

// Log is where parts of a history are written, a line each. Its methods may be called from any goroutine.
type Log struct {
	mu  sync.Mutex
	out io.Writer
	err error // of the first write that has failed
}

// NewLog returns a Log that writes to out.
func NewLog(out io.Writer) *Log { return &Log{out: out} }

// Put writes a part of a history: see history.Marshal.
func (l *Log) Put(part any) {
	text := history.Marshal(part)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.out.Write(text); err != nil && l.err == nil {
		l.err = err
	}
}

// Err returns why a part was not written, or nil.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

const (
	tickKey        = "/history/tick"        // that the recorder puts, outside the sidecars' prefix
	tickEvery      = 100 * time.Millisecond // between two ticks
	pause          = 50 * time.Millisecond  // before a request is repeated
	requestTimeout = 2 * time.Second
)

// Recorder records the changes of the keys of services in etcd.
type Recorder struct {
	client *clientv3.Client
	prefix string // with a "/" at its end
	log    *Log
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu    sync.Mutex
	heard int64         // all changes up to this revision are recorded
	news  chan struct{} // closed when heard grows

	// The goroutine that follows etcd owns the rest.
	keys map[string]found
}

// found is what the recorder knows of a key.
type found struct {
	revision         int64
	service, address string
}

// Start begins to record the keys below prefix, such as "/remora/services", and returns once the first are recorded.
func Start(ctx context.Context, client *clientv3.Client, prefix string, log *Log) (*Recorder, error) {
	r := &Recorder{client: client, prefix: strings.TrimSuffix(prefix, "/") + "/", log: log, keys: make(map[string]found), news: make(chan struct{})}
	if _, err := r.tickUntil(ctx); err != nil {
		return nil, err
	}
	if err := r.list(ctx); err != nil {
		return nil, fmt.Errorf("the first list: %w", err)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.cancel = cancel
	r.tasks.Go(func() { r.follow(running) })
	r.tasks.Go(func() { r.tick(running) })
	return r, nil
}

// Finish ends the recording once all changes before the call are recorded.
func (r *Recorder) Finish(ctx context.Context) error {
	defer r.tasks.Wait()
	defer r.cancel()
	last, err := r.tickUntil(ctx)
	if err != nil {
		return err
	}
	for {
		r.mu.Lock()
		heard, news := r.heard, r.news
		r.mu.Unlock()
		if heard >= last {
			return r.log.Err()
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("changes up to revision %d of %d are recorded: %w", heard, last, ctx.Err())
		}
	}
}

// tick makes revisions at known times.
func (r *Recorder) tick(ctx context.Context) {
	for every := time.NewTicker(tickEvery); ; {
		_, _ = r.tickOnce(ctx) // the next one will do
		select {
		case <-every.C:
		case <-ctx.Done():
			every.Stop()
			return
		}
	}
}

// tickUntil makes a revision, whatever time it takes.
func (r *Recorder) tickUntil(ctx context.Context) (revision int64, err error) {
	for {
		revision, err = r.tickOnce(ctx)
		if err == nil {
			return revision, nil
		}
		if !sleep(ctx) {
			return 0, errors.Join(ctx.Err(), err)
		}
	}
}

func (r *Recorder) tickOnce(ctx context.Context) (revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	sent := time.Now()
	resp, err := r.client.Put(ctx, tickKey, "")
	if err != nil {
		return 0, err
	}
	r.log.Put(&history.Tick{Revision: resp.Header.Revision, Sent: sent, Acked: time.Now()})
	return resp.Header.Revision, nil
}

// follow records changes until ctx ends.
func (r *Recorder) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if isCompacted := r.watch(ctx); isCompacted {
			_ = r.list(ctx) // if it fails, the next watch is compacted, too
		}
		sleep(ctx)
	}
}

// watch records changes until the watch ends. isCompacted reports whether it can't go on.
func (r *Recorder) watch(ctx context.Context) (isCompacted bool) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for resp := range r.client.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(r.heard+1), clientv3.WithPrevKV()) {
		if resp.Err() != nil {
			return resp.CompactRevision != 0
		}
		r.take(resp.Events, time.Now())
	}
	return false
}

// take records events. Events that the recorder has already are left out: a member of etcd that was behind may send them again.
func (r *Recorder) take(events []*clientv3.Event, now time.Time) {
	before := r.heard
	for _, ev := range events {
		if ev.Kv.ModRevision <= before {
			continue
		}
		if key := string(ev.Kv.Key); strings.HasPrefix(key, r.prefix) {
			r.change(key, ev, now)
		}
	}
	if n := len(events); n > 0 {
		r.advance(events[n-1].Kv.ModRevision)
	}
}

func (r *Recorder) change(key string, ev *clientv3.Event, now time.Time) {
	c := &history.Change{Revision: ev.Kv.ModRevision, Key: key, Heard: now, Deleted: ev.Type == mvccpb.DELETE}
	switch {
	case ev.PrevKv != nil:
		c.Previous = ev.PrevKv.ModRevision
	case c.Deleted || !ev.IsCreate():
		c.Previous = history.Unknown // compacted
	}
	if c.Deleted {
		was := r.keys[key]
		c.Service, c.Address = was.service, was.address
		delete(r.keys, key)
	} else {
		r.keys[key] = r.found(ev.Kv)
		c.Service, c.Address = r.keys[key].service, r.keys[key].address
	}
	r.log.Put(c)
}

// found returns what is known of a key that was put.
func (r *Recorder) found(kv *mvccpb.KeyValue) found {
	name := strings.TrimPrefix(string(kv.Key), r.prefix)
	var value struct{ Addr string }
	_ = json.Unmarshal(kv.Value, &value) // a value that is none has no address
	return found{kv.ModRevision, name[:max(strings.LastIndex(name, "/"), 0)], value.Addr}
}

// list records how the keys have changed since the last change, or since ever.
func (r *Recorder) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := r.client.Get(ctx, r.prefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	if resp.Header.Revision < r.heard {
		return errors.New("etcd has responded from an earlier revision")
	}
	now, since := time.Now(), r.heard
	slices.SortFunc(resp.Kvs, func(a, b *mvccpb.KeyValue) int { return int(a.ModRevision - b.ModRevision) })
	live := make(map[string]bool)
	for _, kv := range resp.Kvs {
		key, next := string(kv.Key), r.found(kv)
		live[key] = true
		if r.keys[key].revision == next.revision {
			continue
		}
		r.keys[key] = next
		r.log.Put(&history.Change{Revision: next.revision, Key: key, Service: next.service, Address: next.address, Listed: true, Since: since, Heard: now})
	}
	for key, was := range r.keys {
		if live[key] {
			continue
		}
		delete(r.keys, key)
		r.log.Put(&history.Change{Revision: resp.Header.Revision, Key: key, Service: was.service, Address: was.address, Deleted: true, Listed: true, Since: since, Heard: now})
	}
	r.advance(resp.Header.Revision)
	return nil
}

// advance notes up to which revision all changes are recorded.
func (r *Recorder) advance(revision int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if revision > r.heard {
		r.heard = revision
		close(r.news)
		r.news = make(chan struct{})
	}
}

// sleep pauses before a request is repeated, and reports whether ctx is still alive.
func sleep(ctx context.Context) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// Client returns a client that notices within seconds when a member of etcd falls silent. The caller must close it.
func Client(endpoints []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(), DialTimeout: requestTimeout, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
	})
}
