package hedge

// TestConstants shows what happens at twice and at half of each.
var (
	// mostScore bounds the score of Heads, on both sides of 0. At most two heads in a row are held in vain, and heads are
	// held again after at most nine first bytes in time.
	mostScore int8 = 8

	// costOfMiss is how much a head that was held in vain takes off the score. Heads are held where more than
	// costOfMiss/(costOfMiss+1) of the first bytes come in time.
	costOfMiss int8 = 4
)

// Heads learns whether the first byte of a body soon follows the head of a response that becomes a stream. If so,
// the head may be held until that byte: the client waits hardly longer for the head, and a hedge can still
// win. If not, a client that waits for the head alone, such as an EventSource, would wait for nothing.
//
// At first no head is held. A first byte in time counts 1, and a head that was held in vain -costOfMiss,
// within mostScore. Above 0 heads are held: all where more than four fifths of the first bytes come in time, a quarter where
// half do.
type Heads struct{ score int8 }

// Hold reports whether heads are held.
func (h *Heads) Hold() bool { return h.score > 0 }

// Followed counts a first byte that came in time, whether its head was held or not.
func (h *Heads) Followed() { h.score = min(h.score+1, mostScore) }

// Missed counts a head that was held in vain.
func (h *Heads) Missed() { h.score = max(h.score-costOfMiss, -mostScore) }
