package lb

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/lb/log2"
	"github.com/remora-proxy/remora/lb/outlier"
)

// excess is the errors of an endpoint beyond those of its peers, the next peersMost endpoints of the
// set, and the load that they count as.
//
// An error is a response of 4xx or 5xx, or a refusal. An endpoint that declines requests at once has
// nothing pending and seems fast, so it would get nearly all of them. The errors may be the caller's
// fault, so only the share counts in which the endpoint exceeds its peers: what is above their share in
// the last 5 to 10 s, and above what chance explains. Each of these requests counts in the load as if the
// endpoint still worked on it: for the mean latency of the peers, fading exponentially. So an endpoint
// that declines everything at once gets as many requests as one that is as fast as its peers. Its quick
// responses count as that latency, too. Where all endpoints decline the same share, nothing changes.
//
// The bound of chance is that of a Poisson process: chance standard deviations, and one error. An
// endpoint gets at most 1.5 times its share of the requests (TestDeclineShare), 1.6 times if several loops
// each know only a part.
type excess struct {
	share   float64       // of the endpoint's errors
	latency time.Duration // the mean latency of the peers
	peak    float64       // the mean of the peers' peaks
	load    float64       // of declined requests at loadAt
	loadAt  time.Duration
}

// TestConstants shows what happens at twice and at half of each.
var (
	// At twice chance, it takes two to four times the samples until an endpoint is noticed. At half, one in six
	// of the errors of equal endpoints counts in part as load, by chance. Now it is one in forty.
	chance = 2.0

	// At twice peersMost, the share of the peers is more exact, at twice the cost of a 4xx. At half it is the
	// opposite.
	peersMost = 8

	loadEnd = 8.0 // half-lives after which the load is over: 0.4% of it is left
)

// compare computes the share of the endpoint with the record r, which is number i of all.
func (x *excess) compare(now time.Duration, r *outlier.Record, i int, all []*Endpoint) {
	x.share = 0
	errors, attempts := r.Errors()
	usual := usualOf(now, i, all)
	expected := attempts * usual.share
	expected += chance*math.Sqrt(expected) + 1
	if errors <= expected || usual.latency == 0 {
		return
	}
	x.share, x.latency, x.peak = (errors-expected)/errors, usual.latency, usual.peak
}

// review computes a share anew that may have become less, and drops a load that is over.
func (x *excess) review(now time.Duration, r *outlier.Record, i int, all []*Endpoint) {
	if x.share > 0 {
		x.compare(now, r, i, all)
	}
	if x.at(now) == 0 {
		x.load = 0
	}
}

// add adds the load of declined requests, for the rest of the usual latency.
func (x *excess) add(now, took time.Duration, requests int) {
	if x.share > 0 && took < x.latency {
		x.load = x.at(now) + x.share*float64(requests)*(1-float64(took)/float64(x.latency))
		x.loadAt = now
	}
}

// at returns the load now. It adds up to that of a request that takes as long as usual: the integral of
// 2^(-t/half) is half/ln 2.
func (x *excess) at(now time.Duration) float64 {
	half := math.Ln2 * float64(x.latency)
	age := float64(now - x.loadAt)
	if age >= loadEnd*half {
		return 0
	}
	return x.load * log2.Exp(-age/half)
}

// usual is what an endpoint is compared with: the errors and latencies of its peers.
type usual struct {
	share   float64       // of errors, with one more
	latency time.Duration // mean; 0 means unknown
	peak    float64       // mean of their peaks, see PeakEWMA
}

// usualOf looks at the endpoints that come after number i of all.
func usualOf(now time.Duration, i int, all []*Endpoint) (u usual) {
	errors, attempts, responses, latency := 1.0, 1.0, 0.0, 0.0
	most := min(peersMost, len(all)-1)
	for n := range most {
		o := all[(i+1+n)%len(all)]
		some, of := o.record.Errors()
		errors, attempts = errors+some, attempts+of
		u.peak += o.peak.at(now) / float64(most)
		sum, count := o.record.Latencies()
		latency, responses = latency+float64(sum), responses+float64(count)
	}
	u.share = errors / attempts
	if responses > 0 {
		u.latency = time.Duration(latency / responses)
	}
	return u
}
