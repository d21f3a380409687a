package worth

import "time"

const (
	// least is how much shorter hedged requests must become on average. Lognormal
	// latencies of sigma 0.5 become 1/42 shorter, and P99.9 falls by a tenth. If a tenth of the
	// requests takes ten times as long, they become 1/250 shorter, and P99.9 does not fall.
	least = 1.0 / 96

	// samples is how many hedged requests are judged at once, and fewer if not each
	// decision may hedge. Half suffice if they save less than half of least.
	samples = 128
	fewer   = 32

	// Of the decisions for late requests all may hedge, or one in 8, or one in 64. A request that
	// stays late is decided on again, so the latest ones are hedged most.
	step   = 3 // as a power of 2
	levels = 3
)

// Gate judges by what hedges save how many of a route's decisions may hedge. The zero value lets
// all.
type Gate struct {
	level   uint8 // 0: all are hedged
	skipped uint8 // since the last hedge

	judged      int
	took, saved time.Duration // sums
}

// OneIn returns for how many decisions one hedge is sent.
func (g *Gate) OneIn() int { return 1 << (step * g.level) }

// Allows reports whether the next decision may be to hedge.
func (g *Gate) Allows() bool { return int(g.skipped)+1 >= g.OneIn() }

// Skip counts a decision not to hedge, because Allows says so.
func (g *Gate) Skip() { g.skipped++ }

// CountHedge counts a decision to hedge.
func (g *Gate) CountHedge() { g.skipped = 0 }

// Judge takes a hedged request whose primary took so long, and how much earlier the response
// of its hedge came; 0 if the primary's came first.
func (g *Gate) Judge(took, saved time.Duration) {
	g.judged++
	g.took += took
	g.saved += saved
	level, enough := g.level, samples
	if level > 0 {
		enough = fewer
	}
	part := float64(g.judged) / float64(enough)
	shorter := float64(g.saved) / float64(g.took)
	switch {
	case level < levels-1 && part >= 0.5 && shorter < least*part:
		level++
	case part < 1:
		return
	case level > 0 && shorter >= 2*least:
		level--
	}
	*g = Gate{level: level}
}
