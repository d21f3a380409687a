package fifo

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestQueue compares a queue with a slice, through random operations.
func TestQueue(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var nodes [20]Node[int]
	var q Queue[int]
	var want []int // the elements, which are indexes of nodes
	for step := range 10_000 {
		i, now := rng.IntN(len(nodes)), time.Duration(step)
		at := slices.Index(want, i)
		switch op := rng.IntN(4); {
		case at >= 0 && op < 2:
			nodes[i].Remove()
			nodes[i].Remove() // a second call does nothing
			want = slices.Delete(want, at, at+1)
		case op == 2 && len(want) > 0:
			if got := q.Pop(); got != want[0] {
				t.Fatalf("step %d: popped %d, want %d", step, got, want[0])
			}
			want = want[1:]
		case at >= 0:
		case op == 0:
			q.Add(&nodes[i], i, now)
			want = append(want, i)
		default:
			q.AddSorted(&nodes[i], i, now, func(other int) bool { return other > i })
			at = len(want)
			if at > 0 && want[at-1] > i {
				at = slices.IndexFunc(want, func(other int) bool { return other > i })
			}
			want = slices.Insert(want, at, i)
		}
		if q.Empty() != (len(want) == 0) {
			t.Fatalf("step %d: empty %v, want %v", step, q.Empty(), want)
		}
		for i := range nodes {
			if in := nodes[i].Queue() == &q; in != slices.Contains(want, i) || !in && nodes[i] != (Node[int]{}) {
				t.Fatalf("step %d: element %d waits: %t", step, i, in)
			}
		}
		var got []int
		for n := q.head; n != nil; n = n.next {
			got = append(got, n.of)
		}
		if !slices.Equal(got, want) || len(want) > 0 && (q.First() != want[0] || q.Since() != nodes[want[0]].Since()) {
			t.Fatalf("step %d: %v, want %v", step, got, want)
		}
	}
}
