package choice

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

const ms = time.Millisecond

var usual = Limits{Min: ms, Max: 50 * ms, Budget: .05}

// draws are random latencies.
type draws func(*rand.Rand) time.Duration

func lognormal(median time.Duration, sigma float64) draws {
	return func(r *rand.Rand) time.Duration {
		return time.Duration(float64(median) * math.Exp(sigma*r.NormFloat64()))
	}
}

// stragglers take 45 ms more.
func stragglers(share float64) draws {
	of := lognormal(4600*time.Microsecond, .5)
	return func(r *rand.Rand) time.Duration {
		took := of(r)
		if r.Float64() < share {
			took += 45 * ms
		}
		return took
	}
}

func of(draw draws, n int) (d histogram.Distribution) {
	r := rand.New(rand.NewPCG(1, 2))
	for range n {
		d.Counts[histogram.BucketOf(draw(r))]++
	}
	return d
}

// hedged returns the latencies of n requests with a choice, and hedges per request. Without a choice there are none.
func hedged(draw draws, n int, c Choice) (took []time.Duration, extra float64) {
	r := rand.New(rand.NewPCG(3, 4))
	sent := 0
	for range n {
		first := draw(r)
		if c.Known() && first > c.Delay && r.Float64() < c.Share {
			sent++
			first = min(first, c.Delay+draw(r))
		}
		took = append(took, first)
	}
	slices.Sort(took)
	return took, float64(sent) / float64(n)
}

func meanOfSlowest(sorted []time.Duration) (mean time.Duration) {
	slow := sorted[len(sorted)*99/100:]
	for _, d := range slow {
		mean += d / time.Duration(len(slow))
	}
	return mean
}

func within(got, want time.Duration, share float64) bool {
	return math.Abs(float64(got-want)) <= share*float64(want)
}

// TestBest compares the forecast with what hedges do.
func TestBest(t *testing.T) {
	const n = 100_000
	for _, c := range []struct {
		name   string
		draw   draws
		budget float64
		p99    time.Duration // at most, with hedges
		gain   float64       // share of the mean of the slowest, at least
	}{
		{"5% stragglers", stragglers(.05), .05, 31 * ms, .25},
		{"5% stragglers, a budget of 9%", stragglers(.05), .09, 20 * ms, .4},
		{"2% stragglers", stragglers(.02), .05, 18 * ms, .5},
		{"half a percent are stragglers, and the budget pays half of them", stragglers(.005), .0025, 40 * ms, .1},
		{"lognormal, sigma 1", lognormal(ms, 1), .05, 7 * ms, .3},
	} {
		first := of(c.draw, n)
		in := usual
		in.Budget = c.budget
		got := Best(&first, &Hedges{}, in, Choice{})
		off, _ := hedged(c.draw, n, Choice{})
		on, extra := hedged(c.draw, n, got)
		t.Logf("%s: %+v; P99 %v, extra %.2f%%", c.name, got, on[n*99/100], 100*extra)
		if with := meanOfSlowest(on); !within(got.With, with, .1) || float64(with) > (1-c.gain)*float64(meanOfSlowest(off)) {
			t.Errorf("%s: the mean of the slowest is %v with hedges and %v without, forecast %v", c.name, with, meanOfSlowest(off), got.With)
		}
		if without := meanOfSlowest(off); !within(got.Without, without, .05) {
			t.Errorf("%s: the mean of the slowest is %v without hedges, forecast %v", c.name, without, got.Without)
		}
		if p99 := on[n*99/100]; p99 > c.p99 || extra > 1.1*c.budget {
			t.Errorf("%s: P99 is %v at %.2f%% extra load", c.name, p99, 100*extra)
		}
	}
}

