package stats

import "time"

// MillisecondsKept is how many milliseconds back a loop remembers what happened
// in each: 4096, in 128 KiB.
const MillisecondsKept = 1 << 12

// Millisecond is what one loop saw within one millisecond.
type Millisecond struct {
	at       int64 // the millisecond, by the loop's clock: an old one's place is taken over
	Arrivals uint32
	Answers  uint32        // failures of this sidecar included
	BytesIn  uint32        // of the requests that arrived
	BytesOut uint32        // of the answers
	Worst    time.Duration // the longest latency of the requests answered
}

// Add adds what another loop saw within the same millisecond.
func (m *Millisecond) Add(o *Millisecond) {
	m.Arrivals += o.Arrivals
	m.Answers += o.Answers
	m.BytesIn += o.BytesIn
	m.BytesOut += o.BytesOut
	m.Worst = max(m.Worst, o.Worst)
}

// MillisecondRing is a ring of them. What a loop found waiting when it came back
// from elsewhere counts when it was found: that is when it arrived here.
type MillisecondRing [MillisecondsKept]Millisecond

// Now is the one that it is.
func (r *MillisecondRing) Now(now time.Duration) *Millisecond {
	at := int64(now / time.Millisecond)
	m := &r[at%MillisecondsKept]
	if m.at != at {
		*m = Millisecond{at: at}
	}
	return m
}

func (m *Millisecond) Arrived(bytes int) {
	m.Arrivals++
	m.BytesIn += uint32(bytes)
}

func (m *Millisecond) Answered(latency time.Duration, bytes int) {
	m.Answers++
	m.BytesOut += uint32(bytes)
	m.Worst = max(m.Worst, latency)
}

// Milliseconds are consecutive milliseconds of one loop that are over.
type Milliseconds struct {
	From int64 // the first, by the clock that all loops of a process share
	List []Millisecond
}

// End is the millisecond after the last.
func (m *Milliseconds) End() int64 { return m.From + int64(len(m.List)) }

// Since copies the milliseconds from the given one on.
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
