package stats

// Handoff is the reason for which a connection, or the body of a response, left its
// loop. It is small and dense, so that it can index an array of counters.
type Handoff uint8

// The handoffs, those of StreamKind first.
const (
	HandoffBody      = Handoff(StreamBody)      // a client's connection, for a request with a long body
	HandoffWebSocket = Handoff(StreamWebSocket) // a client's connection, for a request to upgrade
	HandoffConnect   = Handoff(StreamConnect)   // a client's connection, for a CONNECT
	HandoffPass      = Handoff(StreamPass)      // a redirected connection, for its original destination
	HandoffAnswer    = HandoffPass + 1          // a client's connection, for a response that is long or has no end
	HandoffParked    = HandoffAnswer + 1        // the body of such a response, for another sidecar to fetch
	HandoffAccepted  = HandoffParked + 1        // another sidecar's connection, for a stream

	// Handoffs is the number of handoffs.
	Handoffs = int(HandoffAccepted) + 1
)

var handoffNames = [Handoffs]string{"body", "websocket", "connect", "pass", "answer", "parked", "accepted"}

// String returns the handoff's stable name, as metrics have it.
func (h Handoff) String() string { return handoffNames[h] }

// StreamKind is the kind of stream that a client's connection becomes.
type StreamKind uint8

const (
	StreamBody      StreamKind = iota // a request with a body too long to buffer, and its response
	StreamWebSocket                   // a request to upgrade, mostly to WebSocket
	StreamConnect                     // a CONNECT: bytes to an endpoint of the service and back
	StreamPass                        // no request: bytes to the original destination and back
)
