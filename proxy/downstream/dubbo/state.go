package dubbo

// sessionState is the state of a session.
//
//	open ──Drain──▶ grace ──drainGrace──▶ draining ──last response──▶ closed
//	  └───────────────┴──────── idle, lost, slow or malformed ──┴────────────▲
type sessionState uint8

const (
	open     sessionState = iota // takes calls
	grace                        // takes calls, but the consumer was told to send no more
	draining                     // refuses calls, and closes when all have their responses
	closed
)

// sessionEdges has the transitions that become accepts, by the state before.
var sessionEdges = [...][4]bool{
	open:     {grace: true, closed: true},
	grace:    {draining: true, closed: true},
	draining: {closed: true},
	closed:   {},
}

// become is the only place that changes a state. A transition that is not legal is a
// fault of this program: the driver recovers the panic and closes the connection.
func (s *sessionState) become(next sessionState) {
	if !sessionEdges[*s][next] {
		s.illegal(next)
	}
	*s = next
}

// illegal is not part of become, so that become is inlined.
//
//go:noinline
func (s sessionState) illegal(next sessionState) {
	panic("downstream/dubbo: a session can't go from " + s.String() + " to " + next.String())
}

func (s sessionState) String() string {
	return [...]string{"open", "grace", "draining", "closed"}[s]
}
