package http

// connState is the state of an upstream HTTP connection.
//
//	dialing ─▶ idle ─request─▶ awaitingHead ─head─▶ awaitingBody
//	            ▲──── whole response ───┴─────────────────┘
//
// Every state leads to closed.
type connState uint8

const (
	dialing      connState = iota
	idle                   // open, no request in flight
	awaitingHead           // a request was sent, the head of its response is incomplete
	awaitingBody           // the head has arrived, the body is incomplete
	closed                 // also once the connection has left its loop
)

// connEdges has the transitions that become accepts, by the state before.
var connEdges = [...][5]bool{
	dialing:      {idle: true, closed: true},
	idle:         {awaitingHead: true, closed: true},
	awaitingHead: {awaitingBody: true, idle: true, closed: true},
	awaitingBody: {idle: true, closed: true},
	closed:       {},
}

// become is the only place that changes a state. A transition that is not legal is a
// fault of this program: the driver recovers the panic and closes the connection.
func (s *connState) become(next connState) {
	if !connEdges[*s][next] {
		s.illegal(next)
	}
	*s = next
}

// illegal is not part of become, so that become is inlined.
//
//go:noinline
func (s connState) illegal(next connState) {
	panic("upstream/http: a connection can't go from " + s.String() + " to " + next.String())
}

func (s connState) String() string {
	return [...]string{"dialing", "idle", "awaiting head", "awaiting body", "closed"}[s]
}
