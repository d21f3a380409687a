package exchange

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
)

// message is the request of an exchange and the memory that it is in.
type message struct {
	Request    protocol.Request
	attempt    uint8 // req.Attempt and req.Hedge as they came; each attempt sets its own
	hedged     bool
	NoHedge    bool                       // the caller wants no hedges
	HeadBuffer *bytebufferpool.ByteBuffer // what req's slices alias
	BodyBuffer *bytebufferpool.ByteBuffer // what req.Body aliases, where it is not head
	Held       int                        // bytes of both, counted against limits.buffered
	Refusal    *fault.Failure             // why it goes no further than here; nil: it does

	envelope
}

// envelope is what a downstream session adds to a request, and the memory for it.
type envelope struct {
	RequestID    []byte   // of a request that came over HTTP; aliases head or NewID
	NewID        [32]byte // an id that was made here
	Forwarded    []byte   // the value of X-Forwarded-For, where there was one before
	MaxForwards  []byte   // the value of Max-Forwards, where it was lowered
	Path         []byte   // the Path, where the route rewrote it
	OriginalPath []byte   // the path that the caller asked for there; aliases head
}

// maxForwarded, maxRewritten and maxTraceState bound the memory for
// X-Forwarded-For, for a rewritten path and for a marked tracestate that an
// exchange keeps for the next request.
const (
	maxForwarded  = 256
	maxRewritten  = 512
	maxTraceState = 512
)

// Hold counts the request's memory against limits.buffered, again when it has grown.
func (ex *Exchange) Hold() {
	n := protocol.Held(ex.HeadBuffer) + protocol.Held(ex.BodyBuffer)
	ex.shard.Charge(n - ex.Held)
	ex.Held = n
}

// size is how many bytes the request is.
func (ex *Exchange) size() int { return bufferLen(ex.HeadBuffer) + bufferLen(ex.BodyBuffer) }

func (ex *Exchange) releaseRequest() {
	if ex.HeadBuffer != nil {
		ex.shard.Buffers.Put(ex.HeadBuffer)
		ex.HeadBuffer = nil
	}
	if ex.BodyBuffer != nil {
		ex.shard.Buffers.Put(ex.BodyBuffer)
		ex.BodyBuffer = nil
	}
	ex.shard.Charge(-ex.Held)
	ex.Held = 0
	ex.Request.Reset()
}
