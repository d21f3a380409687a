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

// callState is what a call waits for.
//
//	receiving ─complete─▶ processing ───▶ sending
//	  │  │                     ▼            ▲  ▲
//	  │  └───too long────▶ streaming ───────┘  │
//	  └─────────────── refused ────────────────┘
type callState uint8

const (
	receiving  callState = iota // the rest of the request
	processing                  // the response
	streaming                   // a goroutine, which has the request or the response
	sending                     // the client, to read the response
)

var callEdges = [...][4]bool{
	receiving:  {processing: true, streaming: true, sending: true},
	processing: {streaming: true, sending: true},
	streaming:  {sending: true},
	sending:    {},
}

func (s *callState) become(next callState) {
	if !callEdges[*s][next] {
		loop.IllegalState(*s, next)
	}
	*s = next
}

func (s callState) String() string {
	return [...]string{"receiving", "processing", "streaming", "sending"}[s]
}

// pends reports whether a timeout of the session bounds the state.
func (s callState) pends() bool { return s == receiving || s == sending }
