package hedge

import "time"

// The gate useless. A hedge is one more request for the replicas, even if it harms none. Where
// requests are late because they have more to do, or just miss the delay, hedges win now and then,
// but by little. Where all replicas are slow alike, no hedge wins. So the gate measures what hedges
// save: the application finishes most primaries that a hedge has overtaken, and the sidecar sees
// when. The measurement needs no requests that go without hedges.
const (
	// worthLeast is how much shorter hedged requests must become on average. Lognormal
	// latencies of sigma 0.5 become 1/42 shorter, and P99.9 falls by a tenth. If a tenth of the
	// requests takes ten times as long, they become 1/250 shorter, and P99.9 does not fall.
	worthLeast = 1.0 / 96

	// worthSamples is how many hedged requests are judged at once, and worthFewer if not each
	// decision may hedge. Half suffice if they save less than half of worthLeast.
	worthSamples = 128
	worthFewer   = 32

	// Of the decisions for late requests all may hedge, or one in 8, or one in 64. A request that
	// stays late is decided on again, so the latest ones are hedged most.
	worthStep   = 3 // as a power of 2
	worthLevels = 3
)

// worth judges by what hedges save how many of a route's decisions may hedge. The zero value lets
// all.
type worth struct {
	level   uint8 // 0: all are hedged
	skipped uint8 // since the last hedge

	judged      int
	took, saved time.Duration // sums
}

// of returns for how many decisions one hedge is sent.
func (w *worth) of() int { return 1 << (worthStep * w.level) }

// allows reports whether the next decision may be to hedge.
func (w *worth) allows() bool { return int(w.skipped)+1 >= w.of() }

// skip counts a decision not to hedge, because allows says so.
func (w *worth) skip() { w.skipped++ }

func (w *worth) countHedge() { w.skipped = 0 }

// judge takes a hedged request whose primary took so long, and how much earlier the response
// of its hedge came; 0 if the primary's came first.
func (w *worth) judge(took, saved time.Duration) {
	w.judged++
	w.took += took
	w.saved += saved
	level, samples := w.level, worthSamples
	if level > 0 {
		samples = worthFewer
	}
	part := float64(w.judged) / float64(samples)
	shorter := float64(w.saved) / float64(w.took)
	switch {
	case level < worthLevels-1 && part >= 0.5 && shorter < worthLeast*part:
		level++
	case part < 1:
		return
	case level > 0 && shorter >= 2*worthLeast:
		level--
	}
	*w = worth{level: level}
}
