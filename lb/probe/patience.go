package probe

import "time"

// TestConstants shows what happens at twice and at half of each.
var (
	// waitShare, waitLeast and waitMost bound the wait for answers. A quarter of the mean latency is less than what a
	// pick without answers costs a request. A loop that is busy needs a millisecond to answer, and 5 ms
	// is more than the round trip within a region.
	waitShare time.Duration = 4 // divisor of the mean latency
	waitLeast               = time.Millisecond
	waitMost                = 5 * time.Millisecond

	// skipMost is the most requests in a row that do not wait, because those before waited in vain.
	skipMost = 64
)

// WaitOf returns how long a request waits for answers, at a mean latency.
func WaitOf(latency time.Duration) time.Duration {
	return min(max(latency/waitShare, waitLeast), waitMost)
}

// Patience decides whether a request waits for answers. After each wait that ends without enough answers, twice as many
// requests as before do not wait, up to skipMost. Their probes are answered later, if at all. The zero value waits.
type Patience struct {
	skip    int // requests that did not wait after the last wait in vain
	skipped int // of these, still to come
}

// Waits reports whether the next request waits.
func (p *Patience) Waits() bool {
	if p.skipped == 0 {
		return true
	}
	p.skipped--
	return false
}

// Answered notes a wait that has ended with enough answers.
func (p *Patience) Answered() { p.skip, p.skipped = 0, 0 }

// InVain notes a wait that has ended without.
func (p *Patience) InVain() {
	p.skip = min(max(2*p.skip, 1), skipMost)
	p.skipped = p.skip
}
