package queues

import (
	"slices"
	"sync"
	"testing"
)

// rows runs cases on two processors, and calls use with each, one after another.
func rows(cells []Cell, p plan, use func(i int, r *row), ways ...Way) {
	next := make(chan int)
	var all sync.WaitGroup
	var mu sync.Mutex
	for range 2 {
		all.Go(func() {
			for i := range next {
				r := newRow(cells[i], p, ways)
				mu.Lock()
				use(i, r)
				mu.Unlock()
			}
		})
	}
	for i := range cells {
		next <- i
	}
	close(next)
	all.Wait()
}

// TestRows: each case is used once, with what it has alone.
func TestRows(t *testing.T) {
	cells := strided(100)
	p := plan{seeds: 1, requests: 1000}
	var used []int
	rows(cells, p, func(i int, r *row) {
		used = append(used, i)
		if alone := newRow(cells[i], p, []Way{Off, On}); r.worst() != alone.worst() {
			t.Errorf("%v, alone %v", r, alone)
		}
	}, Off, On)
	slices.Sort(used)
	if len(used) != len(cells) || len(slices.Compact(used)) != len(cells) {
		t.Errorf("used %v of %d cases", used, len(cells))
	}
}
