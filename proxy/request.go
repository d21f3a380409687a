package proxy

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// message is the request of an exchange and the memory that it is in.
type message struct {
	req      protocol.Request
	attempt  uint8 // req.Attempt and req.Hedge as they came; each attempt sets its own
	hedged   bool
	unhedged bool                       // the caller wants no hedges
	head     *bytebufferpool.ByteBuffer // what req's slices alias
	body     *bytebufferpool.ByteBuffer // what req.Body aliases, where it is not head
	held     int                        // bytes of both, counted against limits.buffered
	stopped  *Failure                   // why it goes no further than here; nil: it does

	envelope
}

// envelope is what a downstream session adds to a request, and the memory for it.
type envelope struct {
	requestID []byte   // of a request that came over HTTP; aliases head or newID
	newID     [32]byte // an id that was made here
	forwarded []byte   // the value of X-Forwarded-For, where there was one before
	forwards  []byte   // the value of Max-Forwards, where it was lowered
	path      []byte   // the path, where the route rewrote it
	asked     []byte   // the path that the caller asked for there; aliases head
}

// maxForwarded, maxRewritten and maxTraceState bound the memory for
// X-Forwarded-For, for a rewritten path and for a marked tracestate that an
// exchange keeps for the next request.
const (
	maxForwarded  = 256
	maxRewritten  = 512
	maxTraceState = 512
)

// hold counts the request's memory against limits.buffered, again when it has grown.
func (ex *exchange) hold() {
	n := protocol.Held(ex.head) + protocol.Held(ex.body)
	ex.w.charge(n - ex.held)
	ex.held = n
}

// size is how many bytes the request is.
func (ex *exchange) size() int { return length(ex.head) + length(ex.body) }

func (ex *exchange) releaseRequest() {
	if ex.head != nil {
		ex.w.buffers.Put(ex.head)
		ex.head = nil
	}
	if ex.body != nil {
		ex.w.buffers.Put(ex.body)
		ex.body = nil
	}
	ex.w.charge(-ex.held)
	ex.held = 0
	ex.req.Reset()
}
