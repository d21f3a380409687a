package hedge

// mostFollowed bounds how many heads are held in vain in a row, and after how many first bytes in time others are held
// again.
const mostFollowed = 8

// Heads learns whether the first byte of a body soon follows the head of a response that becomes a stream. If so,
// the head may be held until that byte: the client waits hardly longer for the head, and a hedge can still
// win. If not, a client that waits for the head alone, such as an EventSource, would wait for nothing.
//
// At first no head is held. A first byte in time counts 1, and a head that was held in vain -4, within
// mostFollowed. Above 0 heads are held: all where more than four fifths of the first bytes come in time, a quarter where
// half do.
type Heads struct{ followed int8 }

// Hold reports whether heads are held.
func (h *Heads) Hold() bool { return h.followed > 0 }

// Followed counts a first byte that came in time, whether its head was held or not.
func (h *Heads) Followed() { h.followed = min(h.followed+1, mostFollowed) }

// Missed counts a head that was held in vain.
func (h *Heads) Missed() { h.followed = max(h.followed-4, -mostFollowed) }
