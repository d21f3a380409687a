package lb

import "time"

const (
	// A report distinguishes endpoints in picks for half of the latency in it: by then half of the
	// requests that it counts are over. Other consumers act on the same reports. If these counted
	// longer, all consumers would move to the endpoint that was idle when it reported. Half and twice of pickFade and
	// of pickFadeLeast change P99 by less than a tenth (TestConstantsOfHerds).
	pickFade      = 2 // divisor of the latency
	pickFadeLeast = time.Millisecond

	// loadFade is how long, at least, a report distinguishes endpoints in the load, which decides
	// about spare capacity: only few requests need that. From 50 ms to 1 s the value makes no difference. Without it
	// P99.9 is half as long again where replicas without a limit freeze, but only in short runs.
	loadFade = 100 * time.Millisecond
)

// reportLife is how long a report counts in the means. TestConstants shows what happens at twice and at half.
var reportLife = time.Second

// Load is the load of a service as reported by its sidecar.
type Load struct {
	// Pending is the number of requests of all consumers at the application or queued for it.
	// Queued is the number of those in the queue.
	Pending, Queued int

	Latency time.Duration // recent, of the application; 0 means unknown

	// SinceResponse is the time since the application's last response to any consumer; negative
	// means none yet.
	SinceResponse time.Duration
}

// report is the load of others that an endpoint's sidecar has reported.
type report struct {
	counts bool // in the reports of the set
	at     time.Duration
	life   time.Duration // how long it distinguishes the endpoint in picks
	others float64       // per Weight
	cost   float64       // score of that load
}

// fresh returns the share of the report in what is assumed of the endpoint. It falls from 1 to 0
// within life. The mean of all reports has the rest.
func (r *report) fresh(now, life time.Duration) float64 {
	age := now - r.at
	if !r.counts || age >= life {
		return 0
	}
	return 1 - float64(age)/float64(life)
}

// reports is the number and the sums of the reports that count.
type reports struct {
	n            int
	others, cost float64
	expireAt     time.Duration
}

// put adds a report in the place of r.
func (s *reports) put(r *report, next report) {
	*r = next
	r.counts = true
	s.n++
	s.others += r.others
	s.cost += r.cost
}

// drop removes a report, if it counts.
func (s *reports) drop(r *report) {
	if !r.counts {
		return
	}
	r.counts = false
	s.n--
	s.others -= r.others
	s.cost -= r.cost
	if s.n == 0 {
		s.others, s.cost = 0, 0 // removes rounding errors
	}
}

// expire drops the reports that are too old.
func (s *reports) expire(now time.Duration, all []*Endpoint) {
	s.expireAt = now + loadFade
	for _, e := range all {
		if now-e.report.at >= max(reportLife, e.report.life) {
			s.drop(&e.report)
		}
	}
}

// due reports whether reports may be too old: at most every loadFade.
func (s *reports) due(now time.Duration) bool { return s.n > 0 && now >= s.expireAt }

// Report processes the load that the endpoint's sidecar reports for all consumers. own is the part
// of this process, over all its loops. The rest is the load of others, which fades to the mean
// of all endpoints. After 1 s, or up to loadFade later, the report is dropped from the mean. An
// endpoint without a report counts as average. A response of the application to any consumer ends
// a stall.
func (e *Endpoint) Report(now time.Duration, l Load, own int) {
	if l.SinceResponse >= 0 {
		e.quietSince = max(e.quietSince, now-l.SinceResponse)
	}
	if l.Latency > 0 && e.latency.At(now) == 0 {
		e.latency.Add(now, l.Latency)
	}
	e.capacity.observe(&l)
	if e.peers == nil {
		return
	}
	e.peers.reports.drop(&e.report)
	if e.excess.share > 0 { // what it declines is no load of others
		return
	}
	others := float64(max(0, l.Pending-max(0, own))) / e.Weight
	e.peers.reports.put(&e.report, report{
		at: now, life: max(l.Latency/pickFade, pickFadeLeast),
		others: others, cost: e.scoreOf(others * e.Weight),
	})
}

// Reported returns the load that the endpoint's sidecar last reported, without this process's
// part; false if there was no report within the last second.
func (e *Endpoint) Reported(now time.Duration) (others float64, ok bool) {
	if !e.report.counts || now-e.report.at >= reportLife {
		return 0, false
	}
	return e.report.others * e.Weight, true
}