// TestNoGain: where hedges gain too little, nearly none is sent.
func TestNoGain(t *testing.T) {
	const n = 10_000
	even := of(func(r *rand.Rand) time.Duration { return ms + time.Duration(r.Int64N(int64(ms/10))) }, n)
	long := of(func(r *rand.Rand) time.Duration { return 60*ms + time.Duration(r.Int64N(int64(ms/10))) }, n)
	late := of(stragglers(.05), n)
	slow := of(stragglers(1), n) // as the first attempt
	for _, c := range []struct {
		name   string
		first  *histogram.Distribution
		hedges Hedges
		share  float64
	}{
		{"even latencies", &even, Hedges{}, 1},
		{"even latencies above the limit", &long, Hedges{}, 0},
		{"hedges as late as the first attempts", &late, Hedges{Took: slow}, 0},
	} {
		got := Best(c.first, &c.hedges, usual, Choice{})
		if got.Gains() || got.Share != c.share || got.Share*got.Late > 0 || got.Delay > usual.Max {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	if got := Best(&histogram.Distribution{}, &Hedges{}, usual, Choice{}); got.Known() {
		t.Errorf("without requests: %+v", got)
	}
}

// TestCensored: stragglers that were withdrawn are as late as the others.
func TestCensored(t *testing.T) {
	first := of(stragglers(.05), 20_000)
	known := Best(&first, &Hedges{}, usual, Choice{})
	for i := histogram.BucketOf(35 * ms); i < histogram.Buckets; i++ {
		first.Censored += first.Counts[i]
		first.Counts[i] = 0
	}
	if got := Best(&first, &Hedges{}, usual, Choice{}); !within(got.Delay, known.Delay, .25) || !within(time.Duration(1e6*got.Late), time.Duration(1e6*known.Late), .05) {
		t.Errorf("%+v, and %+v if the stragglers are known", got, known)
	}
}

// TestCutOff: hedges that were withdrawn after random times change nothing.
func TestCutOff(t *testing.T) {
	const n = 50_000
	first, draw := of(stragglers(.05), n), lognormal(4600*time.Microsecond, .5)
	r := rand.New(rand.NewPCG(5, 6))
	var whole, parts Hedges
	for range n {
		took, cut := draw(r), draw(r)
		whole.Took.Counts[histogram.BucketOf(took)]++
		if took <= cut {
			parts.Took.Counts[histogram.BucketOf(took)]++
		} else {
			parts.CutOff.Counts[histogram.BucketOf(cut)]++
		}
	}
	want, got := Best(&first, &whole, usual, Choice{}), Best(&first, &parts, usual, Choice{})
	if got.Delay != want.Delay || !within(got.With, want.With, .05) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestLimits: the delay is within its limits, whatever the latencies are.
func TestLimits(t *testing.T) {
	first := of(stragglers(.05), 10_000)
	for _, in := range []Limits{
		{Min: ms, Max: 5 * ms, Budget: .05}, {Min: 30 * ms, Max: 50 * ms, Budget: .05}, {Min: 7 * ms, Max: 7 * ms, Budget: .05},
		{Min: time.Minute, Max: time.Hour, Budget: .05}, {Max: math.MaxInt64, Budget: 1}, {Min: 0, Max: 1, Budget: .05},
	} {
		got := Best(&first, &Hedges{}, in, Choice{})
		if got.Delay < in.Min || got.Delay > in.Max || got.Share*got.Late > 1.1*in.Budget {
			t.Errorf("%+v: %+v", in, got)
		}
	}
}

// TestLast: the delay moves only if another one is clearly better.
func TestLast(t *testing.T) {
	first := of(stragglers(.02), 20_000)
	best := Best(&first, &Hedges{}, usual, Choice{})
	at := boundOf(best.Delay)
	for off, keeps := range map[int]bool{0: true, 8: false, -8: false} {
		last := best
		last.Delay = duration(times[at+off])
		if got := Best(&first, &Hedges{}, usual, last); (got.Delay == last.Delay) != keeps {
			t.Errorf("the delay was %v, and is %v; the best one is %v", last.Delay, got.Delay, best.Delay)
		}
	}
}

// TestLastAtLimit: a delay at one of its limits stays, too, if it is as good as the best.
func TestLastAtLimit(t *testing.T) {
	first := histogram.Distribution{Counts: counts(2*ms, 99_000, 45*ms, 1000)}
	in := Limits{Min: duration(times[boundOf(4*ms)]), Max: duration(times[boundOf(4*ms)+1]), Budget: .05}
	for _, last := range []time.Duration{in.Min, in.Max} {
		if got := Best(&first, &Hedges{}, in, Choice{Delay: last}); got.Delay != last {
			t.Errorf("the delay was %v, and is %v", last, got.Delay)
		}
	}
}

// TestGain: hedges begin if they shorten the slowest by a tenth, and go on as long as they shorten them by half of that.
func TestGain(t *testing.T) {
	var first histogram.Distribution
	first.Counts[histogram.BucketOf(2*ms)], first.Counts[histogram.BucketOf(45*ms)] = 99_000, 1000
	had := Choice{Delay: 5 * ms, With: 1, Without: 2}
	for _, c := range []struct {
		budget         float64 // pays for so many of a hundredth
		begins, goesOn bool
	}{{.0004, false, false}, {.0005, false, false}, {.0007, false, true}, {.001, false, true}, {.0013, true, true}} {
		in := usual
		in.Budget = c.budget
		if got := Best(&first, &Hedges{}, in, Choice{}); got.Gains() != c.begins {
			t.Errorf("a budget of %v begins: %+v", c.budget, got)
		}
		if got := Best(&first, &Hedges{}, in, had); got.Gains() != c.goesOn {
			t.Errorf("a budget of %v goes on: %+v", c.budget, got)
		}
	}
}

// TestSecond: nine of ten hedges respond within Second, also if it is just nine.
func TestSecond(t *testing.T) {
	first := of(stragglers(.05), 10_000)
	var hedges Hedges
	hedges.Took.Counts[histogram.BucketOf(4*ms)] = 600
	hedges.Took.Counts[histogram.BucketOf(8*ms)] = 300
	hedges.Took.Counts[histogram.BucketOf(16*ms)] = 100
	if got, want := Best(&first, &hedges, usual, Choice{}).Second, duration(times[boundOf(8*ms)+1]); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestNoBudget: without a budget the share of late requests that get a hedge is 0. Where no request is late, the share is 1.
func TestNoBudget(t *testing.T) {
	first := of(stragglers(.05), 10_000)
	in := usual
	in.Budget = 0
	for most, share := range map[time.Duration]float64{20 * ms: 0, time.Hour: 1} {
		in.Max = most
		if got := Best(&first, &Hedges{}, in, Choice{}); got.Gains() || got.Share != share || (got.Late > 0) != (share == 0) {
			t.Errorf("up to %v: %+v", most, got)
		}
	}
}

// TestFutile: late requests that no hedge helps are no reason for hedges. Others are.
func TestFutile(t *testing.T) {
	const n = 10_000
	for _, c := range []struct {
		name         string
		late, futile int64 // of n, that take 45 ms; of these
		gains        bool
	}{
		{"a hedge helps all", 300, 0, true},
		{"a hedge helps none", 300, 300, false},
		{"a hedge helps half of them, but the others alone are the slowest hundredth", 300, 150, false},
		{"a hedge helps half of them", 80, 40, true},
		{"few are late, and a hedge helps none", 50, 50, false},
	} {
		first := of(func(r *rand.Rand) time.Duration { return 2*ms + time.Duration(r.Int64N(int64(ms/10))) }, n)
		at := histogram.BucketOf(45 * ms)
		first.Counts[at] = c.late
		hedges := Hedges{Futile: Futile{Of: first.Samples()}}
		hedges.Futile.Took.Counts[at] = c.futile
		got := Best(&first, &hedges, usual, Choice{})
		if got.Gains() != c.gains {
			t.Errorf("%s: %+v", c.name, got)
		}
		if least := float64(c.futile) / n * .9 / model.slowest * float64(45*ms); float64(got.With) < min(least, float64(40*ms)) {
			t.Errorf("%s: the mean of the slowest is %v with hedges", c.name, got.With)
		}
	}
}

// TestAllFutile: there is nothing to choose if no hedge would have helped any request.
func TestAllFutile(t *testing.T) {
	var first histogram.Distribution
	first.Counts[histogram.BucketOf(60*ms)] = 2000
	for _, took := range []histogram.Distribution{{}, of(stragglers(.05), 1000)} {
		if got := Best(&first, &Hedges{Took: took, Futile: Futile{Took: first, Of: first.Samples()}}, usual, Choice{}); got.Gains() || !got.Known() {
			t.Errorf("%+v", got)
		}
	}
}

// TestFutileOfOthers: if other classes have more futile attempts than this class has, hedges are of less use, and do no
// harm.
func TestFutileOfOthers(t *testing.T) {
	first := of(stragglers(.05), 10_000)
	var quick histogram.Distribution
	quick.Counts[histogram.BucketOf(ms/10)] = 5000
	var o outcome
	o.read(&first, &Hedges{Futile: Futile{Took: quick, Of: 10_000}})
	o.try(usual)
	for i := o.from; i <= o.to; i++ {
		if o.tail[i] > 1.0001*o.without() {
			t.Errorf("with hedges after %v the mean of the slowest is %v, without them %v", duration(times[i]), duration(o.tail[i]), duration(o.without()))
		}
	}
}

// TestFutileOfFewer: futile attempts that were counted over a longer time than the requests count as at most all requests.
func TestFutileOfFewer(t *testing.T) {
	first := histogram.Distribution{Counts: counts(10*ms, 900, 45*ms, 100)}
	best := func(of int64) Choice {
		hedges := Hedges{Futile: Futile{Took: histogram.Distribution{Counts: counts(ms, 50, 20*ms, 50)}, Of: of}}
		return Best(&first, &hedges, usual, Choice{})
	}
	if got, want := best(50), best(100); got != want || !got.Gains() {
		t.Errorf("of half as many as are futile %+v, of as many %+v", got, want)
	}
}

func BenchmarkBest(b *testing.B) {
	first, second := of(stragglers(.05), 20_000), of(stragglers(.05), 1000)
	hedges := Hedges{Took: second}
	b.ReportAllocs()
	for b.Loop() {
		Best(&first, &hedges, usual, Choice{})
	}
}
