package lb

import (
	"time"

	"github.com/remora-proxy/remora/lb/log2"
	"github.com/remora-proxy/remora/lb/outlier"
	"github.com/remora-proxy/remora/lb/spare"
)

// Endpoint is one replica as one loop sees it, from the Update that adds its address to the
// Update that removes it: what its attempts and its reports have shown. Attempts that are pending at the removal
// must still be counted down. Each part of an Endpoint has one job and knows no other part,
// except that excess compares records.
type Endpoint struct {
	// As of the last Update. Weight is always > 0.
	Addr      string
	Host      string // name that Addr was resolved from, or ""
	Zone      string
	Weight    float64
	Unhealthy bool

	Ext any // the caller's: the upstream of this address

	peers           *peers  // nil once removed
	index           int     // among the peers
	effectiveWeight float64 // of picks: Weight times ramp and utilization
	discount        float64 // Discount of record; 1 if no attempt was bad
	avoided         bool    // unhealthy or ejected, while the set does not panic
	nextTurn        float64 // virtual time of the next turn; see WeightedRoundRobin

	Work
	report    report
	usualLoad spare.Usual

	latency  Recent
	peak     peak
	slowness slowness

	capacity    capacity
	utilization utilization
	ramp        ramp

	record   outlier.Record
	ejection outlier.Ejection
	Backoff
	excess excess
}

func newEndpoint(addr string, p *peers) *Endpoint {
	return &Endpoint{
		Addr: addr, peers: p, discount: 1, slowness: slowness{factor: 1},
		utilization: utilization{share: 1}, ramp: ramp{part: 1},
	}
}

// Start counts an attempt handed to the endpoint, including hedges. Exactly one Finish or
// Drop must follow, at the latest when the attempt's deadline passes. A cancelled attempt
// stays counted until the endpoint has responded to it or reported that it dropped it.
// Otherwise a frozen replica would look idle once its requests are hedged elsewhere.
// Start returns the level of load that the attempt found, for Learn.
func (e *Endpoint) Start(now time.Duration) (found spare.Level) {
	load := e.ownWork() + e.othersLoad(now)*e.Weight // no load of declined requests: it slows nothing down
	e.usualLoad.Add(load)
	e.begin(now)
	return spare.LevelOf(load)
}

// Finish counts the response to an attempt, even if nobody awaits the response any more. latency is
// the time since Start. It is 0 for a failure, which may be quick because no work was done.
func (e *Endpoint) Finish(now, latency time.Duration) {
	e.quietSince = now
	e.Presume(now, latency)
}

// Presume counts the end of an attempt to which the endpoint would have responded about now, if its connection had not
// been closed. latency is as in Finish.
func (e *Endpoint) Presume(now, latency time.Duration) {
	e.Drop()
	if latency <= 0 {
		return
	}
	e.latency.Add(now, latency)
	e.peak.add(now, latency)
	e.record.CountLatency(now, latency)
}

// Learn takes the latency of an attempt for which Start has returned found.
func (e *Endpoint) Learn(now, latency time.Duration, found spare.Level) {
	p := e.peers
	if p == nil {
		return
	}
	log := log2.Of(latency)
	p.curve.Learn(now, log, found)
	e.slowness.learn(now, log, &p.pace)
}

// Latency returns the moving average of the latency of responses to this loop. After a second without
// a response it is the reported latency; 0 means unknown.
func (e *Endpoint) Latency() time.Duration { return e.latency.Mean() }

// Judge counts the outcome of an attempt: good if the application responded without a failure
// of its own, bad if it or the connection failed. Attempts that were cancelled or refused for
// load are not judged.
func (e *Endpoint) Judge(now time.Duration, good bool) {
	e.record.Count(now, good)
	e.discount = e.record.Discount()
	switch p := e.peers; {
	case p == nil:
	case e.isEjected():
		if p.health.probed(now, e, good, &p.groups) {
			p.restored(e)
		}
	case !good:
		p.health.failed(now, e, &p.groups)
	}
}

// TimedOut judges an attempt whose time is up, before its Drop, and reports whether it was
// bad: the endpoint has been silent for the duration of an ejection. A shorter silence is a
// stall, and any response means that the endpoint is only slow.
func (e *Endpoint) TimedOut(now time.Duration) (bad bool) {
	bad = e.peers != nil && e.Silence(now) >= max(e.peers.health.rules.Base, 1)
	if bad {
		e.Judge(now, false)
	}
	return bad
}

// Streak returns how many attempts failed in a row, and how many of the last 5 to 10 s were good.
func (e *Endpoint) Streak(now time.Duration) (failed, good int) { return e.record.Streak(now) }

// Ejected reports whether the endpoint is ejected, until it has served a probe, and why.
func (e *Endpoint) Ejected() (why outlier.Reason, ejected bool) { return e.ejection.Ejected() }

// Ejections returns how often the endpoint was ejected.
func (e *Endpoint) Ejections() uint64 { return e.ejection.Count() }

// Three methods note what came of an attempt besides a good response. Each makes the endpoint seem busier for a
// while, since an endpoint that declines quickly would seem idle.

// CountNoRoom notes that the endpoint had no room for a request, which was sent at the time sent.
func (e *Endpoint) CountNoRoom(now, sent time.Duration) {
	e.grow(now, sent)
	e.CountNotDone(now, sent)
}

// CountNotDone notes that the endpoint did no work for a request, which was sent at the time sent. The reason
// says nothing about room.
func (e *Endpoint) CountNotDone(now, sent time.Duration) {
	e.record.CountNotDone(now)
	e.decline(now, now-sent)
}

// CountErrorStatus notes, after Judge, an error of 4xx or 5xx that came after the time took. bad reports
// whether Judge has counted it as bad.
func (e *Endpoint) CountErrorStatus(now, took time.Duration, bad bool) {
	if !bad {
		e.record.CountErrorStatus(now)
	}
	e.decline(now, took)
}

// decline adds the load of one more declined request.
func (e *Endpoint) decline(now, took time.Duration) {
	p := e.peers
	if p == nil {
		return
	}
	e.excess.compare(now, &e.record, e.index, p.all.endpoints)
	loops := 1
	if e.process != nil {
		loops = max(1, p.loops)
	}
	e.excess.add(now, took, loops)
}

// LatencyOfError returns the latency that counts for an error after the time took: at least the mean latency of the
// peers, if the endpoint has more errors than they.
func (e *Endpoint) LatencyOfError(took time.Duration) time.Duration {
	if e.excess.share > 0 {
		return max(took, e.excess.latency)
	}
	return took
}
