package otlp

import (
	"testing"

	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// TestWakes: only the first and the last record of a batch wake the exporter.
func TestWakes(t *testing.T) {
	e := New(Options{})
	e.queued.resize(2 * batchRecords)
	woken := func() bool {
		select {
		case <-e.wake:
			return true
		default:
			return false
		}
	}
	for n := 1; n <= batchRecords; n++ {
		e.Put(record(0))
		if got, want := woken(), n == 1 || n == batchRecords; got != want {
			t.Errorf("record %d: woken is %v", n, got)
		}
	}
	e.take()
	e.queued.resize(2)
	for n := 1; n <= 2; n++ {
		if e.Put(record(0)); !woken() {
			t.Errorf("record %d did not wake the exporter, with room for 2", n)
		}
	}
}

// TestQueue: records are taken in the order in which they were put, whatever the
// position in the ring and through changes of its size. The queue holds no more than
// it has room for, and keeps no reference to a record that was taken.
func TestQueue(t *testing.T) {
	var q queue
	put, taken := byte(0), byte(0)
	fill := func(want int) {
		t.Helper()
		n := 0
		for ; q.put(record(put)); put++ {
			n++
		}
		if n != want {
			t.Fatalf("%d fit in, want %d", n, want)
		}
	}
	take := func(most, want int) {
		t.Helper()
		batch := make([]*trace.Record, most)
		n := q.take(batch)
		if n != want {
			t.Fatalf("%d of %d taken, want %d", n, most, want)
		}
		for _, r := range batch[:n] {
			if r.Trace[0] != taken {
				t.Fatalf("took record %d, want %d", r.Trace[0], taken)
			}
			taken++
		}
	}
	take(3, 0)
	fill(0)
	q.resize(5)
	for range 4 {
		fill(5)
		take(3, 3)
		fill(3)
		take(9, 5)
	}
	fill(5)
	take(2, 2)
	fill(2)
	q.resize(7)
	fill(2)
	q.resize(3) // less than the number of records
	fill(0)
	take(5, 5)
	fill(1)
	q.room = 0
	fill(0)
	take(9, 3)
	for _, r := range q.ring {
		if r != nil {
			t.Error("the ring keeps a record that was taken")
		}
	}
}
