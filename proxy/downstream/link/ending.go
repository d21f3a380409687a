package link

import (
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/mux/linkconn"
)

// ending is how a link ends: it drains, and closes behind the last response.
//
// Calls in: the session says why (drain, distrust). input says which requests the peer has sent (note). finish is called
// when a response was sent or input was decoded.
//
// Calls out: the session closes.
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
		e.OnLost()
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
		e.Transport.Drain()
		e.close()
	}
}
