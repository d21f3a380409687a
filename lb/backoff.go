package lb

import "time"

// Backoff keeps requests from an endpoint that has no room for them: its sidecar's limit is reached, its
// threads are busy, or its HTTP/2 connections have no free stream. Such an endpoint refuses at once, so it
// has nothing pending, seems fast, and would get nearly all requests.
//
// Picks leave a gap between two requests to the endpoint, and each request is a probe. A refusal doubles
// the gap. A request that is taken shortens the gap, which ends below gapLeast: the multiplicative
// backoff of Ethernet (Metcalfe and Boggs, CACM 19, 1976), with a slow return. Outcomes of requests that
// were sent before the gap grew do not count: one burst is one refusal.
//
// So an endpoint that refuses everything gets one request per gapMost from each loop, and one with a
// limit gets about what it takes: of its own requests one in six is refused. If all endpoints have gaps,
// picks ignore gaps, and refused requests find no other endpoint (see Set.HasRoom): what is full everywhere
// gets no more load.
type Backoff struct {
	gap   time.Duration // least time between two requests; 0 means none
	since time.Duration // when the gap last grew
}

// TestConstants shows what happens at twice and at half of each.
var (
	// At twice gapLeast, a short burst is noticed for twice as long, and an endpoint that could serve 4,000 requests a
	// second serves a quarter less. At half it serves a fifth more.
	gapLeast = time.Millisecond

	// At twice gapMost, there are half of the probes, and it takes twice the time, 14 s, until an endpoint
	// that had refused everything has its whole share again. At half it is the opposite.
	gapMost = time.Second

	// gapShrink is the divisor of the part of the gap that a taken request ends. At half of it, one request
	// in three or four is refused, and it takes 3 s until the whole share. At twice, one in twelve is, and
	// it takes 15 s.
	gapShrink time.Duration = 8
)

func (b *Backoff) grow(now, sent time.Duration) {
	if b.gap == 0 || sent >= b.since {
		b.gap = min(max(2*b.gap, gapLeast), gapMost)
		b.since = now
	}
}

// CountTaken notes that the endpoint had room for a request, which was sent at the time sent. It has an
// effect only after a refusal.
func (b *Backoff) CountTaken(sent time.Duration) {
	if sent < b.since {
		return
	}
	if b.gap -= b.gap / gapShrink; b.gap < gapLeast {
		b.gap = 0
	}
}

// Refuses reports whether the endpoint had no room of late, so that CountTaken must be called.
func (b *Backoff) Refuses() bool { return b.gap > 0 }

// waits reports whether the endpoint, whose last request started at started, should not get one yet.
func (b *Backoff) waits(now, started time.Duration) bool { return b.gap > 0 && now-started < b.gap }
