package steal

import (
	"slices"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

// stops belong to two processors in turn.
func stops(ms ...[2]int) (all []Stop) {
	for i, s := range ms {
		all = append(all, Stop{CPU: i % 2, From: at(s[0]), To: at(s[1])})
	}
	return all
}

func TestMerge(t *testing.T) {
	for name, c := range map[string]struct {
		stops []Stop
		want  [][2]int
	}{
		"none":                       {nil, nil},
		"in the order of ends":       {stops([2]int{50, 60}, [2]int{10, 70}), [][2]int{{10, 70}}},
		"apart":                      {stops([2]int{30, 40}, [2]int{10, 20}), [][2]int{{10, 20}, {30, 40}}},
		"one behind the other":       {stops([2]int{10, 20}, [2]int{20, 40}), [][2]int{{10, 40}}},
		"one around two others":      {stops([2]int{10, 90}, [2]int{20, 30}, [2]int{40, 50}), [][2]int{{10, 90}}},
		"of both at the same moment": {stops([2]int{10, 20}, [2]int{10, 20}), [][2]int{{10, 20}}},
	} {
		var got [][2]int
		for _, s := range merge(c.stops) {
			got = append(got, [2]int{int(s.From.Sub(start).Milliseconds()), int(s.To.Sub(start).Milliseconds())})
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestTotal(t *testing.T) {
	for name, c := range map[string]struct {
		stops []Stop
		want  int // ms between 100 and 200
	}{
		"never":                        {nil, 0},
		"two processors at once":       {stops([2]int{110, 130}, [2]int{120, 140}), 30},
		"from before until after":      {stops([2]int{50, 250}), 100},
		"only the part that is within": {stops([2]int{50, 110}, [2]int{190, 250}), 20},
		"before and after":             {stops([2]int{50, 90}, [2]int{210, 250}), 0},
	} {
		if got := Total(c.stops, at(100), at(200)); got != time.Duration(c.want)*time.Millisecond {
			t.Errorf("%s: %v, want %d ms", name, got, c.want)
		}
	}
}

func TestDisturbed(t *testing.T) {
	for name, c := range map[string]struct {
		stops []Stop
		due   int
		want  bool
	}{
		"no stop":                                  {nil, 100, false},
		"during a stop":                            {stops([2]int{90, 110}), 100, true},
		"just before it":                           {stops([2]int{104, 110}), 100, true},
		"well before it":                           {stops([2]int{106, 110}), 100, false},
		"just behind a short one":                  {stops([2]int{94, 96}), 100, true},
		"well behind a short one":                  {stops([2]int{92, 94}), 100, false},
		"in the queue behind a long one":           {stops([2]int{70, 86}), 100, true},
		"behind that queue":                        {stops([2]int{70, 84}), 100, false},
		"between two":                              {stops([2]int{110, 120}, [2]int{80, 88}), 100, false},
		"in the longer of two that begin together": {stops([2]int{50, 110}, [2]int{50, 60}), 100, true},
		"behind one around others":                 {stops([2]int{50, 74}, [2]int{60, 70}, [2]int{10, 20}), 100, false},
	} {
		if got := Disturbed(c.stops)(at(c.due)); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
