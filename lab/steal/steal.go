// Package steal finds the moments in which a processor of this machine stood
// still: the host of a virtual machine gave its time to somebody else (what top
// calls steal), or the kernel kept it to itself. Latency measured across such a
// moment says little about the programs that were measured.
package steal

import (
	"slices"
	"time"
)

// Stop is a time in which a processor ran no program, not even one that goes
// before all others.
type Stop struct {
	CPU  int       `json:"cpu"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Least is the shortest Stop that is told of. From Least + the period on, each one is.
const Least = time.Millisecond

// Period is how often a processor is asked for its attention, unless said otherwise. To
// ask is work for the machine: on a virtual one, some 45 µs each time.
const Period = 2 * time.Millisecond

// Merge returns the times in which any processor stood still, in order and apart from
// each other.
func Merge(stops []Stop) []Stop {
	sorted := slices.SortedFunc(slices.Values(stops), func(a, b Stop) int { return a.From.Compare(b.From) })
	var merged []Stop
	for _, s := range sorted {
		last := len(merged) - 1
		if last < 0 || merged[last].To.Before(s.From) {
			merged = append(merged, s)
			continue
		}
		merged[last].To = slices.MaxFunc([]time.Time{merged[last].To, s.To}, time.Time.Compare)
	}
	return merged
}

// Stood is how long any processor stood still between two times.
func Stood(stops []Stop, from, to time.Time) (sum time.Duration) {
	for _, s := range Merge(stops) {
		begin := slices.MaxFunc([]time.Time{from, s.From}, time.Time.Compare)
		end := slices.MinFunc([]time.Time{to, s.To}, time.Time.Compare)
		sum += max(0, end.Sub(begin))
	}
	return sum
}
