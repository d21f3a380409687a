package linkconn

// State is the state of either end of a link.
//
//	Opening ──preface──▶ Open ──GOAWAY sent or received──▶ Draining ──last stream ended──▶ Closed
//	   └──────────────────┴──── idle, or the peer lost, silent or malformed ──┴──────────────▲
type State uint8

const (
	Opening  State = iota // the peer's preface has not arrived
	Open                  // takes new requests
	Draining              // a GOAWAY was sent or received: serves the requests in flight
	Closed
)

// stateEdges has the transitions that become accepts, by the state before.
var stateEdges = [...][4]bool{
	Opening:  {Open: true, Closed: true},
	Open:     {Draining: true, Closed: true},
	Draining: {Draining: true, Closed: true}, // a further GOAWAY changes nothing
	Closed:   {},
}

// become is the only place that changes a state. A transition that is not legal is a
// fault of this program: the driver recovers the panic and closes the connection.
func (s *State) become(next State) {
	if !stateEdges[*s][next] {
		s.illegal(next)
	}
	*s = next
}

// illegal is not part of become, so that become is inlined.
//
//go:noinline
func (s State) illegal(next State) {
	panic("linkconn: a link can't go from " + s.String() + " to " + next.String())
}

func (s State) String() string { return [...]string{"opening", "open", "draining", "closed"}[s] }

// State returns the state of this end.
func (c *Conn) State() State { return c.state }
