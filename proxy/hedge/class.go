package hedge

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

// Classes. Late means something else for a request of 100 keys than for one of 10,000. If they
// share a route, its estimate is about the latency of the long ones: many of these are hedged for
// nothing, and the short ones wait too long for a hedge. So a route also has an estimate for each
// class of requests: by the size of the body in octaves, or by a name that the caller gives.
// Classes that are alike share one. It is that of the route if all are alike, and for a class
// with fewer than minSamples.

const (
	maxClasses   = 16
	maxClassName = 64 // bytes
	smallBits    = 6  // bodies of less than 2^6 bytes are one class

	// classesAfter is how many requests must differ in class from the one before, or have a
	// name, until a route has classes: one with equal requests needs no memory for them.
	classesAfter = 64

	// classShift leaves 8 buckets per doubling, since a route may have 16 histograms.
	classShift   = 2
	classBuckets = histogram.Buckets >> classShift

	// Classes are alike if neither their typical latencies nor their tails differ by more.
	classAlike = 1.4
)

// Class is the number of a class of one route on one loop. 0 means that the request has none:
// one estimate is enough, its name is not valid, or there are too many classes.
type Class uint8

// classes are the classes of a route, of 1.5 KiB each.
type classes struct {
	list    []*class
	octaves [maxClasses]Class // by the octave of the body; 0 means not seen
	updated time.Duration     // when the delays were computed
	group   []*class          // memory for update
	least   time.Duration     // the least typical latency of a class; 0 means that all are alike
}

// class has the latencies of one class, in two halves of a window. A half lasts until it has
// minSamples: from 5 to 30 s.
type class struct {
	name   string // by which the caller calls it; "" means that octave tells it
	octave int

	halves  [2]classHalf
	current int           // index of the half that counts
	since   time.Duration // when that half began

	// Of this class: the lower quartile, and the last finite quantile. Where most are hedged, the
	// first attempts of many are censored, but rarely so many that the quartile is. 0 means unknown.
	typical, tail time.Duration
	delay, median time.Duration // of all classes that are alike; a delay of 0 means those of the route
}

type classHalf struct {
	finite   uint32
	censored uint32
	counts   [classBuckets]uint32
}

func (h *classHalf) samples() int { return int(h.finite) + int(h.censored) }

// octaveOf returns the octave of a size in bytes: 0 for less than 64, 1 for less than 128, and
// so on. The last is 1 MiB and more.
func octaveOf(size int) int { return min(bits.Len(uint(size)>>smallBits), maxClasses-1) }

// rangeOf returns the sizes of an octave, from low to below high.
func rangeOf(octave int) (low, high uint) {
	if octave > 0 {
		low = 1 << (smallBits + octave - 1)
	}
	if octave == maxClasses-1 {
		return low, math.MaxUint
	}
	return low, 1 << (smallBits + octave)
}

// ClassOf returns the class of a request with a body of size bytes. name is the class that its
// caller names, or empty; a name that is too long, or not printable, is no class.
func (r *Route) ClassOf(now time.Duration, name []byte, size int) Class {
	if uint(size)-r.usual < r.usualSpan && len(name) == 0 {
		return 0
	}
	return r.classOf(now, name, size)
}

func (r *Route) classOf(now time.Duration, name []byte, size int) Class {
	octave := octaveOf(size)
	if r.classes == nil {
		low, high := rangeOf(octave)
		r.usual, r.usualSpan = low, high-low
		if r.unequal++; r.unequal < classesAfter || r.Policy.OneClass {
			return 0
		}
		r.classes, r.usualSpan = &classes{}, 0
	}
	if len(name) > 0 {
		return r.classes.named(now, name)
	}
	if c := r.classes.octaves[octave]; c > 0 {
		return c
	}
	return r.classes.add(now, "", octave)
}

func (t *classes) named(now time.Duration, name []byte) Class {
	if !validClassName(name) {
		return 0
	}
	for i, c := range t.list {
		if c.name == string(name) {
			return Class(i + 1)
		}
	}
	if len(t.list) == maxClasses && t.unused(now) < 0 { // before the name is copied
		return 0
	}
	return t.add(now, string(name), 0)
}

