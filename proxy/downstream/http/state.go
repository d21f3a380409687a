package http

import "github.com/remora-proxy/remora/proxy/loop"

// A session has two machines, since it receives requests while an earlier one is processed.

// inputState is what a session does with the bytes that it receives.
//
//	inputHead ◀──▶ inputBody
//	  ▲ └──────┬───────┘
//	  │        ▼
//	  │  inputHandoff ──▶ inputClosed ◀── inputHTTP2, behind the first inputHead
//	  │       ▲ │
//	  │       │ ▼
//	  └─ inputTunnel
//
// Every state leads to inputClosed.
type inputState uint8

const (
	inputHead    inputState = iota // collects the head of a request
	inputBody                      // collects its body
	inputHandoff                   // the last request waits to leave the loop with the connection: bytes are kept for it
	inputTunnel                    // a CONNECT was accepted, and its first bytes decide what follows
	inputHTTP2                     // the client speaks HTTP/2, and the connection goes to a session of that
	inputClosed                    // bytes are ignored

	numInputStates = iota
)

// inputEdges has the states that may follow each state. An input that was closed by a refusal closes once more with the
// session.
var inputEdges = [...][numInputStates]bool{
	inputHead:    {inputBody: true, inputHandoff: true, inputHTTP2: true, inputClosed: true},
	inputBody:    {inputHead: true, inputHandoff: true, inputClosed: true},
	inputHandoff: {inputTunnel: true, inputClosed: true},
	inputTunnel:  {inputHead: true, inputHandoff: true, inputClosed: true},
	inputHTTP2:   {inputClosed: true},
	inputClosed:  {inputClosed: true},
}

// turnState is the progress of the first call.
//
//	turnIdle ◀──▶ turnBusy ──▶ turnHandoff
//
// Every state leads to turnClosed, and turnHandoff back to turnIdle when the
// connection can't leave the loop.
type turnState uint8

const (
	turnIdle    turnState = iota // there is no call, or turn.next is about to begin it, at the latest once the client has read earlier responses
	turnBusy                     // it is in flight
	turnHandoff                  // its response waits to leave the loop with the connection
	turnClosed

	numTurnStates = iota
)

var turnEdges = [...][numTurnStates]bool{
	turnIdle:    {turnBusy: true, turnClosed: true},
	turnBusy:    {turnIdle: true, turnHandoff: true, turnClosed: true},
	turnHandoff: {turnIdle: true, turnClosed: true},
	turnClosed:  {},
}

func (s *inputState) become(next inputState) {
	if !inputEdges[*s][next] {
		loop.IllegalState(*s, next)
	}
	*s = next
}

func (s *turnState) become(next turnState) {
	if !turnEdges[*s][next] {
		loop.IllegalState(*s, next)
	}
	*s = next
}

func (s inputState) String() string {
	return [...]string{"head", "body", "handoff", "tunnel", "http2", "closed"}[s]
}

func (s turnState) String() string {
	return [...]string{"idle", "busy", "handoff", "closed"}[s]
}
