package http2

import "github.com/remora-proxy/remora/proxy/loop"

// connState is the state of a connection.
//
//	dialing ─connected─▶ greeting ─SETTINGS─▶ open ─GOAWAY, or no longer wanted─▶ draining
//
// Every state leads to closed.
type connState uint8

const (
	dialing  connState = iota
	greeting           // connected; the endpoint's SETTINGS have not arrived
	open               // takes requests
	draining           // takes no more requests, and closes behind the last
	closed
)

var connEdges = [...][5]bool{
	dialing:  {greeting: true, closed: true},
	greeting: {open: true, closed: true},
	open:     {draining: true, closed: true},
	draining: {closed: true},
	closed:   {},
}

func (s *connState) become(next connState) {
	if !connEdges[*s][next] {
		loop.IllegalState(*s, next)
	}
	*s = next
}

func (s connState) String() string {
	return [...]string{"dialing", "greeting", "open", "draining", "closed"}[s]
}