func validClassName(name []byte) bool {
	for _, c := range name {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return len(name) <= maxClassName
}

// add makes a class, in place of an unused one if there are maxClasses. It returns 0 if all are
// used.
func (t *classes) add(now time.Duration, name string, octave int) Class {
	at := len(t.list)
	if at < maxClasses {
		t.list = append(t.list, &class{})
	} else if at = t.unused(now); at < 0 {
		return 0
	}
	c, number := t.list[at], Class(at+1)
	if t.octaves[c.octave] == number {
		t.octaves[c.octave] = 0
	}
	*c = class{name: name, octave: octave, since: now}
	if name == "" {
		t.octaves[octave] = number
	}
	return number
}

// unused returns the index of a class that had no request for so long that nothing is known of
// it, or -1.
func (t *classes) unused(now time.Duration) int {
	for i, c := range t.list {
		if now-c.since >= 2*longHalf {
			return i
		}
	}
	return -1
}

// at returns the half of now.
func (c *class) at(now time.Duration) *classHalf {
	h, age := &c.halves[c.current], now-c.since
	if age < shortHalf || age < longHalf && h.samples() < minSamples {
		return h
	}
	if age >= 2*longHalf {
		*h = classHalf{}
	}
	c.current ^= 1
	c.since = now
	h = &c.halves[c.current]
	*h = classHalf{}
	return h
}

// read returns the halves that have not expired.
func (c *class) read(now time.Duration) []classHalf {
	switch age := now - c.since; {
	case age >= 2*longHalf:
		return nil
	case age >= longHalf:
		return c.halves[c.current:][:1]
	}
	return c.halves[:]
}

func (c *class) samples(now time.Duration) (n int) {
	halves := c.read(now)
	for i := range halves {
		n += halves[i].samples()
	}
	return n
}

// observe and censor are as of the Estimator, for a request of class c, which is not 0.
func (t *classes) observe(now, latency time.Duration, c Class) {
	h := t.list[c-1].at(now)
	h.finite++
	h.counts[histogram.BucketOf(latency)>>classShift]++
}

func (t *classes) censor(now time.Duration, c Class) { t.list[c-1].at(now).censored++ }

// classQuantile returns the q-quantile of several classes together. It interpolates within a bucket, since
// the middle of a wide bucket may be sooner than most samples in it. ok is false without samples, and if
// the quantile is a censored sample. Then d is the quantile of the samples that are not censored, which is
// sooner.
func classQuantile(now time.Duration, among []*class, q float64) (d time.Duration, ok bool) {
	var counts [classBuckets]uint32
	var finite, all int
	for _, c := range among {
		halves := c.read(now)
		for i := range halves {
			h := &halves[i]
			finite += int(h.finite)
			all += h.samples()
			for b := range counts {
				counts[b] += h.counts[b]
			}
		}
	}
	rank := max(1, int(math.Ceil(q*float64(all))))
	if ok = rank <= finite; !ok {
		rank = int(math.Ceil(q * float64(finite)))
	}
	seen := 0
	for i, n := range counts {
		if seen += int(n); n > 0 && seen >= rank {
			low, high := histogram.LowOf(i<<classShift), histogram.LowOf((i+1)<<classShift)
			return high - (high-low)*time.Duration(seen-rank)/time.Duration(n), ok
		}
	}
	return 0, false
}

// update computes the delays of all classes: the quantile of those that are alike together, or
// that of the route if all are alike.
func (t *classes) update(now time.Duration, p *Policy, route *estimate) {
	t.updated, t.least = now, 0
	known, unknown := 0, 0
	for i, c := range t.list {
		n := c.samples(now)
		c.delay = 0
		if c.measure(now, t.list[i:i+1], p.Quantile) {
			known += n
		} else {
			unknown += n
		}
	}
	for _, c := range t.list {
		if c.typical == 0 || c.delay > 0 {
			continue
		}
		t.group = t.group[:0]
		n := 0
		for _, other := range t.list {
			if other.delay == 0 && c.alike(other) {
				t.group = append(t.group, other)
				n += other.samples(now)
			}
		}
		// The requests of unknown classes may be the tail of the route.
		if n == known && (float64(unknown) <= (1-p.Quantile)/2*float64(known) || alike(c.tail, route.tail)) {
			return
		}
		share(now, t.group, p)
		if t.least == 0 || c.typical < t.least {
			t.least = c.typical
		}
	}
}

// measure finds the quantiles of c alone, the only element of alone. It reports whether they are
// known.
func (c *class) measure(now time.Duration, alone []*class, q float64) bool {
	c.typical = 0
	if c.samples(now) >= minSamples {
		c.typical, _ = classQuantile(now, alone, 0.25)
	}
	if c.typical == 0 {
		c.tail = 0
		return false
	}
	if tail, ok := classQuantile(now, alone, q); ok {
		c.tail = tail
	}
	return true
}

// alike reports whether c and o, which may be c, are known and alike.
func (c *class) alike(o *class) bool {
	return o.typical > 0 && alike(c.typical, o.typical) && (c.tail == 0 || o.tail == 0 || alike(c.tail, o.tail))
}

func alike(a, b time.Duration) bool { return float64(max(a, b)) <= classAlike*float64(min(a, b)) }

// share gives classes that are alike the estimate of their requests together.
func share(now time.Duration, among []*class, p *Policy) {
	delay, ok := classQuantile(now, among, p.Quantile)
	if !ok {
		known := time.Duration(0)
		for _, c := range among {
			known = max(known, c.tail)
		}
		delay = cmp.Or(known, max(delay, p.MaxDelay))
	}
	median, _ := classQuantile(now, among, 0.5)
	for _, c := range among {
		c.delay, c.median = delay, median
	}
}

// estimateOf returns the delay, not clamped, and the median of class c; 0 means unknown.
func (r *Route) estimateOf(now time.Duration, c Class) (delay, median time.Duration) {
	whole := r.Estimator.estimate(now, r.Policy.Quantile)
	if c == 0 {
		return whole.tail, whole.median
	}
	if now-r.classes.updated >= cacheAge {
		r.classes.update(now, &r.Policy, whole)
	}
	if k := r.classes.list[c-1]; k.delay > 0 {
		return k.delay, k.median
	}
	return whole.tail, whole.median
}

// DelayOf returns how long a request of class c waits for its next hedge; see Estimator.Delay.
func (r *Route) DelayOf(now time.Duration, c Class) time.Duration {
	if c == 0 || r.Policy.Delay > 0 {
		return r.Delay(now)
	}
	delay, median := r.estimateOf(now, c)
	if k := r.classes.list[c-1]; k.delay > 0 && median > r.Policy.MaxDelay {
		return delay
	}
	return r.Policy.clamp(delay)
}

// Scaled returns what the latency would be if the request were of the quickest class: latencies
// by load can be compared only if they don't depend on what requests came.
func (r *Route) Scaled(now, latency time.Duration, c Class) time.Duration {
	if c == 0 {
		return latency
	}
	return r.scaled(now, latency, c)
}

func (r *Route) scaled(now, latency time.Duration, c Class) time.Duration {
	r.estimateOf(now, c)
	k, least := r.classes.list[c-1], r.classes.least
	if k.delay == 0 || least == 0 {
		return latency
	}
	return time.Duration(float64(latency) * float64(least) / float64(k.typical))
}

// ClassReport describes a class of a route.
type ClassReport struct {
	Name          string // as the caller names it, or "128-255 bytes"
	Samples       int    // in the last 5 to 60 s
	Delay, Median time.Duration
	Merged        bool // reports whether Delay and Median are those of the route
}

// Classes describes the classes of the route, at most 16. It is for reports.
func (r *Route) Classes(now time.Duration) (out []ClassReport) {
	if r.classes == nil {
		return nil
	}
	for i, c := range r.classes.list {
		_, median := r.estimateOf(now, Class(i+1))
		out = append(out, ClassReport{
			Name: c.String(), Samples: c.samples(now), Delay: r.DelayOf(now, Class(i+1)), Median: median, Merged: c.delay == 0,
		})
	}
	return out
}

func (c *class) String() string {
	if c.name != "" {
		return c.name
	}
	low, high := rangeOf(c.octave)
	if high == math.MaxUint {
		return fmt.Sprint(low, " bytes and more")
	}
	return fmt.Sprintf("%d-%d bytes", low, high-1)
}
