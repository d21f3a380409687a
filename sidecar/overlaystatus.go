package sidecar

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/remora-proxy/remora/fleet"
	"github.com/remora-proxy/remora/fleet/store"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

const (
	// statusDuringRollout is the time between two statuses with counts during a roll-out.
	statusDuringRollout = 5 * time.Second

	// statusAtRest is that time otherwise. etcd keeps each status until it compacts its history.
	statusAtRest = time.Minute
)

// counted has the counts of all services now, and the counts at the last change, which a status subtracts.
type counted struct {
	since time.Time                      // of the change of the head
	with  int64                          // the revision in use
	base  map[string]fleet.Service       // without services that a reload has replaced since: they count from 0
	sums  map[string]*stats.ServiceStats // of the last look
	now   map[string]fleet.Service       // made of sums
	named []string                       // the services of the status
}

// look notes the counts of now. A change of the head, or of the revision in use, begins them anew.
func (c *counted) look(sums map[string]*stats.ServiceStats, change time.Time, revision int64) {
	before := c.sums
	c.sums, c.now = sums, make(map[string]fleet.Service, len(sums))
	for name, s := range sums {
		c.now[name] = fleet.Service{
			Requests: s.Requests, Failed: s.Outcomes[stats.Outcome5xx] + s.Outcomes[stats.OutcomeFailed],
			Hedges: s.Hedges, Missed: s.HedgesMissed, Won: s.HedgesWon, Latency: fleet.LatencyOf(&s.Latency),
		}
	}
	if !c.since.Equal(change) || c.with != revision || c.base == nil {
		c.since, c.with, c.base = change, revision, c.now
	} else {
		c.dropReplaced(before)
	}
	c.named = slices.SortedFunc(maps.Keys(c.now), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.now[b].Requests, c.now[a].Requests), cmp.Compare(a, b))
	})
	c.named = c.named[:min(len(c.named), fleet.MaxServices)]
}

// dropReplaced drops the base of services that are not those of the last look any more, however many requests they will have.
func (c *counted) dropReplaced(last map[string]*stats.ServiceStats) {
	for name, was := range last {
		if s := c.sums[name]; s == nil || !s.Continues(was) {
			delete(c.base, name)
		}
	}
}

// services returns the services of a status, with latencies if there is a guard.
func (c *counted) services(guarded bool) map[string]fleet.Service {
	out := make(map[string]fleet.Service, len(c.named))
	for _, name := range c.named {
		s := c.now[name].Since(c.base[name])
		if !guarded {
			s.Latency = nil
		}
		out[name] = s
	}
	return out
}

// look notes the counts of the services, and returns the time until the next look. Only run calls it.
func (o *overlays) look() time.Duration {
	o.mu.Lock()
	head, revision := o.head, o.inUse
	o.mu.Unlock()
	every, change := statusAtRest, time.Time{}
	if head != nil {
		change = head.Change.At
		if head.Candidate != 0 {
			every = statusDuringRollout
		}
	}
	sums, err := o.sums(o.ended)
	if err != nil {
		o.log.Debug("counts for the fleet not read", "error", err)
		return every
	}
	o.counts.look(sums, change, revision)
	return every
}

// status returns what the sidecar says of itself in etcd. Only run calls it.
func (o *overlays) status() *fleet.Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	return &fleet.Status{
		Node: o.cfg.Node.ID, Version: o.version, Revision: o.inUse, Since: o.since, Refused: o.refused,
		Change: o.counts.since, Services: o.counts.services(o.head != nil && o.head.Guard != nil),
	}
}

// guard takes a roll-out back that its guard does not allow, if this sidecar is the one that looks: the first by name
// of those that have a status. When that one ends, its status goes with its lease, and the next sidecar is the first.
// Two that look at once do no harm, since only one of them finds the head unchanged.
func (o *overlays) guard() {
	o.mu.Lock()
	guarded := o.head != nil && o.head.Candidate != 0 && o.head.Guard != nil
	o.mu.Unlock()
	if !guarded {
		return
	}
	ctx, cancel := context.WithTimeout(o.ended, judgeTimeout)
	defer cancel()
	if err := o.judge(ctx); !errors.As(err, new(*store.MovedError)) {
		o.tell("guard of the roll-out not asked, will retry", err)
	}
}

func (o *overlays) judge(ctx context.Context) error {
	if first, err := o.keys.First(ctx); err != nil || first != o.name() {
		return err
	}
	head, at, err := o.keys.Head(ctx)
	if err != nil || head.Candidate == 0 || head.Guard == nil {
		return err
	}
	compared := fleet.Compare(&head)
	if _, err := o.keys.Statuses(ctx, compared.Add); err != nil {
		return err
	}
	why := head.Guard.Judge(compared)
	if why == "" {
		return nil
	}
	next, err := head.Rollback(fleet.Change{At: time.Now().UTC(), By: o.name(), Why: why})
	if err == nil {
		err = o.keys.Change(ctx, at, &next, nil)
	}
	if err == nil {
		o.log.Warn("roll-out taken back by its guard", "revision", head.Candidate, "why", why)
	}
	return err
}

// name returns the name of this sidecar's status.
func (o *overlays) name() string { return o.cfg.Node.ID + "@" + o.cfg.Admin.Address }
