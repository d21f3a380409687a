package stream

// pairState is where a stream stands.
//
//	opening ──request sent──▶ awaitingHead ──head──▶ responding ──last byte──▶ finishing
//	   │ ▲                         │                     │
//	   │ └────another endpoint─────┘                    101
//	   │                                                 ▼
//	   └───────────────opaque bytes──────────────────▶ relaying ──failure──▶ breaking
//
// The head of a response may also arrive in opening. A refusal leads from the first three states to finishing.
// Every state leads to aborted.
type pairState uint8

const (
	opening      pairState = iota // an endpoint is sought, or the request is sent to it
	awaitingHead                  // the head of the response has a deadline of its own, so the stream is not idle
	responding                    // a final response is passed on
	relaying                      // bytes are copied both ways
	breaking                      // one direction of relaying has failed: the other one still has flushTime
	finishing                     // the last bytes are sent to the client, which may leave
	aborted                       // both ends are reset
)

var pairEdges = [...][7]bool{
	opening:      {awaitingHead: true, responding: true, relaying: true, finishing: true, aborted: true},
	awaitingHead: {opening: true, awaitingHead: true, responding: true, finishing: true, aborted: true},
	responding:   {relaying: true, finishing: true, aborted: true},
	relaying:     {breaking: true, aborted: true},
	breaking:     {aborted: true},
	finishing:    {aborted: true},
	aborted:      {},
}

// become changes the state to next, if pairEdges has the change, and reports whether it does. A refused change is no
// mistake: the goroutines of a stream race, and another goroutine was faster.
func (s *pairState) become(next pairState) bool {
	if !pairEdges[*s][next] {
		return false
	}
	*s = next
	return true
}

// clientState is what the client of a stream has done. A client may skip states, and never goes back.
type clientState uint8

const (
	clientWaiting   clientState = iota // it has not begun a body
	clientUploading                    // it has to send a body
	clientUploaded                     // no more of its body is passed on
	clientEnded                        // its output has ended, and it may wait for the response
	clientLeft                         // it has gone before the end of the stream
)

// become changes the state to next, unless the client is beyond that.
func (s *clientState) become(next clientState) { *s = max(*s, next) }
