package queues

import (
	"slices"
	"sync"
	"testing"
	"time"
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

// TestEndsEarly: a case that is sure ends early if it has many requests by then. In runs where the replicas freeze together
// there may be no freeze.
func TestEndsEarly(t *testing.T) {
	cell := Cell{Busy: .3, Service: Exponential, Replicas: 3, Callers: 1} // 14,400 a second
	together := cell
	together.Freezes = Together
	p := plan{seeds: 5, requests: 250, least: 50 * time.Millisecond, early: 2, most: 1, way: Off, with: Off} // sure at once
	few, never := p, p
	few.least, never.early = 0, 0
	for _, c := range []struct {
		name  string
		cell  Cell
		plan  plan
		seeds int // that run
	}{
		{"sure", cell, p, 2},
		{"freezes together", together, p, 5},
		{"few requests", cell, few, 5},
		{"not wanted", cell, never, 5},
	} {
		r := newRow(c.cell, c.plan, []Way{Off})
		if len(r.parts[Off]) != c.seeds {
			t.Errorf("%s: %d seeds have run, want %d", c.name, len(r.parts[Off]), c.seeds)
		}
	}
}
