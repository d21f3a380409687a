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
//	idle ──▶ launched ──▶ queued ──▶ asking ──▶ sent ──cancel──▶ lingering
//
// Each state also leads to idle, and launched and queued straight to sent, launched also to asking. Every way to idle goes
// through Attempt.end, which gives back the slot, the pending count and the hedge.
type attemptState uint8

const (
	attemptIdle      attemptState = iota // not begun, or over
	attemptLaunched                      // asks for a slot and an endpoint
	attemptQueued                        // in the service's queue for a slot
	attemptAsking                        // waits for answers to probes
	attemptSent                          // with an upstream
	attemptLingering                     // cancelled, but its endpoint may still work on it
)

var attemptEdges = [...][6]bool{
	attemptIdle:      {attemptLaunched: true},
	attemptLaunched:  {attemptQueued: true, attemptAsking: true, attemptSent: true, attemptIdle: true},
	attemptQueued:    {attemptAsking: true, attemptSent: true, attemptIdle: true},
	attemptAsking:    {attemptSent: true, attemptIdle: true},
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
	return [...]string{"idle", "launched", "queued", "asking", "sent", "lingering"}[s]
}

// streamState is where a stream stands.
//
//	seeking ──endpoint──▶ connecting ──connected──▶ open ──Close──▶ over
//	   ▲                       │
//	   └─────────retry─────────┘
//
// The stream of a response begins at open. seeking also leads to over, if the race is lost or refused, and so does
// connecting, by Close. Every way to over goes through loopStream.end.
type streamState uint8

const (
	streamSeeking    streamState = iota // picked waits for an endpoint
	streamConnecting                    // the carrier carries out the attempt
	streamOpen                          // at its endpoint until the stream ends
	streamOver
)

var streamEdges = [...][4]bool{
	streamSeeking:    {streamConnecting: true, streamOver: true},
	streamConnecting: {streamSeeking: true, streamOpen: true, streamOver: true},
	streamOpen:       {streamOver: true},
	streamOver:       {},
}

func (s *streamState) become(next streamState) {
	if !streamEdges[*s][next] {
		loop.IllegalState(*s, next)
	}
	*s = next
}

// atEndpoint reports whether the stream is at an endpoint.
func (s streamState) atEndpoint() bool { return s == streamConnecting || s == streamOpen }

func (s streamState) String() string {
	return [...]string{"seeking", "connecting", "open", "over"}[s]
}
