package bench

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// same is equality that holds for NaN too.
func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

func TestVerdicts(t *testing.T) {
	s := testReport().Samples
	for _, c := range []struct {
		name            string
		verdict         Verdict
		measured, limit float64
		holds           bool
	}{
		{"at most", s.compare("", "remora-2", "haproxy-2", at64, CPU, 0.68), 0.65, 0.68, true},
		{"at most, missed", s.compare("", "remora-2", "haproxy-2", at64, CPU, 0.6), 0.65, 0.6, false},
		{"better elsewhere", s.better("", "remora-2", "haproxy-2", atSlow, at64, CPU), 0.65, 0.65, true},
		{"latency", s.compare("", "remora-2", "haproxy-2", atSlow, AddedP50, 1), 0.5, 1, true},
		{"the best peer's", s.best("", "remora-2", []string{"envoy-2", "haproxy-2"}, at64, P999), 800. / 1350, 1, true},
		{"within noise", s.steady("", "remora-2", "haproxy-2", at64, P999), 800. / 1350, 1800. / 1350, true},
		{"within noise, a round lost", s.steady("", "remora-2", "haproxy-2", atSlow, P999), 800. / 900, 1, true},
		{"at rest", s.value("", "remora-1", AtRest, Connection, 4), 5, 4, false},
		{"unknown", s.compare("", "remora-2", "envoy-2", at64, CPU, 1), math.NaN(), 1, false},
		{"unknown noise", s.steady("", "remora-2", "envoy-2", at64, P999), 0, math.NaN(), false},
		{"unknown peers", s.best("", "remora-2", []string{"envoy-2"}, at64, P999), 0, math.NaN(), false},
	} {
		v := c.verdict
		if !same(v.Measured, c.measured) || !same(v.Limit, c.limit) || v.Holds() != c.holds || v.Known() == strings.HasPrefix(c.name, "unknown") {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
	throughput := s.compare("", "remora-2", "haproxy-2", at64, Rate, 1.25)
	throughput.AtLeast = true
	if !throughput.Holds() || throughput.Measured != 1.5 {
		t.Errorf("%+v", throughput)
	}
	if throughput.Limit = 1.6; throughput.Holds() {
		t.Errorf("%+v", throughput)
	}
}

// TestVerdictDetails checks LimitIs, Values and Restless.
func TestVerdictDetails(t *testing.T) {
	s := testReport().Samples
	if v := s.best("p99.9", "remora-2", []string{"envoy-2", "haproxy-2"}, at64, P999); v.What != "p99.9, "+at64+": remora-2 / the best of envoy-2, haproxy-2" ||
		v.LimitIs != "" || !slices.Equal(v.Values, []float64{800. / 1350, 800. / 1350}) {
		t.Errorf("%+v", v)
	}
	if v := s.steady("p99.9", "remora-2", "haproxy-2", at64, P999); v.LimitIs != "the worst round of haproxy-2" {
		t.Errorf("%+v", v)
	}
	if v := s.compare("", "remora-2", "direct", at64, P50, 1); !slices.Equal(v.Values, []float64{2, 2}) {
		t.Errorf("%+v", v)
	}
	for name, c := range map[string]struct {
		load    string
		figure  Figure
		stopped float64
		want    bool
	}{
		"CPU":                               {atSlow, CPU, tooRestless + 1, true},
		"a latency of a closed loop":        {at64, P999, tooRestless + 1, true},
		"latencies of undisturbed requests": {atSlow, P999, tooRestless + 1, false},
		"figures made of such latencies":    {atSlow, AddedP50, tooRestless + 1, false},
		"no more than a quiet machine":      {at64, CPU, tooRestless, false},
	} {
		for _, row := range []string{"remora-2", "haproxy-2"} {
			s := testReport().Samples
			for _, sample := range s {
				sample.Figures[Stopped] = 0
				if sample.Row == row {
					sample.Figures[Stopped] = c.stopped
				}
			}
			if v := s.compare("", "remora-2", "haproxy-2", c.load, c.figure, 1); v.Restless != c.want {
				t.Errorf("%s, %s stopped: %+v", name, row, v)
			}
		}
	}
}
