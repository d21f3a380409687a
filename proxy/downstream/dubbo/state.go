package dubbo

import "github.com/remora-proxy/remora/proxy/loop"

// sessionState is the state of a session.
//
//	open ──Drain──▶ grace ──InTransit──▶ draining ──last response──▶ closed
//	  └───────────────┴──────── idle, lost, slow or malformed ──┴────────────▲
type sessionState uint8

const (
	open     sessionState = iota // takes calls
	grace                        // takes calls, but the consumer was told to send no more
	draining                     // refuses calls, and closes when all have their responses
	closed
)

var sessionEdges = [...][4]bool{
	open:     {grace: true, closed: true},
	grace:    {draining: true, closed: true},
	draining: {closed: true},
	closed:   {},
}

func (s *sessionState) become(next sessionState) {
	if !sessionEdges[*s][next] {
		loop.IllegalState(*s, next)
	}
	*s = next
}

func (s sessionState) String() string {
	return [...]string{"open", "grace", "draining", "closed"}[s]
}
