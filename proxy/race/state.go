package race

import "github.com/remora-proxy/remora/proxy/loop"

// raceState is where a race stands.
//
//	idle ──Start──▶ on ──Stop──▶ over ──Reset──▶ idle
type raceState uint8

const (
	raceIdle raceState = iota // not started
	raceOn                    // its owner waits
	raceOver                  // no attempt begins; some may be in flight
)

var raceEdges = [...][3]bool{
	raceIdle: {raceOn: true},
	raceOn:   {raceOver: true},
	raceOver: {raceIdle: true},
}

func (s *raceState) become(next raceState) {
	if !raceEdges[*s][next] {
		loop.IllegalState(*s, next)
	}
	*s = next
}

func (s raceState) String() string { return [...]string{"idle", "on", "over"}[s] }

// attemptState is where an attempt stands.
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
)

var attemptEdges = [...][5]bool{
	attemptIdle:      {attemptLaunched: true},
	attemptLaunched:  {attemptQueued: true, attemptSent: true, attemptIdle: true},
	attemptQueued:    {attemptSent: true, attemptIdle: true},
	attemptSent:      {attemptLingering: true, attemptIdle: true},
	attemptLingering: {attemptIdle: true},
}

func (s *attemptState) become(next attemptState) {
	if !attemptEdges[*s][next] {
		loop.IllegalState(*s, next)
	}
	*s = next
}

func (s attemptState) String() string {
	return [...]string{"idle", "launched", "queued", "sent", "lingering"}[s]
}
