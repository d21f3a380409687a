package class

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/choice"
	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

const (
	maxClasses   = 16 // of a route, in 24 KiB
	maxClassName = 64 // bytes
	smallBits    = 6  // bodies of less than 2^6 bytes are one class

	// classShift leaves 8 buckets per doubling, since a route may have 32 halves of windows.
	classShift   = 2
	classBuckets = histogram.Buckets >> classShift
)

// ID is the number of a class of one Set. 0 means that the request has none: one estimate is enough, its
// name is not valid, or there are too many classes.
type ID uint8

// Set is the classes of a route on one loop, of 1.5 KiB each. The zero value has none, and takes no
// memory for them until requests differ.
type Set struct {
	Disabled bool // reports whether all requests are of no class

	*table      // nil means one class so far
	unequal int // requests that may need classes, counted while table is nil

	// The octave of the latest body, while table is nil: from usual, usualSpan sizes.
	usual, usualSpan uint
}

// Inherit takes over the classes of last, the Set of the route's last configuration. If the quantile has
// changed, what is known of the tails is forgotten.
func (s *Set) Inherit(last *Set, otherQuantile bool) {
	if s.Disabled {
		return
	}
	s.table = last.table // usualSpan is 0
	if s.table != nil && otherQuantile {
		for _, c := range s.list {
			c.tail = 0
		}
	}
}

type table struct {
	list    []*class
	octaves [maxClasses]ID // by the octave of the body; 0 means not seen
	updated time.Duration  // when the delays were computed
	group   []*class       // memory for update
	least   time.Duration  // the least typical latency of a class; 0 means that all are alike
}

// Whole is what is known of all requests of the route.
type Whole struct {
	Quantile float64       // that the delays estimate
	MaxDelay time.Duration // of a class whose quantile is not known
	Tail     time.Duration // the quantile for all requests; 0 means unknown
}

