package exchange

// exchangeState is where an exchange stands. Only become assigns it.
//
//	idle ──Begin──▶ open ──Respond or Fail──▶ answered ──last attempt over──▶ idle
//	                  └──────Cancel──────▶ cancelled ──last attempt over──▶ idle
type exchangeState uint8

const (
	exchangeIdle      exchangeState = iota // on the free list, or being filled by a session
	exchangeOpen                           // the caller waits
	exchangeAnswered                       // the caller has its response; losers may still be in flight
	exchangeCancelled                      // the caller has gone; attempts are still in flight
	exchangeStates    = iota
)

var exchangeEdges = [exchangeStates][exchangeStates]bool{
	exchangeIdle:      {exchangeOpen: true},
	exchangeOpen:      {exchangeAnswered: true, exchangeCancelled: true},
	exchangeAnswered:  {exchangeIdle: true},
	exchangeCancelled: {exchangeIdle: true},
}

// become changes the state. An illegal change panics: the driver then closes the
// connection whose event caused it.
func (s *exchangeState) become(next exchangeState) {
	if !exchangeEdges[*s][next] {
		s.illegal(next)
	}
	*s = next
}

// illegal is not part of become, so that become is inlined.
//
//go:noinline
func (s exchangeState) illegal(next exchangeState) {
	panic("exchange: an exchange can't go from " + s.String() + " to " + next.String())
}

func (s exchangeState) String() string {
	return [...]string{"idle", "open", "answered", "cancelled"}[s]
}

// attemptState is where an attempt stands. Only become assigns it.
//
//	idle ──▶ launched ──▶ queued ──▶ sent ──cancel──▶ lingering
//
// Each state also leads to idle, and launched straight to sent. Every way to idle goes
// through Attempt.end, which gives back the slot, the pending count and the hedge.
type attemptState uint8

const (
	attemptIdle      attemptState = iota // not begun, or over
	attemptLaunched                      // asks for a slot and an endpoint
	attemptQueued                        // in the service's queue for a slot
	attemptSent                          // with an upstream
	attemptLingering                     // cancelled, but its endpoint may still work on it
	attemptStates    = iota
)

var attemptEdges = [attemptStates][attemptStates]bool{
	attemptIdle:      {attemptLaunched: true},
	attemptLaunched:  {attemptQueued: true, attemptSent: true, attemptIdle: true},
	attemptQueued:    {attemptSent: true, attemptIdle: true},
	attemptSent:      {attemptLingering: true, attemptIdle: true},
	attemptLingering: {attemptIdle: true},
}

// become changes the state. An illegal change panics, as that of an exchange does.
func (s *attemptState) become(next attemptState) {
	if !attemptEdges[*s][next] {
		s.illegal(next)
	}
	*s = next
}

// illegal is not part of become, so that become is inlined.
//
//go:noinline
func (s attemptState) illegal(next attemptState) {
	panic("exchange: an attempt can't go from " + s.String() + " to " + next.String())
}

func (s attemptState) String() string {
	return [...]string{"idle", "launched", "queued", "sent", "lingering"}[s]
}
