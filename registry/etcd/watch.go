package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
)

// Watch implements registry.Watcher. The first snapshot comes with the first response of etcd,
// or from the cache if etcd does not respond within a second and the cache has the service. A
// service without endpoints has an empty snapshot. notify is not called after Close.
func (r *Registry) Watch(service string, notify func(*registry.Snapshot)) (stop func()) {
	return r.resolved.Watch(service, notify)
}

// Known returns what the running watches know of host names.
func (r *Registry) Known() dns.Known { return r.resolved.Known() }

// keys is the Registry as a watcher of the registered addresses, which may have host names.
type keys struct{ r *Registry }

func (k keys) Watch(service string, notify func(*registry.Snapshot)) (stop func()) {
	r := k.r
	ctx, cancel := context.WithCancel(r.tasks.Context())
	w := &watch{
		r:       r,
		ctx:     ctx,
		service: service,
		prefix:  r.servicePrefix(service),
		notify:  notify,
		view:    newView(r.opt.LeaseTTL, r.opt.Grace),
		count:   registry.NewCount(&r.tally),
	}
	if !r.tasks.Go(w.run) {
		cancel()
	}
	return cancel
}

// watch follows one service for one caller. The goroutine of run owns all fields.
type watch struct {
	r       *Registry
	ctx     context.Context // ends with stop and with the Registry
	service string
	prefix  string
	notify  func(*registry.Snapshot)

	view  *view
	last  *registry.Snapshot  // the last delivered snapshot; nil means none
	at    mark                // mark of the last list; the zero mark means none
	pos   position            // position of the content of view
	seen  int64               // revision up to which view is complete, unless it is full; never above that of pos
	full  bool                // since the last list, a key did not fit into view
	bad   map[string]struct{} // keys with a value that can't be used, at most maxBad; nil means none
	count *registry.Count

	breaks uint64 // connections to etcd that had ended before the last list
}

var errLost = errors.New("etcd has lost its data")

// maxBad limits the keys with bad values that are counted and logged.
const maxBad = 1024

func (w *watch) run() {
	defer w.count.End()
	cached, ok := w.loadCache()
	timeout := requestTimeout
	if ok {
		timeout = coldWait
	}
	restarts(w.ctx, func() error {
		err := w.list(timeout)
		timeout = requestTimeout
		if err == nil {
			err = w.follow()
		} else if ok && w.last == nil {
			w.deliver(cached)
		}
		return err
	}, func(err error) { w.r.log.Debug("watch of a service restarts", "service", w.service, "reason", err) })
}

func (w *watch) loadCache() (*registry.Snapshot, bool) {
	rec, ok := w.r.cache.Load(w.service)
	if !ok || rec.Origin != w.r.origin {
		return nil, false
	}
	w.pos = position{cluster: rec.Cluster, term: rec.Term, revision: rec.Revision}
	w.view.current = rec.Endpoints
	return registry.NewSnapshot(w.service, registry.SourceCache, rec.Changed, slices.Clone(rec.Endpoints)), true
}

func (w *watch) list(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(w.ctx, timeout)
	defer cancel()
	client, err := w.r.await(ctx)
	if err != nil {
		return err
	}
	select {
	case w.r.lists <- struct{}{}:
		defer func() { <-w.r.lists }()
	case <-ctx.Done():
		return ctx.Err()
	}
	w.breaks = w.r.breaks.Load()
	m := w.r.position.mark()
	resp, err := client.Get(ctx, w.prefix, clientv3.WithPrefix(), clientv3.WithLimit(2*registry.MaxEndpoints))
	if err != nil {
		return err
	}
	w.r.stats.lists.Add(1)
	w.listed(m, resp)
	return nil
}

func (w *watch) listed(m mark, resp *clientv3.GetResponse) {
	live, full := make(map[string]entry, len(resp.Kvs)), resp.More
	told := w.bad
	w.bad = nil
	for _, kv := range resp.Kvs {
		e, ok := w.decode(kv, told)
		switch {
		case ok && len(live) < registry.MaxEndpoints:
			live[string(kv.Key)] = e
		case ok:
			full = true
		}
	}
	if full {
		w.r.log.Warn("service has too many endpoints; some are ignored", "service", w.service, "limit", registry.MaxEndpoints)
	}
	after := w.r.answered(m, resp.Header, m.epoch == w.at.epoch && w.rewritten(live))
	lost := after.epoch != w.at.epoch
	if w.at.lost == nil { // the first list: only the cache has an earlier state
		lost = positionOf(resp.Header).lostSince(w.pos)
		if !lost && w.last == nil {
			w.view.current = nil // etcd responds: the cache is not needed
		}
	}
	w.at, w.pos, w.seen, w.full = after, positionOf(resp.Header), resp.Header.Revision, full
	w.view.replace(live, lost, time.Now())
}