// class has the latencies of one class, in two halves of a window. A half lasts until it has enough
// samples: from 5 to 30 s.
type class struct {
	name   string // that callers give; "" means a class of body sizes
	octave int    // of the body sizes

	halves  [2]classHalf
	current int           // index of the half that counts
	since   time.Duration // when that half began

	// Of this class: the lower quartile, and the last finite quantile; 0 means unknown. Where most requests
	// are hedged, many first attempts are censored, but rarely so many that the quartile is unknown.
	typical, tail time.Duration
	// Of all classes that are alike; a delay of 0 means that the class has the delay of the route.
	delay, median time.Duration
	alikes        []*class // those classes, if it is the first one of them

	best     choice.Choice // of these
	bestFrom time.Duration // when it was made
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

// Of returns the class of a request with a body of size bytes. name is the class that the caller of the
// request names, or empty. A name that is too long, or not printable, is no class.
func (s *Set) Of(now time.Duration, name []byte, size int) ID {
	if uint(size)-s.usual < s.usualSpan && len(name) == 0 {
		return 0
	}
	return s.find(now, name, size)
}

func (s *Set) find(now time.Duration, name []byte, size int) ID {
	octave := octaveOf(size)
	if s.table == nil {
		low, high := rangeOf(octave)
		s.usual, s.usualSpan = low, high-low
		if s.unequal++; s.unequal < model.after || s.Disabled {
			return 0
		}
		s.table, s.usualSpan = &table{}, 0
	}
	if len(name) > 0 {
		return s.named(now, name)
	}
	if c := s.octaves[octave]; c > 0 {
		return c
	}
	return s.add(now, "", octave)
}

func (t *table) named(now time.Duration, name []byte) ID {
	if !validClassName(name) {
		return 0
	}
	for i, c := range t.list {
		if c.name == string(name) {
			return ID(i + 1)
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
func (t *table) add(now time.Duration, name string, octave int) ID {
	at := len(t.list)
	if at < maxClasses {
		t.list = append(t.list, &class{})
	} else if at = t.unused(now); at < 0 {
		return 0
	}
	c, number := t.list[at], ID(at+1)
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
func (t *table) unused(now time.Duration) int {
	for i, c := range t.list {
		if now-c.since >= 2*model.longHalf {
			return i
		}
	}
	return -1
}

// at returns the half of now.
func (c *class) at(now time.Duration) *classHalf {
	h, age := &c.halves[c.current], now-c.since
	if age < model.half || age < model.longHalf && h.samples() < model.samples {
		return h
	}
	if age >= 2*model.longHalf {
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
	case age >= 2*model.longHalf:
		return nil
	case age >= model.longHalf:
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

// Observe records the latency of a first attempt of class c, which is not 0.
func (t *table) Observe(now, latency time.Duration, c ID) {
	h := t.list[c-1].at(now)
	h.finite++
	h.counts[histogram.BucketOf(latency)>>classShift]++
}

// Censor records a first attempt of class c, which is not 0, that was given up before its response.
func (t *table) Censor(now time.Duration, c ID) { t.list[c-1].at(now).censored++ }

// quantile returns the q-quantile of several classes together. It interpolates within a bucket, since
// the middle of a wide bucket may be sooner than most samples in it. ok is false without samples, and if
// the quantile is a censored sample. Then d is the quantile of the samples that are not censored, which is
// sooner.
func quantile(now time.Duration, among []*class, q float64) (d time.Duration, ok bool) {
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
func (t *table) update(now time.Duration, w Whole) {
	t.updated, t.least = now, 0
	known, unknown := 0, 0
	for i, c := range t.list {
		n := c.samples(now)
		c.delay, c.alikes = 0, c.alikes[:0]
		if c.measure(now, t.list[i:i+1], w.Quantile) {
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
		if n == known && (float64(unknown) <= (1-w.Quantile)/2*float64(known) || alike(c.tail, w.Tail)) {
			return
		}
		share(now, t.group, w)
		if t.least == 0 || c.typical < t.least {
			t.least = c.typical
		}
	}
}

// measure finds the quantiles of c alone, the only element of alone. It reports whether they are
// known.
func (c *class) measure(now time.Duration, alone []*class, q float64) bool {
	c.typical = 0
	if c.samples(now) >= model.samples {
		c.typical, _ = quantile(now, alone, 0.25)
	}
	if c.typical == 0 {
		c.tail = 0
		return false
	}
	if tail, ok := quantile(now, alone, q); ok {
		c.tail = tail
	}
	return true
}

// alike reports whether c and o, which may be c, are known and alike.
func (c *class) alike(o *class) bool {
	return o.typical > 0 && alike(c.typical, o.typical) && (c.tail == 0 || o.tail == 0 || alike(c.tail, o.tail))
}

func alike(a, b time.Duration) bool { return float64(max(a, b)) <= model.alike*float64(min(a, b)) }

// share gives classes that are alike the estimate of their requests together.
func share(now time.Duration, among []*class, w Whole) {
	delay, ok := quantile(now, among, w.Quantile)
	if !ok {
		known := time.Duration(0)
		for _, c := range among {
			known = max(known, c.tail)
		}
		delay = cmp.Or(known, max(delay, w.MaxDelay))
	}
	median, _ := quantile(now, among, 0.5)
	for _, c := range among {
		c.delay, c.median = delay, median
	}
	among[0].alikes = append(among[0].alikes[:0], among...)
}

// Choose makes the choice of the best delay anew for some classes that are alike, if the last one was made before a time.
// It needs at least so many requests. in.Max does not bound the delay of classes that usually take longer. The latencies
// of the hedges of a class are not known. Which first attempts no hedge would have helped is known of all classes together.
func (s *Set) Choose(now, before time.Duration, least int64, in choice.Limits, futile func() choice.Futile) {
	if s.table == nil {
		return
	}
	for _, c := range s.list {
		if len(c.alikes) == 0 || c.bestFrom >= before {
			continue
		}
		var first histogram.Distribution
		for _, o := range c.alikes {
			o.addTo(now, &first)
		}
		made := choice.Choice{}
		if c.median > in.Max {
			in.Max = math.MaxInt64
		}
		if first.Samples() >= least {
			made = choice.Best(&first, &choice.Hedges{Futile: futile()}, in, c.best)
		}
		for _, o := range c.alikes {
			o.best, o.bestFrom = made, now
		}
		return
	}
}

// addTo adds the latencies of c.
func (c *class) addTo(now time.Duration, d *histogram.Distribution) {
	halves := c.read(now)
	for i := range halves {
		h := &halves[i]
		for b, n := range h.counts {
			d.Counts[b<<classShift] += int64(n)
		}
		d.Censored += int64(h.censored)
	}
}

// Best returns the last choice for class c, which is not 0.
func (t *table) Best(c ID) *choice.Choice { return &t.list[c-1].best }

// Estimate returns the delay, without bounds, and the median of class c, which is not 0. own is false if
// the class has those of the route.
func (t *table) Estimate(now time.Duration, c ID, w Whole) (delay, median time.Duration, own bool) {
	if now-t.updated >= model.age {
		t.update(now, w)
	}
	k := t.list[c-1]
	return k.delay, k.median, k.delay > 0
}

// Scaled returns what the latency of a request of class c, which is not 0, would be if the request were
// of the quickest class.
func (t *table) Scaled(now, latency time.Duration, c ID, w Whole) time.Duration {
	return time.Duration(float64(latency) / t.Slower(now, c, w))
}

// Slower returns how many times as long as one of the quickest class a request of class c takes, which is not 0.
func (t *table) Slower(now time.Duration, c ID, w Whole) float64 {
	if _, _, own := t.Estimate(now, c, w); !own || t.least == 0 {
		return 1
	}
	return float64(t.list[c-1].typical) / float64(t.least)
}

// Len returns the number of classes, which have the IDs from 1.
func (s *Set) Len() int {
	if s.table == nil {
		return 0
	}
	return len(s.list)
}

// Describe returns the name of class c, or its body sizes, and the number of its requests in the last 5
// to 60 s. It is for reports.
func (t *table) Describe(now time.Duration, c ID) (name string, samples int) {
	k := t.list[c-1]
	return k.String(), k.samples(now)
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
