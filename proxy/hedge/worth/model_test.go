package worth

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/modeltest"
)

// TestConstants shows what happens at half and at twice each constant of the model. The measure changes
// by at least a tenth.
func TestConstants(t *testing.T) {
	m := modeltest.New(t, &model, .1)
	m.Check("least: all decisions hedge although that saves less, or only if it saves more",
		modeltest.Of(&model.least), savedToHedgeAll, -1, 1)
	m.Check("samples: hedges are given up by less evidence, or later",
		modeltest.Of(&model.samples), hedgesToGiveUp, -1, 1)
	m.Check("fewer: hedges come back by less evidence, or later",
		modeltest.Of(&model.fewer), hedgesToComeBack, -1, 1)
	m.Check("step: more or fewer hedges are sent in vain",
		modeltest.Of(&model.step), hedgesInVain, 1, -1)
	m.Check("levels: at half, a route never hedges less; at twice, too little to see that hedges would help",
		modeltest.Of(&model.levels), hedgesInVain, 1, -1)
}

// savedToHedgeAll returns the share that hedges must save for all decisions to hedge.
func savedToHedgeAll() float64 {
	for saved := 1e-3; ; saved *= 1.01 {
		var g Gate
		for range 1000 {
			g.Judge(time.Second, time.Duration(saved*float64(time.Second)))
		}
		if g.OneIn() == 1 {
			return saved
		}
	}
}

// hedgesToGiveUp returns how many hedges that save nothing let fewer decisions hedge.
func hedgesToGiveUp() float64 {
	var g Gate
	return judgeUntil(&g, 0, func() bool { return g.OneIn() > 1 })
}

// hedgesToComeBack returns how many hedges that save much let all decisions hedge again.
func hedgesToComeBack() float64 {
	g := Gate{level: 1}
	return judgeUntil(&g, ms, func() bool { return g.OneIn() == 1 })
}

func judgeUntil(g *Gate, saved time.Duration, over func() bool) (hedges float64) {
	for ; !over(); hedges++ {
		g.Judge(2*ms, saved)
	}
	return hedges
}

// hedgesInVain returns how many of 100,000 late requests are hedged if that saves nothing.
func hedgesInVain() float64 {
	var g Gate
	_, hedges := g.serve(100_000, func() time.Duration { return ms }, 0)
	return float64(hedges)
}
