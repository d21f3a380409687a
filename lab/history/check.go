package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds are the bounds of docs/discovery.md.
type Bounds struct {
	Seen   time.Duration // in which a sidecar that can reach the registry uses a change
	Grace  time.Duration // for which a service keeps its last endpoints
	Return time.Duration // in which a sidecar that can reach the registry puts its key again
}

// DefaultBounds are those of sidecars with the default settings.
var DefaultBounds = Bounds{Seen: 20 * time.Second, Grace: 5 * time.Second, Return: 20 * time.Second}

// Violation is a rule that was broken.
type Violation struct {
	Rule string    // its name in the package comment
	At   time.Time // when it was seen first
	Text string    // a sentence without its end
	More int       // times that it was seen after that
}

// String returns the violation as sentences.
func (v Violation) String() string {
	text := fmt.Sprintf("%s: %s.", v.Rule, v.Text)
	if v.More > 0 {
		text += fmt.Sprintf(" So it was %d times more.", v.More)
	}
	return text
}

// Check returns the violations of all rules, by time.
func (h *History) Check(b Bounds) []Violation {
	c := &checker{timeline: newTimeline(h), bounds: b, found: make(map[string]*Violation)}
	c.record(h.Changes)
	if len(h.Ticks) == 0 {
		c.report("record", "", time.Time{}, "the recorder has made no revision itself, so no time is certain")
	}
	for i := range h.Views {
		c.view(&h.Views[i])
	}
	c.back(h.Views)
	for i := range h.Requests {
		c.request(&h.Requests[i])
	}
	for i := range h.Owners {
		c.owner(&h.Owners[i])
	}
	all := make([]Violation, 0, len(c.found))
	for _, v := range c.found {
		all = append(all, *v)
	}
	slices.SortFunc(all, func(a, b Violation) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Text, b.Text)) })
	return all
}

type checker struct {
	*timeline
	bounds Bounds
	found  map[string]*Violation
}

// report adds a violation. One that has the same rule and subject is counted with the first.
func (c *checker) report(rule, subject string, at time.Time, format string, args ...any) {
	id := rule + " " + subject
	if v := c.found[id]; v != nil {
		v.More++
		return
	}
	c.found[id] = &Violation{Rule: rule, At: at, Text: fmt.Sprintf(format, args...)}
}

// clock is how times are shown.
func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// seconds is how durations are shown.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// record checks that the recorder has missed no change.
func (c *checker) record(changes []Change) {
	last := make(map[string]int64) // revision of the last put, by key
	var revision int64
	for i := range changes {
		at := &changes[i]
		if at.Revision < revision && !at.Listed {
			c.report("record", "order", at.Heard, "revision %d was recorded after revision %d", at.Revision, revision)
		}
		revision = max(revision, at.Revision)
		if before := last[at.Key]; !at.Listed && at.Previous != Unknown && before != at.Previous {
			c.report("record", fmt.Sprint(at.Key, at.Revision), at.Heard,
				"the recorder has missed changes: before revision %d key %s was put at revision %d, and the recorder has %d", at.Revision, at.Key, at.Previous, before)
		}
		if last[at.Key] = at.Revision; at.Deleted {
			delete(last, at.Key)
		}
	}
}

// view checks a view by the revision that it comes from, and by its time.
func (c *checker) view(v *View) {
	s := c.services[v.Service]
	if s == nil {
		s = &service{}
	}
	if v.Revision > 0 && !v.Cached && c.knows(v.Revision) {
		c.content(v, s)
	}
	at := span{v.Asked, v.Told}
	what := fmt.Sprintf("sidecar %s had a view of service %s", v.Sidecar, v.Service)
	for _, address := range v.Endpoints {
		c.gone(s, v.Sidecar, address, at, fmt.Sprintf("%s with %s", what, address))
	}
	if len(v.Endpoints) == 0 {
		c.empty(s, v.Sidecar, v.Service, at, what+" without endpoints")
		return
	}
	for address, alive := range s.alive {
		life, isAlive := alive.around(at)
		if !isAlive || slices.Contains(v.Endpoints, address) {
			continue
		}
		if d := c.reached(v.Sidecar, span{life.from, v.Asked}); d > c.bounds.Seen {
			c.report("missing", fmt.Sprint(v.Sidecar, v.Service, address, life.from), v.Asked, "%s without %s at %s, which had been registered since %s. "+
				"The sidecar could reach the registry for %s of that, and the bound is %s", what, address, clock(v.Asked), clock(life.from), seconds(d), seconds(c.bounds.Seen))
		}
	}
}

