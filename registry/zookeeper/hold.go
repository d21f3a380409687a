package zookeeper

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// hold decides which endpoints to use after the session was lost, or after a start with a cache: those of ZooKeeper, and those that
// were in use before, or are cached, and have not come back. A ZooKeeper that was down or frozen for longer than the timeout of
// sessions ends the sessions of the providers, too, and they register again one after the other. A ZooKeeper that has lost its data
// has none of them at first. A sidecar that starts then can't know whether that has happened.
//
// What is held is dropped a time after the first record has come back; after a start, also if none does: the service may have been
// removed for good. An endpoint whose record says that it must not be used is not held. It is pure: time is an argument.
type hold struct {
	current []registry.Endpoint          // the last result
	held    map[string]registry.Endpoint // by Addr; nil means none
	until   time.Time                    // when held is dropped; zero means not before a record has come back
	isBack  bool                         // a record has come back
}

// lose begins to hold what is in use, until that time if no record comes back; zero means without limit.
func (h *hold) lose(until time.Time) {
	h.until, h.isBack = until, false
	if len(h.current) > 0 && h.held == nil {
		h.held = make(map[string]registry.Endpoint, len(h.current))
	}
	for _, e := range h.current {
		h.held[e.Addr] = e
	}
}

// settle returns the endpoints to use, sorted by address and distinct. live is what ZooKeeper has; it must be sorted and distinct
// as well. back has the addresses of all records, also of those that must not be used. grace is how long endpoints are held once a
// record has come back. wake is the time when the result may change without another list, or zero.
func (h *hold) settle(live []registry.Endpoint, back []string, now time.Time, grace time.Duration) (use []registry.Endpoint, wake time.Time) {
	for _, addr := range back {
		delete(h.held, addr)
	}
	if len(h.held) == 0 {
		h.held = nil
	} else if !h.isBack && len(back) > 0 {
		h.until, h.isBack = now.Add(grace), true
	}
	if !h.until.IsZero() && !now.Before(h.until) {
		h.held = nil
	}
	use = slices.Clone(live)
	for _, e := range h.held {
		use = append(use, e)
	}
	if h.held != nil {
		wake = h.until
	}
	h.current = distinct(use)
	return h.current, wake
}
