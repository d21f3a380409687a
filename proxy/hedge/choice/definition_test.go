package choice

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

// TestDefinition compares choices with those by the definitions of the package comment, computed without any care for time.
func TestDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	cases := 120
	if testing.Short() {
		cases = 40
	}
	for i := range cases {
		first, hedges, in, last := anyCase(r)
		want := define(&first, &hedges, in, Choice{})
		got := Best(&first, &hedges, in, Choice{})
		if !alike(got, want) {
			t.Fatalf("case %d: without a last choice %+v, want %+v", i, got, want)
		}
		for _, from := range []Choice{last, {Delay: last.Delay, With: 1, Without: 2}} {
			if got, want := Best(&first, &hedges, in, from), define(&first, &hedges, in, from); !alike(got, want) {
				t.Fatalf("case %d: after %+v it is %+v, want %+v", i, from, got, want)
			}
		}
	}
}

// TestDefinitionOfExtremes: it is as defined where all latencies are the shortest that are told apart, where some are the longest, and
// where one request was given up.
func TestDefinitionOfExtremes(t *testing.T) {
	for name, first := range map[string]histogram.Distribution{
		"the longest":                    {Counts: counts(2*ms, 990, time.Hour, 5), Censored: 5},
		"the shortest":                   {Counts: counts(0, 1000)},
		"the shortest, and one given up": {Counts: counts(0, 1000), Censored: 1},
		"one given up":                   {Counts: counts(2*ms, 990, 20*ms, 5), Censored: 1},
	} {
		for _, most := range []time.Duration{50 * ms, math.MaxInt64} {
			for _, least := range []time.Duration{0, ms} {
				in := Limits{Min: least, Max: most, Budget: .05}
				if got, want := Best(&first, &Hedges{}, in, Choice{}), define(&first, &Hedges{}, in, Choice{}); !alike(got, want) {
					t.Errorf("%s, from %v to %v: %+v, want %+v", name, least, most, got, want)
				}
			}
		}
	}
}

// counts returns the counts of some latencies: pairs of a latency and a number of requests.
func counts(pairs ...time.Duration) (n [histogram.Buckets]int64) {
	for i := 0; i < len(pairs); i += 2 {
		n[histogram.BucketOf(pairs[i])] += int64(pairs[i+1])
	}
	return n
}

// TestNothingKnown: nothing is chosen for requests of which none, or none but those that were given up, is known.
func TestNothingKnown(t *testing.T) {
	for _, censored := range []int64{0, 1000} {
		if got := Best(&histogram.Distribution{Censored: censored}, &Hedges{}, usual, Choice{}); got != (Choice{}) {
			t.Errorf("of %d that were given up: %+v", censored, got)
		}
	}
}

// alike reports whether choices differ by no more than rounding.
func alike(a, b Choice) bool {
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(math.Abs(a), math.Abs(b)) }
	times := func(a, b time.Duration) bool { return near(float64(a), float64(b)) || max(a-b, b-a) <= 1 }
	return times(a.Delay, b.Delay) && times(a.Second, b.Second) && times(a.With, b.With) && times(a.Without, b.Without) &&
		near(a.Share, b.Share) && near(a.Late, b.Late) && a.Gains() == b.Gains() && a.Known() == b.Known()
}

// anyCase returns latencies, limits and a choice, at random.
func anyCase(r *rand.Rand) (first histogram.Distribution, hedges Hedges, in Limits, last Choice) {
	some := func(n int) (d histogram.Distribution) {
		median, sigma := time.Duration(float64(ms)*math.Exp2(r.Float64()*8-4)), r.Float64()*1.5
		late, more := .1*r.Float64()*r.Float64(), time.Duration(float64(ms)*math.Exp2(r.Float64()*8))
		for range n {
			took := lognormal(median, sigma)(r)
			if r.Float64() < late {
				took += more
			}
			d.Counts[histogram.BucketOf(took)]++
		}
		if r.IntN(4) == 0 {
			d.Censored = r.Int64N(int64(n/50) + 2)
		}
		if r.IntN(4) == 0 {
			d.Counts[histogram.Buckets-1] = r.Int64N(int64(n/50) + 2)
		}
		return d
	}
	first = some(20 + r.IntN(5000))
	switch r.IntN(3) {
	case 0:
		hedges.Took = some(95 + r.IntN(10))
	case 1:
		hedges.Took, hedges.CutOff = some(100+r.IntN(400)), some(r.IntN(400))
	}
	switch r.IntN(4) {
	case 0: // a part of those that are late
		hedges.Futile.Of = first.Samples()
		for i := histogram.Buckets - 1; i > histogram.Buckets/4; i-- {
			hedges.Futile.Took.Counts[i] = r.Int64N(first.Counts[i] + 1)
		}
	case 1: // of other classes
		hedges.Futile.Took = some(100)
		hedges.Futile.Of = 20 + r.Int64N(300)
	}
	bound := func() time.Duration {
		d := duration(times[r.IntN(bounds*3/4)])
		if r.IntN(2) == 0 {
			d += time.Duration(r.IntN(1000))
		}
		return d
	}
	a, b := bound(), bound()
	in = Limits{Min: min(a, b), Max: max(a, b), Budget: []float64{.02, .05, .1, .3, 1}[r.IntN(5)]}
	switch r.IntN(4) {
	case 0:
		in.Min = 0
	case 1:
		in.Max = time.Hour
	}
	return first, hedges, in, Choice{Delay: bound()}
}

