package bench

import (
	"cmp"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
)

// testTail measures two sidecars with hedging for a moment.
func testTail(t *testing.T, remora string) {
	rows := choose(t, TailRows(false), "remora")
	r, err := Run(t.Context(), Options{
		Tools: Tools{Lab: self(t), Remora: remora}, Rows: rows, Rounds: 1, Loads: []Load{Freezes(200, 300*time.Millisecond)},
		Kind: Tail, Progress: func(string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	noChildren(t)
	if len(r.Samples) != 1 || r.Samples[0].Requests != 60 || len(r.Samples[0].Curve) == 0 || len(r.Failures) > 0 {
		t.Fatalf("%+v, %+v", r.Samples, r.Failures)
	}
	for _, f := range []Figure{P50, P95, P99, P999, P9999, Max, Extra, Hedges, HedgesWon, Lag} {
		if _, ok := r.Samples[0].Figures[f]; !ok {
			t.Errorf("no %s", f)
		}
	}
}

// TestTailConfigurations checks that each proxy has three endpoints, and how it hedges.
func TestTailConfigurations(t *testing.T) {
	for row, hedge := range map[string]string{"haproxy": "", "envoy": "", "envoy-hedge": "hedge_policy", "remora-off": "mode: off", "remora-max2": "max: 2"} {
		rows := choose(t, TailRows(false), row)
		p := testPlace(t, rows[0].chain[0])
		p.Upstreams = []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}
		file := configFile(t, p)
		b, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(b), hedge) || hedge == "" && strings.Contains(string(b), "hedge") {
			t.Errorf("%s: %v\n%s", row, err, b)
		}
		if !rows[0].sidecars() {
			continue
		}
		c, err := config.Load(file)
		if err != nil || len(c.Services["out"].Endpoints) != 3 || c.Services["out"].Idempotent[0] != config.IdempotentTrue {
			t.Errorf("%s: %+v, %v", row, c, err)
		}
	}
}

func TestTailVerdicts(t *testing.T) {
	var s Samples
	for row, f := range map[string]Figures{
		"haproxy":     {P99: 10_000, Extra: 0},
		"envoy":       {P999: 50_000, Extra: 0},
		"envoy-hedge": {P999: 10_000, Extra: 6}, // too much extra load to compare with
		"remora-off":  {P99: 12_000},
		"remora":      {P99: 5_000, P999: 10_000, Extra: 3},
	} {
		s = append(s, Sample{Round: 1, Row: row, Load: "l", Requests: 1, Figures: f})
	}
	want := []struct {
		measured     float64
		known, holds bool
	}{{1.2, true, false}, {0.5, true, true}, {0.2, true, true}, {3, true, true}, {math.NaN(), false, false}}
	for i, v := range s.tailVerdicts("l") {
		if !same(v.Measured, want[i].measured) || v.Known() != want[i].known || v.Holds() != want[i].holds {
			t.Errorf("%+v, want %+v", v, want[i])
		}
	}
	r := Report{Kind: Tail, Rounds: 1, Loads: []string{"l"}, Samples: s}
	if err := r.Check(); err == nil || !strings.Contains(err.Error(), "hedging off") {
		t.Errorf("a missed promise: %v", err)
	}
	s[0].Errors, s[1].Errors, s[2].Errors, s[3].Errors, s[4].Errors = 1, 1, 1, 1, 1
	if err := r.Check(); err == nil || !strings.Contains(err.Error(), "requests failed") {
		t.Errorf("failed requests: %v", err)
	}
}

// TestStragglerVerdicts: the promises about stragglers are judged under their load alone.
func TestStragglerVerdicts(t *testing.T) {
	var s Samples
	for row, f := range map[string]Figures{
		"stragglers-5-off":      {P999: 58_000},
		"stragglers-5":          {P99: 28_000, P999: 58_001, Extra: 5},
		"stragglers-5-budget-9": {P99: 21_000},
	} {
		s = append(s, Sample{Round: 1, Row: row, Load: stragglersLoad, Requests: 1, Figures: f})
	}
	var holds []bool
	for _, v := range s.tailVerdicts(stragglersLoad) {
		holds = append(holds, v.Known() && v.Holds())
	}
	if want := []bool{true, false, true, false, false}; !slices.Equal(holds, want) {
		t.Errorf("the promises hold: %v, want %v", holds, want)
	}
}

// TestFutileVerdicts: hedges that gain nothing may cost next to nothing.
func TestFutileVerdicts(t *testing.T) {
	s := Samples{
		{Round: 1, Row: "natural-off", Load: naturalLoad, Requests: 1, Figures: Figures{P99: 13_000, P999: 15_000}},
		{Round: 1, Row: "natural", Load: naturalLoad, Requests: 1, Figures: Figures{P99: 13_100, P999: 15_600, Extra: 0.31}},
	}
	var holds []bool
	for _, v := range s.tailVerdicts(naturalLoad) {
		holds = append(holds, v.Known() && v.Holds())
	}
	if want := []bool{true, false, false}; !slices.Equal(holds, want) {
		t.Errorf("the promises hold: %v, want %v", holds, want)
	}
	for _, v := range s.tailVerdicts(togetherLoad) {
		if v.Known() {
			t.Errorf("%s is known from another load", v.What)
		}
	}
}

// TestTailLoads: a row is measured under one load.
func TestTailLoads(t *testing.T) {
	o := Options{Rows: TailRows(false), Loads: append([]Load{Freezes(1000, time.Second), Stragglers(time.Second)}, Futile(time.Second)...)}
	named := map[string]string{"stragglers": stragglersLoad, "together": togetherLoad, "natural": naturalLoad}
	for _, row := range o.Rows {
		kind, _, _ := strings.Cut(row.Name, "-")
		want := cmp.Or(named[kind], o.Loads[0].Name)
		if loads := o.loads(row); len(loads) != 1 || loads[0].Name != want {
			t.Errorf("%s: %d loads, want %s", row.Name, len(loads), want)
		}
	}
}
