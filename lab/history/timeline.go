package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// timeline is the registry over time, and when sidecars could reach it.
type timeline struct {
	ticks    []Tick // by revision
	whole    span   // of the record: what is certain of a time after it is unknown
	services map[string]*service
	keys     map[string]*key
	outages  map[string]spans // by sidecar, those of all among them
	all      spans            // outages of all sidecars
}

// moment is when a change was made.
type moment struct {
	revision      int64
	since         int64     // the revision of the change is above this
	after, before time.Time // the change was made in between
}

// key is a key over time.
type key struct {
	name    string
	changes []keyChange
}

// keyChange is a change of a key. An empty address means that the key is gone.
type keyChange struct {
	moment
	address string
}

// service is the keys of a service.
type service struct {
	keys    []*key
	isAlive spans            // it surely has an endpoint
	alive   map[string]spans // by address: it surely has the endpoint
	known   map[string]spans // by address: it may have the endpoint
}

func newTimeline(h *History) *timeline {
	t := &timeline{services: make(map[string]*service), keys: make(map[string]*key), outages: make(map[string]spans)}
	t.ticks = slices.Clone(h.Ticks)
	slices.SortFunc(t.ticks, func(a, b Tick) int { return cmp.Compare(a.Revision, b.Revision) })
	if n := len(t.ticks); n > 0 {
		t.whole = span{t.ticks[0].Sent, t.ticks[n-1].Sent}
	}
	for i := range h.Changes {
		t.add(&h.Changes[i])
	}
	for _, s := range t.services {
		t.setSpans(s)
	}
	t.setOutages(h.Outages)
	return t
}

func (t *timeline) add(c *Change) {
	k := t.keys[c.Key]
	if k == nil {
		k = &key{name: c.Key}
		t.keys[c.Key] = k
		s := t.services[c.Service]
		if s == nil {
			s = &service{alive: make(map[string]spans), known: make(map[string]spans)}
			t.services[c.Service] = s
		}
		s.keys = append(s.keys, k)
	}
	next := keyChange{moment: t.momentOf(c)}
	if !c.Deleted {
		next.address = c.Address
	}
	k.changes = append(k.changes, next)
}

// momentOf returns when a change was made, by the ticks around it.
func (t *timeline) momentOf(c *Change) moment {
	m := moment{revision: c.Revision, since: c.Revision - 1, before: c.Heard}
	if c.Listed {
		m.since = c.Since
	}
	byRevision := func(at Tick, revision int64) int { return cmp.Compare(at.Revision, revision) }
	if i, _ := slices.BinarySearchFunc(t.ticks, m.since+1, byRevision); i > 0 {
		m.after = t.ticks[i-1].Sent
	}
	if i, _ := slices.BinarySearchFunc(t.ticks, m.revision, byRevision); i < len(t.ticks) {
		m.before = earlier(m.before, t.ticks[i].Acked)
	}
	return m
}

// setSpans sets when a service has which endpoints.
func (t *timeline) setSpans(s *service) {
	alive, known := make(map[string][]span), make(map[string][]span)
	var all []span
	for _, k := range s.keys {
		for _, l := range k.lives(t.whole.until) {
			alive[l.address] = append(alive[l.address], l.sure)
			known[l.address] = append(known[l.address], l.possible)
			all = append(all, l.sure)
		}
	}
	s.isAlive = join(all)
	for address := range alive {
		s.alive[address], s.known[address] = join(alive[address]), join(known[address])
	}
}

// life is a time in which a key had an address.
type life struct {
	address        string
	sure, possible span
}

// lives returns when the key had which address, to the end of the record.
func (k *key) lives(end time.Time) (all []life) {
	for i, c := range k.changes {
		if c.address == "" {
			continue
		}
		l := life{c.address, span{c.before, end}, span{c.after, end}}
		if i+1 < len(k.changes) {
			next := k.changes[i+1]
			l.sure.until, l.possible.until = next.after, next.before
			if next.address == c.address && next.since == next.revision-1 {
				l.sure.until = next.before // it was put again
			}
		}
		all = append(all, l)
	}
	return all
}

// possible returns when the key may have been there.
func (k *key) possible(end time.Time) spans {
	var all []span
	for _, l := range k.lives(end) {
		all = append(all, l.possible)
	}
	return join(all)
}

// addressAt returns the address of the key at a revision, or "". isKnown is false if the record does not say it.
func (k *key) addressAt(revision int64) (address string, isKnown bool) {
	i := 0
	for i < len(k.changes) && k.changes[i].revision <= revision {
		address = k.changes[i].address
		i++
	}
	return address, i == len(k.changes) || k.changes[i].since >= revision
}

// endpointsAt returns the addresses of a service at a revision, and those that it may have had, too.
func (s *service) endpointsAt(revision int64) (sure, possible map[string]bool) {
	sure, possible = make(map[string]bool), make(map[string]bool)
	for _, k := range s.keys {
		address, isKnown := k.addressAt(revision)
		if isKnown {
			if address != "" {
				sure[address] = true
			}
			continue
		}
		for _, c := range k.changes {
			possible[c.address] = true
		}
	}
	return sure, possible
}

// around describes, for each key that had the address, the last change up to a revision and the next change.
func (s *service) around(address string, revision int64) string {
	var all []string
	for _, k := range s.keys {
		if !slices.ContainsFunc(k.changes, func(c keyChange) bool { return c.address == address }) {
			continue
		}
		next := slices.IndexFunc(k.changes, func(c keyChange) bool { return c.revision > revision })
		if next < 0 {
			next = len(k.changes)
		}
		for _, c := range k.changes[max(next-1, 0):min(next+1, len(k.changes))] {
			what := "put"
			switch c.address {
			case address:
			case "":
				what = "gone"
			default:
				what = "put as " + c.address
			}
			all = append(all, fmt.Sprintf("%s at revision %d", what, c.revision))
			if c.since < c.revision-1 {
				all[len(all)-1] += fmt.Sprintf(" or after %d", c.since)
			}
		}
	}
	if len(all) == 0 {
		return "never registered"
	}
	return strings.Join(all, ", ")
}

// knows reports whether the record has all changes up to a revision.
func (t *timeline) knows(revision int64) bool {
	n := len(t.ticks)
	return n > 0 && t.ticks[0].Revision <= revision && revision <= t.ticks[n-1].Revision
}

func (t *timeline) setOutages(outages []Outage) {
	by := make(map[string][]span)
	for _, o := range outages {
		by[o.Sidecar] = append(by[o.Sidecar], span{o.From, o.Until})
	}
	for sidecar, its := range by {
		t.outages[sidecar] = join(slices.Concat(its, by[""]))
	}
	t.all = join(by[""])
}

// reached returns the longest stretch of a time in which a sidecar could reach the registry.
func (t *timeline) reached(sidecar string, s span) time.Duration {
	outages, has := t.outages[sidecar]
	if !has {
		outages = t.all
	}
	return outages.gaps(s).longest()
}
