package etcd

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// entry is one key's endpoint.
type entry struct {
	endpoint registry.Endpoint
	revision int64 // of the key's last change; the later of two with one address wins
}

// view is what is to be believed about one service: what etcd says, and what is
// kept although etcd does not say it any more (the rules are in the package
// comment). It is pure: the time is passed in.
type view struct {
	ttl, grace time.Duration

	live map[string]entry             // by key, as etcd has it
	held map[string]registry.Endpoint // by Addr: lost by etcd and not registered anew

	heldUntil  time.Time           // earliest end of held
	emptyUntil time.Time           // until when current outlives an empty live; zero: not empty
	current    []registry.Endpoint // as last settled
}

func newView(ttl, grace time.Duration) *view {
	return &view{
		ttl:   ttl,
		grace: grace,
		live:  make(map[string]entry),
		held:  make(map[string]registry.Endpoint),
	}
}

// replace takes a full list. lost says that etcd lost its data since the list
// before, so that what is missing from this one may well be alive.
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

// put takes a key's new value.
func (v *view) put(key string, e entry) {
	v.live[key] = e
	delete(v.held, e.endpoint.Addr)
}

// remove takes the end of a key.
func (v *view) remove(key string) { delete(v.live, key) }

// settle decides what is to be believed now. changed tells whether that differs
// from the time before; wake is when time alone may change it, or zero.
func (v *view) settle(now time.Time) (changed bool, wake time.Time) {
	if len(v.held) > 0 {
		if now.Before(v.heldUntil) {
			wake = v.heldUntil
		} else if len(v.live) > 0 { // somebody has come back: so could have all
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

// holding tells whether current is not what etcd says, but what it said.
func (v *view) holding() bool { return len(v.held) > 0 || !v.emptyUntil.IsZero() }

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
