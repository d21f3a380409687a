package link

import (
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/mux/linkconn"
)

// ending is how a link ends: it drains, and closes behind the last response.
//
// Calls in: the session says why (drain, distrust, lose, leaveIdle, closeIdle, closeNow). input says which requests the
// peer has sent (note). finish is called when a response or later output was sent, and when input was decoded.
//
// Calls out: input and calls are stopped.
type ending struct {
	*session
	newest uint64 // highest id of a request that was complete or refused
}

// note notes the id of a request that is complete or refused. A long request ends after shorter ones that began later.
func (e *ending) note(id uint64) { e.newest = max(e.newest, id) }

// drain tells the peer to send no more requests, and closes the link after the last response.
func (e *ending) drain() {
	if e.State() == linkconn.Open {
		e.StartDraining()
		e.Writer.GoAway(e.newest, link.Draining)
		e.Flush()
	}
	e.finish()
}

// distrust drains the link of a peer that is no longer accepted. The requests in flight have timeouts.drain.
func (e *ending) distrust() {
	if e.State() == linkconn.Opening {
		e.lose()
		return
	}
	e.drain()
	e.LimitDrain()
}

// finish closes a draining link when the last response was written and nothing is in
// reassembly: the dialler completes requests that it began before the GOAWAY, and must learn
// that they were not processed. Usually the dialler closes first, once it has all responses.
func (e *ending) finish() {
	if e.State() == linkconn.Draining && e.calls.len() == 0 && e.Writer.Queued() == 0 && e.Reader.Buffered() == 0 {
		e.drainAndClose()
	}
}

// lose closes a link whose peer has gone, or breaks a rule.
func (e *ending) lose() {
	e.close()
	e.Transport.Close()
}

// leaveIdle closes a link that has carried nothing for long. It sends a GOAWAY first: the peer then knows that a request
// on its way was not processed.
func (e *ending) leaveIdle() {
	if e.State() == linkconn.Open {
		e.drain()
		return
	}
	e.lose()
}

// closeIdle refuses the requests in reassembly, and closes the link. The GOAWAY tells the peer that other requests
// on their way were not processed.
func (e *ending) closeIdle() {
	for _, id := range e.Reader.ForgetAll() {
		e.input.OnReject(id, link.Draining)
	}
	e.drain()
	if e.State() != linkconn.Closed { // a frame has arrived in part
		e.drainAndClose()
	}
}

// drainAndClose ends the session, and closes the link once the responses are sent.
func (e *ending) drainAndClose() {
	e.Transport.Drain()
	e.close()
}

// close ends the session. It cancels the requests of the peer, which can't get their responses any more. The caller
// closes the connection.
func (e *ending) close() {
	if e.State() == linkconn.Closed {
		return
	}
	if e.State() != linkconn.Opening {
		e.host.Process.Links.Add(-1)
		e.listener.Links.Add(-1)
	}
	e.Stop()
	e.calls.cancelAll()
}

// closeNow closes the link. Nobody learns of the responses to the requests in flight.
func (e *ending) closeNow() {
	inFlight := e.calls.inOrder()
	e.close()
	for _, entry := range inFlight {
		entry.Value.AbandonNow()
	}
	e.host.Remove(e.session)
	e.Transport.Close()
}
