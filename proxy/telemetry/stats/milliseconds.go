package stats

import "time"

// MillisecondsKept is the number of milliseconds in a MillisecondRing: 4096, in 128 KiB.
const MillisecondsKept = 1 << 12

// Millisecond has the counts of one loop within one millisecond.
type Millisecond struct {
	at       int64         // number of the millisecond, by the loop's clock
	Arrivals uint32        // requests that arrived
	Answers  uint32        // responses, also those of this sidecar
	BytesIn  uint32        // of the requests that arrived
	BytesOut uint32        // of the responses
	Worst    time.Duration // the longest latency of the responses, without failures
}

// Add adds the counts of another loop within the same millisecond.
func (m *Millisecond) Add(o *Millisecond) {
	m.Arrivals += o.Arrivals
	m.Answers += o.Answers
	m.BytesIn += o.BytesIn
	m.BytesOut += o.BytesOut
	m.Worst = max(m.Worst, o.Worst)
}

// MillisecondRing has the latest MillisecondsKept milliseconds of a loop. A request
// counts in the millisecond in which the loop read it, which is later than its arrival
// in the kernel if the loop was busy.
type MillisecondRing [MillisecondsKept]Millisecond

// Now returns the millisecond of now, empty if nothing was counted in it yet.
func (r *MillisecondRing) Now(now time.Duration) *Millisecond {
	at := int64(now / time.Millisecond)
	m := &r[at%MillisecondsKept]
	if m.at != at {
		*m = Millisecond{at: at}
	}
	return m
}

// CountRequest counts a request of so many bytes.
func (m *Millisecond) CountRequest(bytes int) {
	m.Arrivals++
	m.BytesIn += uint32(bytes)
}

// CountResponse counts a response of so many bytes, and its latency if it is measured.
func (m *Millisecond) CountResponse(bytes int, latency time.Duration, measured bool) {
	m.Answers++
	m.BytesOut += uint32(bytes)
	if measured {
		m.Worst = max(m.Worst, latency)
	}
}

// Milliseconds are consecutive milliseconds of one loop, all of them over.
type Milliseconds struct {
	From int64 // number of the first, by the clock that all loops of a process share
	List []Millisecond
}

// End returns the number of the millisecond after the last.
func (m *Milliseconds) End() int64 { return m.From + int64(len(m.List)) }

// Since returns a copy of the milliseconds from number from to the last one before now,
// as far as the ring still has them.
func (r *MillisecondRing) Since(from int64, now time.Duration) Milliseconds {
	end := int64(now / time.Millisecond)
	from = min(max(from, end-(MillisecondsKept-1), 0), end)
	out := Milliseconds{From: from, List: make([]Millisecond, end-from)}
	for i := range out.List {
		at := from + int64(i)
		if m := &r[at%MillisecondsKept]; m.at == at {
			out.List[i] = *m
		}
	}
	return out
}
