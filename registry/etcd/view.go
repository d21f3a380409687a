package etcd

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/registry"
)

type entry struct {
	endpoint registry.Endpoint
	revision int64 // of the key's last change; of two with one address, the later wins
}

// view decides which endpoints of one service to use: those in etcd, and those that are kept
// although etcd no longer has them (see the package comment). It is pure: time is an argument. A view is
//
//	normal      held is empty, emptyUntil is zero: live is in use
//	holding     held is not empty: etcd lost data; live and held are in use until heldUntil has passed and a node is live
//	emptied     emptyUntil is set: live became empty; current stays in use until emptyUntil
type view struct {
	ttl, grace time.Duration

	live map[string]entry             // by key, as in etcd
	held map[string]registry.Endpoint // by Addr: lost by etcd and not registered again

	heldUntil  time.Time           // earliest end of held
	emptyUntil time.Time           // how long current outlives an empty live; zero means not empty
	current    []registry.Endpoint // the result of the last settle
}

func newView(ttl, grace time.Duration) *view {
	return &view{
		ttl:   ttl,
		grace: grace,
		live:  make(map[string]entry),
		held:  make(map[string]registry.Endpoint),
	}
}

// replace sets the full list. lost means that etcd lost its data since the previous list, so
// that endpoints which are missing now may still be alive.
func (v *view) replace(live map[string]entry, lost bool, now time.Time) {
	v.live = live
	if lost {
		v.heldUntil = now.Add(v.ttl + v.grace)
		for _, e := range v.current {
			v.held[e.Addr] = e
		}
	}
	for _, e := range live {
		delete(v.held, e.endpoint.Addr)
	}
}

func (v *view) put(key string, e entry) {
	v.live[key] = e
	delete(v.held, e.endpoint.Addr)
}

func (v *view) remove(key string) { delete(v.live, key) }

// settle decides which endpoints to use now. changed reports whether they differ from the last
// result. wake is the time when they may change without an event, or zero.
func (v *view) settle(now time.Time) (changed bool, wake time.Time) {
	if len(v.held) > 0 {
		if now.Before(v.heldUntil) {
			wake = v.heldUntil
		} else if len(v.live) > 0 { // etcd has a node again, so all nodes had the time to come back
			clear(v.held)
		}
	}
	next := v.believed()
	if len(next) == 0 && len(v.current) > 0 {
		if v.emptyUntil.IsZero() {
			v.emptyUntil = now.Add(v.grace)
		}
		if now.Before(v.emptyUntil) {
			return false, v.emptyUntil
		}
	}
	v.emptyUntil = time.Time{}
	changed = !slices.Equal(next, v.current)
	v.current = next
	return changed, wake
}

func (v *view) holding() bool { return v.kept() > 0 }

// kept returns the number of endpoints in use that etcd does not have.
func (v *view) kept() int {
	if !v.emptyUntil.IsZero() {
		return len(v.current)
	}
	return len(v.held)
}

func (v *view) believed() []registry.Endpoint {
	latest := make(map[string]entry, len(v.live))
	for _, e := range v.live {
		if old, ok := latest[e.endpoint.Addr]; !ok || old.revision < e.revision {
			latest[e.endpoint.Addr] = e
		}
	}
	endpoints := make([]registry.Endpoint, 0, len(latest)+len(v.held))
	for _, e := range latest {
		endpoints = append(endpoints, e.endpoint)
	}
	for _, e := range v.held {
		endpoints = append(endpoints, e)
	}
	return registry.Normalize(endpoints)
}
