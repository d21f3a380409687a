package worth

import "time"

// Gate judges by what hedges save how many of a route's decisions may hedge. The zero value lets
// all.
type Gate struct {
	level   uint8 // 0: all are hedged
	skipped uint8 // since the last hedge
	unknown uint8 // calls of Unknown since a hedge saved a known time, at most model.fewer

	judged      int
	took, saved time.Duration // sums
}

// OneIn returns for how many decisions one hedge is sent.
func (g *Gate) OneIn() int { return 1 << (model.step * uint32(g.level)) }

// Allows reports whether the next decision may be to hedge.
func (g *Gate) Allows() bool { return int(g.skipped)+1 >= g.OneIn() }

// Skip counts a decision not to hedge, because Allows says so.
func (g *Gate) Skip() { g.skipped++ }

// CountHedge counts a decision to hedge.
func (g *Gate) CountHedge() { g.skipped = 0 }

// Judge takes a hedged request whose primary took so long, and how much earlier the response
// of its hedge came; 0 if the primary's came first.
func (g *Gate) Judge(took, saved time.Duration) {
	switch {
	case saved > 0:
		g.unknown = 0
	case g.unknown > 0:
		return
	}
	g.judged++
	g.took += took
	g.saved += saved
	level, enough := g.level, model.samples
	if level > 0 {
		enough = model.fewer
	}
	part := float64(g.judged) / float64(enough)
	shorter := float64(g.saved) / float64(g.took)
	switch {
	case uint32(level) < model.levels-1 && part >= 0.5 && shorter < model.least*part:
		level++
	case part < 1:
		return
	case level > 0 && shorter >= 2*model.least:
		level--
	}
	*g = Gate{level: level}
}

// Unknown takes a hedged request whose hedge came first, if nobody learns how long the primary would have taken. Until a
// hedge saves a known time again, Judge ignores requests whose primary came first: else hedges would seem to save
// less than they do. After model.fewer such requests in a row, all decisions may hedge.
func (g *Gate) Unknown() {
	if int(g.unknown) >= model.fewer {
		return
	}
	if g.unknown++; int(g.unknown) == model.fewer {
		*g = Gate{unknown: g.unknown}
	}
}