// content checks that a view has what the registry had at the revision of the view.
func (c *checker) content(v *View, s *service) {
	sure, possible := s.endpointsAt(v.Revision)
	var lacks, has []string
	for address := range sure {
		if !slices.Contains(v.Endpoints, address) {
			lacks = append(lacks, address)
		}
	}
	for _, address := range v.Endpoints {
		if !sure[address] && !possible[address] {
			has = append(has, fmt.Sprintf("%s (%s)", address, s.around(address, v.Revision)))
		}
	}
	rule, subject := "content", fmt.Sprint(v.Sidecar, v.Service, v.Revision)
	if len(v.Endpoints) == 0 {
		rule = "empty"
	}
	slices.Sort(lacks)
	what := fmt.Sprintf("the view of service %s that sidecar %s had at %s, of revision %d,", v.Service, v.Sidecar, clock(v.First), v.Revision)
	if len(lacks) > 0 {
		c.report(rule, subject+"lacks", v.First, "%s lacked %s", what, strings.Join(lacks, ", "))
	}
	if len(has) > 0 {
		c.report(rule, subject+"has", v.First, "%s had %s, which was not registered then", what, strings.Join(has, ", "))
	}
}

// gone checks that an endpoint which a sidecar used has not been gone for too long.
func (c *checker) gone(s *service, sidecar, address string, at span, what string) {
	absent, isGone := s.known[address].gaps(c.whole).around(at)
	if !isGone {
		return
	}
	absent.until = at.from
	bound := c.bounds.Seen
	if len(s.isAlive.gaps(absent)) > 0 {
		bound += c.bounds.Grace
	}
	if d := c.reached(sidecar, absent); d > bound {
		c.report("gone", fmt.Sprint(sidecar, address, absent.from), at.from, "%s at %s, which had not been registered since %s. "+
			"The sidecar could reach the registry for %s of that, and the bound is %s", what, clock(at.from), clock(absent.from), seconds(d), seconds(bound))
	}
}

// empty checks that a service which a sidecar took to be empty was not alive.
func (c *checker) empty(s *service, sidecar, name string, at span, what string) {
	life, isAlive := s.isAlive.around(at)
	if !isAlive {
		return
	}
	if d := c.reached(sidecar, span{life.from, at.from}); d > c.bounds.Seen {
		c.report("empty", fmt.Sprint(sidecar, name, life.from), at.from, "%s at %s, and the service had had an endpoint since %s. "+
			"The sidecar could reach the registry for %s of that, and the bound is %s", what, clock(at.from), clock(life.from), seconds(d), seconds(c.bounds.Seen))
	}
}

// back checks that no view goes back in time.
func (c *checker) back(views []View) {
	type subject struct{ sidecar, service string }
	type progress struct {
		run      int
		revision int64
		isLive   bool // in the run
	}
	last := make(map[subject]progress)
	views = slices.Clone(views)
	slices.SortStableFunc(views, func(a, b View) int { return a.First.Compare(b.First) })
	for i := range views {
		v := &views[i]
		at := subject{v.Sidecar, v.Service}
		now := last[at]
		if now.run != v.Run {
			now.run, now.isLive = v.Run, false
		}
		id := fmt.Sprint(v.Sidecar, v.Service, v.Run, v.Revision, v.First)
		switch {
		case v.Cached && now.isLive:
			c.report("back", id, v.First, "sidecar %s went back to its cache of service %s at %s", v.Sidecar, v.Service, clock(v.First))
		case !v.Cached && v.Revision > 0 && v.Revision < now.revision:
			c.report("back", id, v.First, "the view of service %s that sidecar %s had at %s was of revision %d, after one of revision %d",
				v.Service, v.Sidecar, clock(v.First), v.Revision, now.revision)
		}
		now.revision, now.isLive = max(now.revision, v.Revision), now.isLive || !v.Cached
		last[at] = now
	}
}

// request checks a request.
func (c *checker) request(r *Request) {
	s := c.services[r.Service]
	if s == nil {
		s = &service{}
	}
	at := span{r.Began, r.Ended}
	if r.Endpoint == "" {
		c.empty(s, r.Sidecar, r.Service, at, fmt.Sprintf("sidecar %s had no endpoint of service %s for a request", r.Sidecar, r.Service))
		return
	}
	c.gone(s, r.Sidecar, r.Endpoint, at, fmt.Sprintf("sidecar %s sent a request of service %s to %s", r.Sidecar, r.Service, r.Endpoint))
}

// owner checks that the key of an owner that lives comes back.
func (c *checker) owner(o *Owner) {
	life := span{o.From, earlier(o.Until, c.whole.until)}
	var possible spans
	if k := c.keys[o.Key]; k != nil {
		possible = k.possible(c.whole.until)
	}
	for _, absent := range possible.gaps(life) {
		if d := c.reached(o.Sidecar, absent); d > c.bounds.Return {
			c.report("return", fmt.Sprint(o.Key, absent.from), absent.from, "key %s was gone from %s to %s, while its owner %s lived. "+
				"The owner could reach the registry for %s of that, and the bound is %s", o.Key, clock(absent.from), clock(absent.until), o.Sidecar, seconds(d), seconds(c.bounds.Return))
		}
	}
}
