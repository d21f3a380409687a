package hedge

import "time"

const (
	shortHalf  = 5 * time.Second
	longHalf   = 30 * time.Second
	minSamples = 100

	// The cached quantiles are recomputed when they are this old, or this many
	// samples behind: one scan of the histogram is a microsecond, shared by at
	// least the requests of 50 ms or a thousand of them.
	cacheAge     = 50 * time.Millisecond
	cacheSamples = 1024

	// An endpoint is suspect once it has been silent for this many medians.
	stallMedians = 3
)

// Estimator follows the latency of a route's primary attempts on one loop, over
// a sliding window of two half-windows of 5 s each; while that holds fewer than
// 100 samples, of two half-windows of 30 s. It is fed whatever the route's mode:
// the detection of stalls lives off it too. The zero value is ready to use; it
// takes 11 KiB.
//
// A primary that was cancelled because its hedge won has no latency, but it was
// surely slow: it is right-censored. Left out, it takes the slowest requests out
// of the distribution: the estimate sinks, more requests are hedged, more of the
// slow ones are lost, and hedging runs away until the budget stops it. Recorded
// when it was cut off, it passes a freeze off as a little more than the delay. So
// it counts as slower than every bucket. If the quantile then falls among the
// censored, all that is known is that it lies above the delay they were hedged
// at: the last finite estimate is held, and the budget bounds the rest.
type Estimator struct {
	short, long window
	cache       estimate
	held        time.Duration // last finite quantile; 0: none
}

// estimate is what one scan of the histogram yields.
type estimate struct {
	valid            bool
	at               time.Duration // when it was made
	behind           int           // samples since
	q                float64       // the quantile it is for
	tail             time.Duration // that quantile; 0: unknown
	median           time.Duration // 0: unknown
	tooFew, censored bool          // why tail was not measured
}

// Observe records the latency of a primary attempt that was answered: whether or
// not a hedge was sent, won, or lost. Hedges and retries are not recorded, for
// they start on a different footing.
func (e *Estimator) Observe(now, latency time.Duration) {
	b := bucketOf(latency)
	for _, h := range [...]*half{e.short.at(now, shortHalf), e.long.at(now, longHalf)} {
		h.finite++
		h.counts[b]++
	}
	e.cache.behind++
}

// Censor records a primary attempt whose answer was not waited for: it was
// cancelled because its hedge won, or its deadline passed. A primary that never
// reached the endpoint, or whose caller went away, is not recorded at all.
func (e *Estimator) Censor(now time.Duration) {
	e.short.at(now, shortHalf).censored++
	e.long.at(now, longHalf).censored++
	e.cache.behind++
}

// Delay is how long to wait before the next hedge. With p.Delay set it is that;
// otherwise the p.Quantile of the latency of primaries, clamped. It is p.MaxDelay
// while too little is known. It refreshes a cache, and so is cheap enough to ask
// for every request.
func (e *Estimator) Delay(now time.Duration, p *Policy) time.Duration {
	if p.Delay > 0 {
		return p.Delay
	}
	tail := e.estimate(now, p.Quantile).tail
	if tail == 0 {
		return p.MaxDelay
	}
	return min(max(tail, p.MinDelay), p.MaxDelay)
}

// StallAfter is how long an endpoint that has requests pending may stay silent
// before it counts as stalled: three medians, and not less than the delay of a
// hedge. While the median is unknown it is not less than p.MaxDelay either. It is
// cached like Delay.
func (e *Estimator) StallAfter(now time.Duration, p *Policy) time.Duration {
	after := max(stallMedians*e.estimate(now, p.Quantile).median, e.Delay(now, p))
	if e.cache.tooFew {
		after = max(after, p.MaxDelay)
	}
	return after
}

// SilentAfter is how long an endpoint that has something to answer is silent when
// it stopped with the request that is late now: the delay, less the median that
// the request may have been there before the stop. Less than two medians of
// silence are nothing unusual. It is shorter than StallAfter, for what counts is
// whether many are silent at once. It is cached like Delay.
func (e *Estimator) SilentAfter(now time.Duration, p *Policy) time.Duration {
	delay, median := e.Delay(now, p), e.estimate(now, p.Quantile).median
	return max(delay-median, 2*median)
}

// Quantile reads the q-quantile of the latency of primaries, of the last 5-10 s
// or else 30-60 s. ok is false with fewer than 100 samples and when the quantile
// falls among the censored. It scans the histogram: for reports, not for every
// request.
func (e *Estimator) Quantile(now time.Duration, q float64) (d time.Duration, ok bool) {
	s, ok := e.read(now)
	if !ok {
		return 0, false
	}
	return s.quantile(q)
}

// Median is Quantile of one half.
func (e *Estimator) Median(now time.Duration) (time.Duration, bool) {
	return e.Quantile(now, 0.5)
}

// read picks the window; ok is false when even the long one has too few samples.
func (e *Estimator) read(now time.Duration) (s snapshot, ok bool) {
	if s = e.short.read(now, shortHalf); s.samples() >= minSamples {
		return s, true
	}
	s = e.long.read(now, longHalf)
	return s, s.samples() >= minSamples
}

// estimate returns the cached quantiles, made anew when they are out of date.
func (e *Estimator) estimate(now time.Duration, q float64) *estimate {
	c := &e.cache
	if c.valid && c.q == q && now-c.at < cacheAge && c.behind < cacheSamples {
		return c
	}
	if c.q != q {
		e.held = 0
	}
	*c = estimate{valid: true, at: now, q: q}
	s, ok := e.read(now)
	if !ok {
		// An estimate from before the silence says nothing about after it.
		c.tooFew, e.held = true, 0
		return c
	}
	c.median, _ = s.quantile(0.5)
	if tail, ok := s.quantile(q); ok {
		e.held = tail
	} else {
		c.censored = true
	}
	c.tail = e.held
	return c
}
