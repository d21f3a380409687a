package http

import (
	"testing"

	"github.com/remora-proxy/remora/internal/statetest"
)

// TestInputTransitions: a request that leaves the loop is the last one that is received,
// whether it has a body or not. A tunnel that carries requests receives them as its connection
// would. An HTTP/2 client shows that at once. Input that was refused closes again with the
// session.
func TestInputTransitions(t *testing.T) {
	statetest.Check(t, (*inputState).become, map[inputState][]inputState{
		inputHead:    {inputBody, inputHandoff, inputHTTP2, inputClosed},
		inputBody:    {inputHead, inputHandoff, inputClosed},
		inputHandoff: {inputTunnel, inputClosed},
		inputTunnel:  {inputHead, inputHandoff, inputClosed},
		inputHTTP2:   {inputClosed},
		inputClosed:  {inputClosed},
	})
}

// TestOutputTransitions: only a call that began may get a stream as its response. If the stream can't leave, an
// error response ends the call. A closed session writes nothing.
func TestOutputTransitions(t *testing.T) {
	statetest.Check(t, (*turnState).become, map[turnState][]turnState{
		turnIdle:    {turnBusy, turnClosed},
		turnBusy:    {turnIdle, turnHandoff, turnClosed},
		turnHandoff: {turnIdle, turnClosed},
		turnClosed:  {},
	})
}
