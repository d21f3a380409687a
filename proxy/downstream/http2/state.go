package http2

import "github.com/remora-proxy/remora/proxy/loop"

// sessionState is the state of a session.
//
//	open ──▶ draining ──last response──▶ closed
//	  └────────── lost, malformed ─────────▲
type sessionState uint8

const (
	open     sessionState = iota // takes requests
	draining                     // GOAWAY was sent; requests that were on their way are taken
	closed
)

var sessionEdges = [...][3]bool{
	open:     {draining: true, closed: true},
	draining: {closed: true},
	closed:   {},
}

func (s *sessionState) become(next sessionState) {
	if !sessionEdges[*s][next] {
		loop.IllegalState(*s, next)
	}
	*s = next
}

func (s sessionState) String() string { return [...]string{"open", "draining", "closed"}[s] }