// laterThan returns the share of requests that take longer than each bound (Kaplan and Meier), and the bound after the longest.
func laterThan(took, cutOff *histogram.Distribution) (share []float64, end int) {
	count := func(d *histogram.Distribution, from, to int) (n float64) {
		for _, c := range d.Counts[from<<shift : to<<shift] {
			n += float64(c)
		}
		return n
	}
	share = []float64{1}
	for b := range bounds - 1 {
		left := count(took, b, bounds-1) + count(cutOff, b, bounds-1) + float64(took.Censored+cutOff.Censored)
		ended := count(took, b, b+1)
		if ended > 0 {
			end = b + 1
		}
		share = append(share, share[b]*(1-ended/max(left, 1)))
	}
	if end > 0 && took.Censored > 0 {
		end = min(end+perDoubling, bounds-1)
	}
	return share, end
}

// define returns the choice by its definition.
func define(first *histogram.Distribution, hedges *Hedges, in Limits, last Choice) Choice {
	var nobody histogram.Distribution
	later, end := laterThan(first, &nobody)
	if end == 0 {
		return Choice{}
	}
	futile := make([]float64, bounds)
	if n := hedges.Futile.Took.Samples(); n > 0 {
		all, _ := laterThan(&hedges.Futile.Took, &nobody)
		for i := range futile {
			futile[i] = min(min(float64(n)/float64(hedges.Futile.Of), 1)*all[i], later[i])
		}
	}
	helped := func(i int) float64 { return later[i] - futile[i] }
	second := make([]float64, bounds)
	switch {
	case hedges.Took.Samples() >= model.enough:
		second, _ = laterThan(&hedges.Took, &hedges.CutOff)
	case helped(0) > 0:
		for i := range second {
			second[i] = min(helped(i)/helped(0), 1)
		}
	}
	// The mean of the slowest, if the share after is later than each bound.
	meanOf := func(after func(i int) float64) (mean float64) {
		for i := range end {
			mean += min((after(i)+after(i+1))/2, model.slowest) / model.slowest * (times[i+1] - times[i])
		}
		return mean
	}
	silent := func(since float64) float64 {
		k, _ := slices.BinarySearch(times[1:], since) // times[k+1] is the first bound that is not before
		return second[k] + (since-times[k])/(times[k+1]-times[k])*(second[k+1]-second[k])
	}
	share := func(at int) float64 {
		late := helped(at)
		if late > in.Budget+model.doubt*math.Sqrt(late*(1-late)/float64(first.Samples())) {
			return in.Budget / late
		}
		return 1
	}
	sent := func(at int) float64 { return share(at) * helped(at) }
	with := func(at int) float64 {
		return meanOf(func(i int) float64 {
			if i <= at {
				return later[i]
			}
			return futile[i] + helped(i)*(1-share(at)*(1-silent(times[i]-times[at])))
		})
	}
	without := meanOf(func(i int) float64 { return later[i] })

	to := min(boundOf(in.Max), end)
	from := to
	for from > 0 && duration(times[from-1]) >= in.Min {
		from--
	}
	tails := make([]float64, bounds)
	best := from
	for i := from; i <= to; i++ {
		if tails[i] = with(i); tails[i] < tails[best] {
			best = i
		}
	}
	good := func(i int) bool { return i >= from && i <= to && tails[i] <= (1+model.near)*tails[best] }
	pick := boundOf(last.Delay)
	if !good(pick) {
		pick = best
		for i := from; i <= to; i++ {
			if good(i) && (!good(pick) || sent(i) < sent(pick) || sent(i) == sent(pick) && i < pick) {
				pick = i
			}
		}
	}
	needed := model.gain
	if last.With < last.Without {
		needed /= 2
	}
	c := Choice{Share: share(pick), Without: duration(without), With: duration(tails[pick])}
	if tails[pick] > (1-needed)*without {
		pick, c.With, c.Share = to, c.Without, share(to)
		if later[to] > 0 {
			c.Share = 0
		}
	}
	c.Delay, c.Late = min(max(duration(times[pick]), in.Min), in.Max), later[pick]
	at := slices.IndexFunc(second, func(silent float64) bool { return silent <= .1 })
	if at < 0 {
		at = bounds - 1
	}
	c.Second = duration(times[at])
	return c
}
