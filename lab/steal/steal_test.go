package steal

import (
	"slices"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

// stops are of the processors in turn.
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
		"one that holds two others":  {stops([2]int{10, 90}, [2]int{20, 30}, [2]int{40, 50}), [][2]int{{10, 90}}},
		"of both at the same moment": {stops([2]int{10, 20}, [2]int{10, 20}), [][2]int{{10, 20}}},
	} {
		var got [][2]int
		for _, s := range Merge(c.stops) {
			got = append(got, [2]int{int(s.From.Sub(start).Milliseconds()), int(s.To.Sub(start).Milliseconds())})
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestStood(t *testing.T) {
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
		if got := Stood(c.stops, at(100), at(200)); got != time.Duration(c.want)*time.Millisecond {
			t.Errorf("%s: %v, want %d ms", name, got, c.want)
		}
	}
}
