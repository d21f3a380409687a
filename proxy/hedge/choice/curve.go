package choice

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

// A bucket is four of the histogram: there are 8 per doubling. bounds is how many bounds they have.
const (
	shift       = 2
	perDoubling = 8
	bounds      = histogram.Buckets>>shift + 1
)

// times are the bounds in microseconds.
var times = func() (t [bounds]float64) {
	for i := range t {
		t[i] = micros(histogram.LowOf(i << shift))
	}
	return t
}()

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func duration(micros float64) time.Duration { return time.Duration(micros * float64(time.Microsecond)) }

// boundOf returns the latest bound that is not after d.
func boundOf(d time.Duration) int { return histogram.BucketOf(d) >> shift }

// curve has a number for each bound. Of latencies it is the share of the requests that take longer.
type curve [bounds]float64

// read estimates the curve of the latencies took, and of others that are longer than the times in cutOff. It returns
// the bound after the longest latency, or 0 if there is none. Censored latencies are longer than all others: the
// curve then ends above 0, one doubling after the longest.
func (c *curve) read(took, cutOff *histogram.Distribution) (end int) {
	left := took.Samples() + cutOff.Samples()
	share := 1.0
	for b := range bounds - 1 {
		c[b] = share
		ended, cut := int64(0), int64(0)
		for i := b << shift; i < (b+1)<<shift; i++ {
			ended += took.Counts[i]
			cut += cutOff.Counts[i]
		}
		if ended > 0 {
			share *= 1 - float64(ended)/float64(left)
			end = b + 1
		}
		left -= ended + cut
	}
	c[bounds-1] = share
	if took.Censored > 0 && end > 0 {
		end = min(end+perDoubling, bounds-1)
	}
	return end
}
