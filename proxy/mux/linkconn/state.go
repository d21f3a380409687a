package linkconn

import "github.com/remora-proxy/remora/proxy/loop"

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

var stateEdges = [...][4]bool{
	Opening:  {Open: true, Closed: true},
	Open:     {Draining: true, Closed: true},
	Draining: {Draining: true, Closed: true}, // a further GOAWAY changes nothing
	Closed:   {},
}

func (s *State) become(next State) {
	if !stateEdges[*s][next] {
		loop.IllegalState(*s, next)
	}
	*s = next
}

func (s State) String() string { return [...]string{"opening", "open", "draining", "closed"}[s] }

// State returns the state of this end.
func (c *Conn) State() State { return c.state }
