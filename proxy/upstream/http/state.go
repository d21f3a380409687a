package http

import "github.com/remora-proxy/remora/proxy/loop"

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

var connEdges = [...][5]bool{
	dialing:      {idle: true, closed: true},
	idle:         {awaitingHead: true, closed: true},
	awaitingHead: {awaitingBody: true, idle: true, closed: true},
	awaitingBody: {idle: true, closed: true},
	closed:       {},
}

func (s *connState) become(next connState) {
	if !connEdges[*s][next] {
		loop.IllegalState(*s, next)
	}
	*s = next
}

func (s connState) String() string {
	return [...]string{"dialing", "idle", "awaiting head", "awaiting body", "closed"}[s]
}
