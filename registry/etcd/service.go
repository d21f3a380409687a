package etcd

import (
	"context"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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

func (k keys) Watch(name string, notify func(*registry.Snapshot)) (stop func()) {
	r := k.r
	ctx, cancel := context.WithCancel(r.tasks.Context())
	s := &service{
		r:      r,
		ctx:    ctx,
		name:   name,
		prefix: r.servicePrefix(name),
		notify: notify,
		view:   newView(r.opt.LeaseTTL, r.opt.Grace),
		count:  registry.NewCount(&r.tally),
	}
	s.loadCache()
	return r.watches.add(ctx, cancel, s, s.prefix, clientv3.GetPrefixRangeEnd(s.prefix))
}

// service is what is known of one service, for one caller: the subject of a watch. The goroutine of watches owns it once the
// watch was added.
type service struct {
	r      *Registry
	ctx    context.Context // ends with the watch
	name   string
	prefix string
	notify func(*registry.Snapshot)

	cached *registry.Snapshot // from the cache, for a start without etcd; nil means none, or not needed
	coldAt time.Time          // when cached is delivered, if etcd has not responded

	view  *view
	last  *registry.Snapshot // the last delivered snapshot; nil means none
	pos   position           // position of the content of view
	seen  int64              // revision up to which view is complete, unless room is short; never above that of pos
	room  room
	bad   map[string]struct{} // keys with a value that can't be used, at most maxBad; nil means none
	count *registry.Count
}

// maxBad limits the keys with bad values that are counted and logged.
const maxBad = 1024

// loadCache reads the cache, before the watch begins.
func (s *service) loadCache() {
	rec, ok := s.r.cache.Load(s.name)
	if !ok || rec.Origin != s.r.origin {
		return
	}
	s.pos = position{cluster: rec.Cluster, term: rec.Term, revision: rec.Revision}
	s.view.current = rec.Endpoints
	s.cached = registry.NewSnapshot(s.name, registry.SourceCache, rec.Changed, slices.Clone(rec.Endpoints))
	s.coldAt = time.Now().Add(coldWait)
}

// unlisted implements subject: it delivers what the cache has.
func (s *service) unlisted(now time.Time, hasFailed bool) (wake time.Time) {
	switch {
	case s.cached == nil:
		return time.Time{}
	case !hasFailed && now.Before(s.coldAt):
		return s.coldAt
	}
	s.deliver(s.cached)
	s.cached = nil
	return time.Time{}
}

// listed implements subject.
func (s *service) listed(m, last mark, resp *clientv3.GetResponse) (after mark) {
	s.r.stats.lists.Add(1)
	s.cached = nil
	live := make(map[string]entry, len(resp.Kvs))
	told := s.bad
	s.bad = nil
	for _, kv := range resp.Kvs { // in the order of keys
		if e, ok := s.decode(kv, told); ok {
			live[string(kv.Key)] = e
		}
	}
	if resp.More {
		s.r.log.Warn("service has too many keys in etcd; the known ones stay, and others are ignored", "service", s.name, "limit", registry.MaxListed)
	}
	after = s.r.answered(m, resp.Header, m.epoch == last.epoch && s.rewritten(live))
	lost := after.epoch != last.epoch
	if last.lost == nil { // the first list: only the cache has an earlier state
		lost = positionOf(resp.Header).lostSince(s.pos)
		if !lost && s.last == nil {
			s.view.current = nil // etcd responds: the cache is not needed
		}
	}
	if resp.More && !lost {
		live = s.merged(live, resp.Kvs)
	}
	now := time.Now()
	s.pos, s.seen = positionOf(resp.Header), resp.Header.Revision
	s.room = room{isShort: resp.More, most: len(live), since: now}
	s.view.replace(live, lost, now)
	return after
}

// merged returns what a list that was cut says of the keys up to its last one, kvs, and the known keys beyond. Known keys go before
// others.
func (s *service) merged(listed map[string]entry, kvs []*mvccpb.KeyValue) map[string]entry {
	end := ""
	if len(kvs) > 0 {
		end = string(kvs[len(kvs)-1].Key)
	}
	all := make(map[string]entry, registry.MaxListed)
	for key, e := range s.view.live {
		if now, ok := listed[key]; ok {
			all[key] = now
		} else if key > end {
			all[key] = e
		}
	}
	for _, kv := range kvs {
		if e, ok := listed[string(kv.Key)]; ok && len(all) < registry.MaxListed {
			all[string(kv.Key)] = e
		}
	}
	return all
}

// rewritten reports whether live can't follow from the previous state: a key has a revision
// that was seen before, but the key did not have it then. An etcd that lost its data may
// already be past its former revision. Of a service with keys that did not fit nothing is said: they may have changed unseen.
func (s *service) rewritten(live map[string]entry) bool {
	if s.room.isShort {
		return false
	}
	for key, e := range live {
		if e.revision <= s.seen && s.view.live[key].revision != e.revision {
			return true
		}
	}
	return false
}

// changed implements subject.
func (s *service) changed(resp *pb.WatchResponse) {
	s.pos.advance(positionOf(resp.Header)) // a member that is behind reports its progress, too
	for _, ev := range resp.Events {
		s.seen = max(s.seen, ev.Kv.ModRevision)
		key := string(ev.Kv.Key)
		e, ok := entry{}, false
		if ev.Type == mvccpb.PUT {
			e, ok = s.decode(ev.Kv, s.bad)
		}
		_, known := s.view.live[key]
		switch {
		case !ok:
			s.view.remove(key)
			if ev.Type == mvccpb.DELETE {
				delete(s.bad, key)
			}
		case known || len(s.view.live) < registry.MaxListed:
			s.view.put(key, e)
		default:
			s.room.isShort = true
		}
	}
	s.room.most = max(s.room.most, len(s.view.live))
}

// decode decodes one key. An invalid value is ignored and counted. It is logged unless the key is in told.
func (s *service) decode(kv *mvccpb.KeyValue, told map[string]struct{}) (entry, bool) {
	key := string(kv.Key)
	if nested(s.prefix, key) {
		return entry{}, false
	}
	endpoint, err := decode(kv.Value, s.r.opt.Protocols)
	if err == nil {
		delete(s.bad, key)
		return entry{endpoint: endpoint, revision: kv.ModRevision}, true
	}
	if len(s.bad) == maxBad {
		return entry{}, false
	}
	if _, isTold := told[key]; !isTold {
		s.r.log.Warn("value in etcd is invalid, ignored", "key", key, "error", err)
	}
	if s.bad == nil {
		s.bad = make(map[string]struct{})
	}
	s.bad[key] = struct{}{}
	return entry{}, false
}

// settle implements subject: it delivers a snapshot if the endpoints have changed. A service with too many keys lacks a list once it has
// room for others.
func (s *service) settle(now time.Time) (wake time.Time, lacksList bool) {
	wake = s.deliverChanges(now)
	due := s.room.due(len(s.view.live))
	if wake.IsZero() || !due.IsZero() && due.Before(wake) {
		wake = due
	}
	return wake, !due.IsZero() && !now.Before(due)
}

// deliverChanges delivers a snapshot if the endpoints have changed. They may change without an event at wake.
func (s *service) deliverChanges(now time.Time) (wake time.Time) {
	changed, wake := s.view.settle(now)
	s.count.Doubt(s.view.kept())
	s.count.SetUnusable(len(s.bad))
	fresh := s.last == nil || s.last.Source == registry.SourceCache && !s.view.holding()
	if !changed && !fresh {
		return wake
	}
	at := now
	if !changed && s.last != nil {
		at = s.last.Changed // the same endpoints, now confirmed by etcd
	}
	endpoints := s.view.current
	snap := registry.NewSnapshot(s.name, registry.SourceLive, at, endpoints)
	if !s.room.isShort && !s.view.holding() {
		snap.Revision = s.seen
	}
	s.deliver(snap)
	s.r.cache.Store(registry.Record{
		Service:   s.name,
		Origin:    s.r.origin,
		Cluster:   s.pos.cluster,
		Term:      s.pos.term,
		Revision:  s.pos.revision,
		Changed:   at,
		Endpoints: endpoints,
	})
	return wake
}

// end implements subject.
func (s *service) end() { s.count.End() }

func (s *service) deliver(next *registry.Snapshot) {
	if s.ctx.Err() != nil {
		return
	}
	s.last = next
	s.notify(next)
}
