package lb

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/lb/log2"
)

// An endpoint that refuses requests at once has nothing pending and seems fast, so it would get
// nearly all of them. Two facts about it prevent that.
//
// Room. Refused says that the endpoint had no room for a request, and did no work: its sidecar's
// limit, its pool of threads, a stream of HTTP/2. Then picks leave a gap between two of its
// requests, and each one is a probe. A refusal doubles the gap, from gapLeast to gapMost; a request
// that is taken shortens it by gapShrink, until it is below gapLeast and over. Outcomes of requests
// that were sent before the gap grew do not count: one burst is one refusal. So an endpoint that
// refuses everything gets one request per gapMost from each loop, and one with a limit gets about what it takes:
// of its own requests one in six is refused. If all endpoints have gaps, picks ignore gaps, and
// refused requests find no other endpoint (see Set.Room): what is full everywhere gets no more load.
//
//	gapLeast   1 ms   twice: a short burst is noticed longer. Half: more refusals by a quick limit.
//	gapMost    1 s    twice: half of the probes, and twice the time, 16 s, until an endpoint that had
//	                  refused everything has its whole share again. Half: the opposite.
//	gapShrink  1/8    twice: one in three or four is refused, and 4 s until the whole share. Half: one
//	                  in twelve, and 16 s.
//
// Share. Declined says that a response was an error of 4xx or 5xx, or that the request was refused.
// This may be the caller's fault, so only the share of such responses matters in which the
// endpoint exceeds its peers, the next peersMost endpoints of the set. What is above their share in
// the last 5 to 10 s, and above what chance explains (chance standard deviations, and one), counts in
// the load as if the endpoint still worked on it: for the mean latency of the peers, fading
// exponentially. So an endpoint that declines everything at once gets as many requests as one that
// is as fast as its peers. Its quick responses count as that latency, too. Where all endpoints
// decline the same share, nothing changes.
//
//	chance     2      twice: it takes four times the samples until an endpoint is noticed. Half: a
//	                  third of the endpoints has some load by chance.
//	peersMost  8      twice: a more exact share of the peers, at twice the cost of a 4xx. Half: the
//	                  opposite.
const (
	gapLeast  = time.Millisecond
	gapMost   = time.Second
	gapShrink = 8

	chance    = 2
	peersMost = 8

	phantomEnd = 8 // half-lives after which a phantom load is over: 0.4% of it is left
)

// refusalState is what an endpoint does not serve.
type refusalState struct {
	gap      time.Duration // least time between two requests; 0 means none
	gapSince time.Duration // when the gap last grew

	excess      float64       // share of its errors that exceeds that of its peers
	usually     time.Duration // the mean latency of the peers
	peakOfPeers float64       // the mean of theirs
	phantom     float64       // load of declined requests at phantomAt
	phantomAt   time.Duration
}

// Refused notes that the endpoint had no room for a request, which was sent at the time sent.
func (e *Endpoint) Refused(now, sent time.Duration) {
	if e.gap == 0 || sent >= e.gapSince {
		e.gap = min(max(2*e.gap, gapLeast), gapMost)
		e.gapSince = now
	}
	e.Rejected(now, sent)
}

// Rejected notes that the endpoint did no work for a request, which was sent at the time sent. The reason
// says nothing about room.
func (e *Endpoint) Rejected(now, sent time.Duration) {
	e.half(now).refused++
	e.decline(now, now-sent)
}

// Took notes that the endpoint had room for a request, which was sent at the time sent. It has an effect
// only after a refusal.
func (e *Endpoint) Took(sent time.Duration) {
	if e.gap == 0 || sent < e.gapSince {
		return
	}
	if e.gap -= e.gap / gapShrink; e.gap < gapLeast {
		e.gap = 0
	}
}

// Refuses reports whether the endpoint had no room of late, so that Took must be called.
func (e *Endpoint) Refuses() bool { return e.gap > 0 }

// waits reports whether the endpoint should not get a request yet.
func (e *Endpoint) waits(now time.Duration) bool { return e.gap > 0 && now-e.started < e.gap }

// Declined notes, after Judge, an error of 4xx or 5xx that came after the time took. bad reports
// whether Judge has counted it as bad.
func (e *Endpoint) Declined(now, took time.Duration, bad bool) {
	if !bad {
		e.half(now).declined++
	}
	e.decline(now, took)
}

// AtLeast returns the latency that counts for an error after that time: if the endpoint has more
// errors than its peers, no less than theirs.
func (e *Endpoint) AtLeast(took time.Duration) time.Duration {
	if e.excess > 0 {
		return max(took, e.usually)
	}
	return took
}

// decline adds the load of one more declined request, for the rest of the usual latency.
func (e *Endpoint) decline(now, took time.Duration) {
	if e.compare(now); e.excess == 0 || took >= e.usually {
		return
	}
	loops := 1
	if e.process != nil {
		loops = max(1, e.set.Loops)
	}
	e.phantom = e.phantomNow(now) + e.excess*float64(loops)*(1-float64(took)/float64(e.usually))
	e.phantomAt = now
}

// compare computes the excess of the errors over the share of the peers.
func (e *Endpoint) compare(now time.Duration) {
	e.excess = 0
	if e.set == nil {
		return
	}
	peers := e.peers(now)
	errors, all := e.errors()
	expected := all * peers.share
	expected += chance*math.Sqrt(expected) + 1
	if errors <= expected || peers.latency == 0 {
		return
	}
	e.excess, e.usually, e.peakOfPeers = (errors-expected)/errors, peers.latency, peers.peak
}

type peers struct {
	share   float64       // of errors, with one more
	latency time.Duration // mean; 0 means unknown
	peak    float64       // mean of their peaks, see PeakEWMA
}

// peers looks at the next endpoints of the set.
func (e *Endpoint) peers(now time.Duration) (p peers) {
	errors, all, answers, latency := 1.0, 1.0, 0.0, 0.0
	list := e.set.all.endpoints
	most := min(peersMost, len(list)-1)
	for n := range most {
		o := list[(e.index+1+n)%len(list)]
		some, of := o.errors()
		errors, all = errors+some, all+of
		p.peak += o.peakNow(now) / float64(most)
		for i := range o.record {
			answers += float64(o.record[i].answers)
			latency += float64(o.record[i].latency)
		}
	}
	p.share = errors / all
	if answers > 0 {
		p.latency = time.Duration(latency / answers)
	}
	return p
}

// errors returns how many of all attempts of the record were not served.
func (h *health) errors() (errors, all float64) {
	for i := range h.record {
		c := &h.record[i]
		errors += float64(c.bad + c.declined + c.refused)
		all += float64(c.good + c.bad + c.refused)
	}
	return errors, all
}

// phantomNow returns the load of declined requests. It adds up to that of a request that takes
// as long as usual: the integral of 2^(-t/half) is half/ln 2.
func (e *Endpoint) phantomNow(now time.Duration) float64 {
	half := math.Ln2 * float64(e.usually)
	age := float64(now - e.phantomAt)
	if e.phantom == 0 || age >= phantomEnd*half {
		return 0
	}
	return e.phantom * log2.Exp(-age/half)
}
