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
)

// inputEdges: an input that was closed by a refusal closes once more with the session.
var inputEdges = [...][6]bool{
	inputHead:    {inputBody: true, inputHandoff: true, inputHTTP2: true, inputClosed: true},
	inputBody:    {inputHead: true, inputHandoff: true, inputClosed: true},
	inputHandoff: {inputTunnel: true, inputClosed: true},
	inputTunnel:  {inputHead: true, inputHandoff: true, inputClosed: true},
	inputHTTP2:   {inputClosed: true},
	inputClosed:  {inputClosed: true},
}

// outputState is the progress of the first call of a session.
//
//	outputIdle ◀──▶ outputBusy ──▶ outputHandoff
//	     └──▶ outputWaiting ─▲
//
// Every state leads to outputClosed, and outputHandoff back to outputIdle when the
// connection can't leave the loop.
type outputState uint8

const (
	outputIdle    outputState = iota // there is no call, or turn.next is about to begin it
	outputWaiting                    // it waits until the client has read earlier responses
	outputBusy                       // it is in flight
	outputHandoff                    // its response waits to leave the loop with the connection
	outputClosed
)

var outputEdges = [...][5]bool{
	outputIdle:    {outputWaiting: true, outputBusy: true, outputClosed: true},
	outputWaiting: {outputBusy: true, outputClosed: true},
	outputBusy:    {outputIdle: true, outputHandoff: true, outputClosed: true},
	outputHandoff: {outputIdle: true, outputClosed: true},
	outputClosed:  {},
}

func (s *inputState) become(next inputState) {
	if !inputEdges[*s][next] {
		loop.IllegalState(*s, next)
	}
	*s = next
}

func (s *outputState) become(next outputState) {
	if !outputEdges[*s][next] {
		loop.IllegalState(*s, next)
	}
	*s = next
}

// mayBegin reports whether the first call may begin.
func (s outputState) mayBegin() bool { return s == outputIdle || s == outputWaiting }

func (s inputState) String() string {
	return [...]string{"head", "body", "handoff", "tunnel", "http2", "closed"}[s]
}

func (s outputState) String() string {
	return [...]string{"idle", "waiting", "busy", "handoff", "closed"}[s]
}
