package queues

import (
	"testing"
	"time"
)

// TestTied: where replicas have queues that their sidecars know (max_concurrency), and callers know little of each
// other, a hedge that may queue gains what a hedge that is refused does not.
//
//	go test ./proxy/sim/queues -run TestTied -v -every 37 -seeds 4
//
// runs one of 37 cases of the matrix, in some minutes.
func TestTied(t *testing.T) {
	cells := []Cell{
		{Busy: .80, Workers: 1, Service: Lognormal05, Freezes: Independent, Replicas: 10, Callers: 30},
		{Busy: .70, Workers: 4, Service: Lognormal10, Freezes: Independent, Replicas: 10, Callers: 30},
	}
	p, gains := plan{seeds: partSeeds, requests: *requests, least: time.Second}, len(cells)
	if testing.Short() {
		cells = cells[:1]
	}
	if *every > 0 {
		cells, gains = nil, 0
		p.seeds, p.most, p.way, p.with = *seeds, 1_000_000, Tied, On
		for _, c := range strided(*every) {
			if c.Workers > 0 {
				cells = append(cells, c)
			}
		}
	}
	for i := range cells {
		cells[i].Queued = true
	}
	gained, harmful := 0, 0
	rows(cells, p, func(i int, r *row) {
		p99, p999 := r.ratio(Tied, On, .99), r.ratio(Tied, On, .999)
		t.Logf("%v: P99 %.2f and P99.9 %.2f of those with hedges that don't queue, %.2f%% extra, %.2f%% without", r.Cell, p99, p999,
			100*r.ways[Tied].Extra(), 100*r.ways[On].Extra())
		switch {
		case max(p99, p999) > harm:
			harmful++
			t.Errorf("harm: %v", r.Cell)
		case min(p99, p999) < .9:
			gained++
		case i < gains:
			t.Errorf("too little is gained: %v", r.Cell)
		}
	}, On, Tied)
	t.Logf("%d cases, harm in %d, P99 or P99.9 down by 10%% in %d", len(cells), harmful, gained)
}