// rewritten reports whether live can't follow from the previous state: a key has a revision
// that was seen before, but the key did not have it then. An etcd that lost its data may
// already be past its former revision.
func (w *watch) rewritten(live map[string]entry) bool {
	for key, e := range live {
		if e.revision > w.seen {
			continue
		}
		before, known := w.view.live[key]
		if known && before.revision != e.revision || !known && !w.full {
			return true
		}
	}
	return false
}

// follow delivers the result of list and each later change, until the watch breaks.
func (w *watch) follow() error {
	timer := time.NewTimer(time.Hour) // any time, until settle sets it
	defer timer.Stop()
	w.settle(timer)

	return w.r.observe(w.ctx, &observation{
		key: w.prefix, opts: []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(w.pos.revision + 1), clientv3.WithProgressNotify()},
		breaks: w.breaks, lost: w.at.lost, timer: timer.C, apply: w.apply, settle: func() { w.settle(timer) },
	})
}

func ended(resp *clientv3.WatchResponse, ok bool) error {
	if err := resp.Err(); err != nil || ok {
		return err
	}
	return errors.New("watch ended")
}

func (w *watch) apply(resp *clientv3.WatchResponse) {
	w.pos = positionOf(&resp.Header)
	w.r.position.saw(w.at.epoch, w.pos)
	for _, ev := range resp.Events {
		w.seen = max(w.seen, ev.Kv.ModRevision)
		key := string(ev.Kv.Key)
		e, ok := entry{}, false
		if ev.Type == mvccpb.PUT {
			e, ok = w.decode(ev.Kv, w.bad)
		}
		_, known := w.view.live[key]
		switch {
		case !ok:
			w.view.remove(key)
			if ev.Type == mvccpb.DELETE {
				delete(w.bad, key)
			}
		case known || len(w.view.live) < registry.MaxEndpoints:
			w.view.put(key, e)
		default:
			w.full = true
		}
	}
}

// decode decodes one key. An invalid value is ignored and counted. It is logged unless the key is in told.
func (w *watch) decode(kv *mvccpb.KeyValue, told map[string]struct{}) (entry, bool) {
	key := string(kv.Key)
	if nested(w.prefix, key) {
		return entry{}, false
	}
	endpoint, err := decode(kv.Value, w.r.opt.Protocols)
	if err == nil {
		delete(w.bad, key)
		return entry{endpoint: endpoint, revision: kv.ModRevision}, true
	}
	if len(w.bad) == maxBad {
		return entry{}, false
	}
	if _, isTold := told[key]; !isTold {
		w.r.log.Warn("value in etcd is invalid, ignored", "key", key, "error", err)
	}
	if w.bad == nil {
		w.bad = make(map[string]struct{})
	}
	w.bad[key] = struct{}{}
	return entry{}, false
}

// settle delivers a snapshot if the endpoints have changed, and sets timer to the time when
// they may change without an event.
func (w *watch) settle(timer *time.Timer) {
	now := time.Now()
	changed, wake := w.view.settle(now)
	w.count.Doubt(w.view.kept())
	w.count.SetUnusable(len(w.bad))
	if !wake.IsZero() {
		timer.Reset(wake.Sub(now))
	}
	fresh := w.last == nil || w.last.Source == registry.SourceCache && !w.view.holding()
	if !changed && !fresh {
		return
	}
	at := now
	if !changed && w.last != nil {
		at = w.last.Changed // the same endpoints, now confirmed by etcd
	}
	endpoints := w.view.current
	w.deliver(registry.NewSnapshot(w.service, registry.SourceLive, at, endpoints))
	w.r.cache.Store(registry.Record{
		Service:   w.service,
		Origin:    w.r.origin,
		Cluster:   w.pos.cluster,
		Term:      w.pos.term,
		Revision:  w.pos.revision,
		Changed:   at,
		Endpoints: endpoints,
	})
}

func (w *watch) deliver(s *registry.Snapshot) {
	if w.ctx.Err() != nil {
		return
	}
	w.last = s
	w.notify(s)
}
