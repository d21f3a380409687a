package stats

// Handoff is with what a connection, or the body of an answer, left its loop.
// It is small and dense, fit to index an array of counters.
type Handoff uint8

// The departures, those of StreamKind first.
const (
	HandoffBody      = Handoff(StreamBody)      // a client's, with a request whose body is long
	HandoffWebSocket = Handoff(StreamWebSocket) // a client's, with a wish to upgrade
	HandoffConnect   = Handoff(StreamConnect)   // a client's, with a CONNECT
	HandoffPass      = Handoff(StreamPass)      // a redirected one, for where it was going
	HandoffAnswer    = HandoffPass + 1          // a client's, with an answer that is long or lasts
	HandoffParked    = HandoffAnswer + 1        // the body of such an answer, for another sidecar to fetch
	HandoffAccepted  = HandoffParked + 1        // another sidecar's, with a stream

	// Handoffs is the number of departures.
	Handoffs = int(HandoffAccepted) + 1
)

var handoffNames = [Handoffs]string{"body", "websocket", "connect", "pass", "answer", "parked", "accepted"}

// String returns the departure's stable name, as metrics carry it.
func (d Handoff) String() string {
	if int(d) < Handoffs {
		return handoffNames[d]
	}
	return "unknown"
}

// StreamKind is what a client's connection turns into.
type StreamKind uint8

const (
	// StreamBody is a request with a body too long to be held, and its answer.
	StreamBody StreamKind = iota
	// StreamWebSocket is a request to upgrade to WebSocket.
	StreamWebSocket
	// StreamConnect is a CONNECT: bytes to an endpoint of the service and back.
	StreamConnect
	// StreamPass is no request: bytes to where the client meant its connection
	// to go, and back.
	StreamPass
)
