package choice

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

// Choice is when a request gets a hedge. The zero value means that nothing is known.
type Choice struct {
	// Delay is how long the first attempt is in flight before the hedge.
	Delay time.Duration
	// Share is the share of the requests later than Delay that get a hedge.
	Share float64
	// Late is the share of first attempts that take longer than Delay.
	Late float64
	// Second is the time within which nine of ten hedges respond.
	Second time.Duration
	// Without is the mean latency of the slowest requests without hedges, and With the same with hedges. They are
	// equal if no delay gains enough. Delay is then the longest latency seen, within the limits.
	Without, With time.Duration
}

// Known reports whether something is known.
func (c *Choice) Known() bool { return c.Delay > 0 }

// Gains reports whether hedges gain enough.
func (c *Choice) Gains() bool { return c.With < c.Without }

// Limits bound a choice.
type Limits struct {
	Min, Max time.Duration // of the delay
	Budget   float64       // hedges per request
}

// Hedges is what is known of hedges.
type Hedges struct {
	Took   histogram.Distribution // latencies of hedges of late requests
	CutOff histogram.Distribution // hedges that were withdrawn, by the time after which that was
	Futile Futile
}

// Futile are the latencies of first attempts that no hedge would have helped, among so many.
type Futile struct {
	Took histogram.Distribution
	Of   int64
}

// Best returns the best choice for first attempts with the latencies first. It keeps the delay of last, unless
// another one is clearly better. Best returns the zero Choice if there are no first attempts.
func Best(first *histogram.Distribution, hedges *Hedges, in Limits, last Choice) Choice {
	var o outcome
	if o.read(first, hedges); o.end == 0 {
		return Choice{}
	}
	o.try(in)
	gain := model.gain
	if last.Gains() {
		gain /= 2
	}
	pick := o.pick(boundOf(last.Delay))
	if o.tail[pick] > (1-gain)*o.without() {
		return o.none(in)
	}
	return o.choice(pick, in, o.tail[pick])
}

// outcome is what is known of latencies with hedges and without, by bound.
type outcome struct {
	end     int // the bound after the longest latency
	samples float64
	first   curve // of first attempts
	futile  curve // of those that no hedge would have helped, as a share of all
	hedges  curve // of hedges
	before  curve // what latencies until the bound add to the mean of the slowest without hedges, in microseconds

	from, to   int   // the delays that were tried
	share      curve // of the late requests that get a hedge, by the delay
	tail, sent curve // the mean of the slowest in microseconds, and hedges per request, by the delay
}

// read reads the latencies.
func (o *outcome) read(first *histogram.Distribution, hedges *Hedges) {
	o.end = o.first.read(first, &histogram.Distribution{})
	o.samples = float64(first.Samples())
	o.readFutile(&hedges.Futile)
	if all := o.helped(0); all > 0 { // else hedges are of no use, however long they take
		for i := range o.hedges { // as first attempts
			o.hedges[i] = min(o.helped(i)/all, 1)
		}
	}
	if hedges.Took.Samples() >= model.enough {
		o.hedges.read(&hedges.Took, &hedges.CutOff)
	}
	for i := range o.end {
		o.before[i+1] = o.before[i] + slowest(o.first[i], o.first[i+1], times[i+1]-times[i])
	}
}

func (o *outcome) readFutile(f *Futile) {
	n := f.Took.Samples()
	if n == 0 {
		return
	}
	o.futile.read(&f.Took, &histogram.Distribution{})
	share := min(float64(n)/float64(f.Of), 1)
	for i := range o.futile {
		o.futile[i] = min(share*o.futile[i], o.first[i])
	}
}

// helped returns the share of the requests that take longer than a bound and that a hedge may help. The share may rise with
// the bound if futile attempts of other classes are among those counted.
func (o *outcome) helped(at int) float64 { return o.first[at] - o.futile[at] }

// slowest returns what a time of a width adds to the mean of the slowest requests, in which the share of requests that
// are later falls from a to b. That mean is the integral over all times of min(later, s)/s, where s is the share of the
// slowest.
func slowest(a, b, width float64) float64 {
	return min((a+b)/2, model.slowest) / model.slowest * width
}

// without returns the mean of the slowest without hedges.
func (o *outcome) without() float64 { return o.before[o.end] }

// try computes what comes of each delay within limits, but at least of one.
func (o *outcome) try(in Limits) {
	o.to = min(boundOf(in.Max), o.end)
	o.from = min(boundOf(in.Min), o.to)
	if o.from < o.to && times[o.from] < micros(in.Min) {
		o.from++
	}
	for i := o.from; i <= o.to; i++ {
		o.share[i] = o.paid(o.helped(i), in.Budget)
		o.sent[i] = o.share[i] * o.helped(i)
		o.tail[i] = o.hedged(i)
	}
}

// paid returns the share of the late requests that the budget pays for. If late may by chance be more than budget, the
// tokens decide.
func (o *outcome) paid(late, budget float64) float64 {
	if deviation := math.Sqrt(late * (1 - late) / o.samples); late <= budget+model.doubt*deviation {
		return 1
	}
	return budget / late
}

// hedged returns the mean of the slowest with the delay at a bound.
func (o *outcome) hedged(at int) float64 {
	sum, from, k := o.before[at], o.first[at], 0
	for i := at + 1; i <= o.end; i++ {
		since := times[i] - times[at]
		for times[k+1] < since {
			k++
		}
		part := (since - times[k]) / (times[k+1] - times[k])
		silent := o.hedges[k] + part*(o.hedges[k+1]-o.hedges[k])
		to := o.futile[i] + o.helped(i)*(1-o.share[at]*(1-silent))
		sum += slowest(from, to, times[i]-times[i-1])
		from = to
	}
	return sum
}

// pick returns the best delay. It is last if that is as good.
func (o *outcome) pick(last int) int {
	best := o.least(func(int) bool { return true }, &o.tail)
	good := func(i int) bool { return o.tail[i] <= (1+model.near)*o.tail[best] }
	if last >= o.from && last <= o.to && good(last) {
		return last
	}
	return o.least(good, &o.sent)
}

// least returns the delay with the least value among some of those that were tried.
func (o *outcome) least(among func(int) bool, value *curve) int {
	least := -1
	for i := o.from; i <= o.to; i++ {
		if among(i) && (least < 0 || value[i] < value[least]) {
			least = i
		}
	}
	return least
}

func (o *outcome) choice(at int, in Limits, with float64) Choice {
	c := Choice{
		Delay: min(max(duration(times[at]), in.Min), in.Max), Share: o.share[at], Late: o.first[at],
		Without: duration(o.without()), With: duration(with),
	}
	for i, silent := range o.hedges {
		if c.Second = duration(times[i]); silent <= .1 {
			break
		}
	}
	return c
}

// none is the choice if no delay gains enough: no request has a hedge unless it is later than all others were.
func (o *outcome) none(in Limits) Choice {
	c := o.choice(o.to, in, o.without())
	if c.Late > 0 {
		c.Share = 0
	}
	return c
}
