package hedge

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

// Widths of halves of windows. TestConstants shows what happens at twice and at half of each.
var (
	// shortHalf is as short as 20 requests a second allow, which have 100 samples then. With fewer samples the long window
	// decides, for a minute after trouble.
	shortHalf = 5 * time.Second

	// longHalf is as long as 100 samples of 3 requests a second take. A longer time follows a change later.
	longHalf = 30 * time.Second

	// recentHalf is the second in which trouble is over. Trouble of a second, such as caches that expire together, must
	// not raise the delay for ten: once latencies have dropped to 1/dropFactor, only the last second or two count.
	recentHalf = time.Second
)

// These are variables so that TestConstants can show what happens at twice and at half of each.
var (
	// minSamples is how many samples an estimate has at least. Three of 100 are beyond the quantile 0.97.
	minSamples uint64 = 100

	// minSlowest is how many samples the best delay is made of at least. Ten of 1000 are beyond P99.
	minSlowest int64 = 1000

	// minRecent is how many samples the last second or two must have, and dropFactor how much they must be quicker, for
	// a drop. Of 500 latencies that are lognormal with sigma 1, chance makes a factor of 1.4 once in a thousand times.
	minRecent  uint64 = 500
	dropFactor        = 1.4

	// The cached quantiles are recomputed at this age, or after this many samples. A scan
	// takes a microsecond, which the requests of 50 ms share, or a thousand of them.
	cacheAge     = 50 * time.Millisecond
	cacheSamples = 1024

	// deviations is by how many standard errors a share must differ to have changed. Chance makes three once in a
	// thousand times.
	deviations = 3.0

	// stallMedians is the number of medians of silence after which an endpoint counts as stalled. Of lognormal latencies
	// with sigma 0.5, one in 70 is longer than three medians.
	stallMedians time.Duration = 3
)

// Estimator measures the latency of a route's primary attempts on one loop, in two half-windows
// of 5 s, or of 30 s while those hold fewer than 100 samples. It is fed in every mode, because
// the detection of stalls needs it too. The zero value is ready to use. It takes 17 KiB, and as much again once there
// was a primary that no hedge would have helped.
//
// A primary that was cancelled because its hedge won has no latency, but was certainly slow: it
// is right-censored. Such a primary counts as slower than every bucket. If it did not count, the
// estimate would sink, more requests would be hedged, and more of the slow ones would be missing,
// until the budget is spent. If it counted with the time until its cancellation, a freeze would
// look like a little more than the delay. If the quantile falls among the censored samples, the
// quantile is only known to lie above the delay: the Estimator keeps the last finite estimate, and
// the budget bounds the hedges.
type Estimator struct {
	windows
	futile windows // of these primaries, those that no hedge would have helped

	cache      estimate
	lastFinite time.Duration // last finite quantile; 0 means none
}

// estimate is the result of one scan of the histogram.
type estimate struct {
	until   time.Duration // when it is outdated
	left    int           // as many samples from now it is outdated, too
	q       float64       // the quantile that tail estimates
	tail    time.Duration // that quantile; 0 means unknown
	median  time.Duration // 0 means unknown
	tooFew  bool          // there were too few samples to measure
	dropped bool          // latencies have dropped, see dropFactor
}

// windows are latencies in windows of several lengths.
type windows struct{ recent, short, long histogram.Window }

func (w *windows) add(now, latency time.Duration) {
	w.recent.At(now, recentHalf).Add(latency)
	w.short.At(now, shortHalf).Add(latency)
	w.long.At(now, longHalf).Add(latency)
}

func (w *windows) censor(now time.Duration) {
	w.recent.At(now, recentHalf).Censor()
	w.short.At(now, shortHalf).Censor()
	w.long.At(now, longHalf).Censor()
}

func (w *windows) clone() windows {
	return windows{w.recent.Clone(), w.short.Clone(), w.long.Clone()}
}

// clone returns an Estimator with the same samples: requests of the last configuration may still add some to e.
func (e *Estimator) clone() Estimator {
	c := *e
	c.windows, c.futile = e.windows.clone(), e.futile.clone()
	return c
}

// Observe records the latency of a primary that got a response, whether or not a hedge was
// sent or won. Hedges and retries are not recorded: they start under other conditions.
func (e *Estimator) Observe(now, latency time.Duration) {
	e.add(now, latency)
	e.cache.left--
}

// Futile records that no hedge would have helped a primary with this latency, which Observe records too.
func (e *Estimator) Futile(now, latency time.Duration) { e.futile.add(now, latency) }

// FutileCensor records that no hedge would have helped a primary that was given up, which Censor records too.
func (e *Estimator) FutileCensor(now time.Duration) { e.futile.censor(now) }

// Censor records a primary that ended before its response: its hedge won, or its deadline
// passed. One that never reached the endpoint, or whose caller disconnected, is not recorded.
func (e *Estimator) Censor(now time.Duration) {
	e.censor(now)
	e.cache.left--
}

// Distribution returns the latency of primaries in the last 30 to 60 s. It is for reports, not for
// each request.
func (e *Estimator) Distribution(now time.Duration) histogram.Distribution {
	return e.long.Distribution(now, longHalf)
}

// differ reports whether the slow requests in short are more or fewer than chance explains by those in long.
func differ(short, long *histogram.Distribution) bool {
	usual, ok := long.Quantile(usualQuantile)
	if !ok {
		usual = math.MaxInt64 // then compare the censored ones
	}
	share := long.LaterThan(usual)
	return math.Abs(short.LaterThan(usual)-share) > deviations*math.Sqrt(share/float64(short.Samples()))
}

// Delay returns how long to wait before the next hedge where that is not the best delay: p.Delay if set,
// else p.Quantile of the latency of primaries, clamped; p.MaxDelay while there are too few samples. The quantile
// is cached, so that Delay is cheap enough for each request.
func (e *Estimator) Delay(now time.Duration, p *Policy) time.Duration {
	if p.Delay > 0 {
		return p.Delay
	}
	return p.clamp(e.estimate(now, p.quantile()).tail)
}

// StallAfter returns after how long without a response an endpoint with pending requests
// counts as stalled: three medians, and at least the delay of a hedge; with too few samples at
// least p.MaxDelay. It is cached like Delay.
func (e *Estimator) StallAfter(now time.Duration, p *Policy) time.Duration {
	after := max(stallMedians*e.estimate(now, p.quantile()).median, e.Delay(now, p))
	if e.cache.tooFew {
		after = max(after, p.MaxDelay)
	}
	return after
}

// samples returns the number of samples in the last 30 to 60 s.
func (e *Estimator) samples(now time.Duration) uint64 {
	s := e.long.Read(now, longHalf)
	return s.Samples()
}

// primaryLatencies returns the latencies of primaries in the longest window in which the latencies have not changed, and
// those of them that no hedge would have helped: these come and go at random, which is no change. The best delay is made
// of them. ok is false if there are too few.
func (e *Estimator) primaryLatencies(now time.Duration) (all, futile histogram.Distribution, ok bool) {
	short, futileShort := e.short.Distribution(now, shortHalf), e.futile.short.Distribution(now, shortHalf)
	if e.estimate(now, usualQuantile).dropped {
		recent, futileRecent := e.recent.Distribution(now, recentHalf), e.futile.recent.Distribution(now, recentHalf)
		if futileShort.Samples() == 0 || fell(without(recent, &futileRecent), without(short, &futileShort)) {
			return recent, futileRecent, true
		}
	}
	long, futileLong := e.long.Distribution(now, longHalf), e.futile.long.Distribution(now, longHalf)
	if short.Samples() >= minSlowest && differ(without(short, &futileShort), without(long, &futileLong)) {
		return short, futileShort, true
	}
	return long, futileLong, long.Samples() >= minSlowest
}

// without returns all that are not among some.
func without(all histogram.Distribution, some *histogram.Distribution) *histogram.Distribution {
	all.Remove(some)
	return &all
}

// fell reports whether the slow requests in recent are clearly quicker than those in short.
func fell(recent, short *histogram.Distribution) bool {
	is, ok := recent.Quantile(usualQuantile)
	was, known := short.Quantile(usualQuantile)
	return ok && (!known || dropFactor*float64(is) < float64(was))
}

// read picks the window. ok is false if even the long one has too few samples.
func (e *Estimator) read(now time.Duration) (s histogram.Snapshot, ok bool) {
	if s = e.short.Read(now, shortHalf); s.Samples() >= minSamples {
		return s, true
	}
	s = e.long.Read(now, longHalf)
	return s, s.Samples() >= minSamples
}

// estimate returns the cached quantiles, and recomputes them if they are outdated.
func (e *Estimator) estimate(now time.Duration, q float64) *estimate {
	c := &e.cache
	if c.q == q && now < c.until && c.left > 0 {
		return c
	}
	if c.q != q {
		e.lastFinite = 0
	}
	*c = estimate{until: now + cacheAge, left: cacheSamples, q: q}
	s, ok := e.read(now)
	if !ok {
		// An estimate from before a pause in traffic doesn't hold after it.
		c.tooFew, e.lastFinite = true, 0
		return c
	}
	c.median, _ = s.Quantile(0.5)
	if tail, ok := s.Quantile(q); ok {
		e.lastFinite = tail
	}
	c.tail = e.lastFinite
	if s = e.recent.Read(now, recentHalf); s.Samples() >= minRecent {
		if tail, ok := s.Quantile(q); ok && dropFactor*float64(tail) < float64(c.tail) {
			c.tail, c.dropped = tail, true
			c.median, _ = s.Quantile(0.5)
		}
	}
	return c
}
