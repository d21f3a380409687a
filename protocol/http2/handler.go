package http2

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// Handler receives what a Conn decodes, whichever side it is on: see RequestHandler and ResponseHandler.
// All calls are made during Feed, but for OnSent and OnWritable, which are made during Output. No method
// of Conn calls the handler otherwise: in particular Reset does not call OnReset. A handler may call all
// methods of the Conn but Feed and Output.
//
// A Stream is over once both sides have ended, or it was reset. It must not be used then, as the
// Conn recycles it: after the end of the peer's message (end is true, or OnTrailers) if OnSent
// came before, after OnSent if the peer's message has ended, after OnReset, and after Reset.
type Handler interface {
	// MayGrow asks whether buf of NewRequest or NewResponse may have n bytes of memory in all. It comes
	// before the text of the head takes that memory. After false the head is decoded for the
	// compression table only. OnNoRoom follows, or OnReset with ErrNoRoom if st is a response.
	MayGrow(st *Stream, n int) bool

	// OnData passes a piece of the body, possibly empty if end is true. b is valid until return.
	// The handler must give the window back with Consumed, unless end.
	OnData(st *Stream, b []byte, end bool)

	// OnTrailers ends the peer's message. hs and its slices are valid until return.
	OnTrailers(st *Stream, hs []protocol.Header)

	// OnReset says that st is over. why is nil if the peer has reset it with code; otherwise it
	// is what the peer did wrong, and the Conn has sent RST_STREAM with code. It also comes for
	// streams that the peer's GOAWAY rules out (code RefusedStream, why ErrUnprocessed): the
	// request may be sent elsewhere.
	OnReset(st *Stream, code Code, why *Error)

	// OnWritable says that Send, which took less than all before, takes bytes again.
	OnWritable(st *Stream)

	// OnSent says that all of our side of st is in what Output returns: once, unless st was reset
	// before. A server that wants no more of a request that has not ended calls Reset(st, NoError)
	// then (RFC 9113 section 8.1).
	OnSent(st *Stream)
}

// RequestHandler is the Handler of a server.
type RequestHandler interface {
	Handler

	// NewRequest provides the memory of a request. OnRequest, OnOversize, OnNoRoom or
	// OnReset follows at once, unless Feed returns an error. The Conn resets req and fills it; its
	// slices alias buf, which is empty and belongs to the handler, or constants that must not be
	// written to. req has no Service, Deadline, Body or Trailers. nil refuses the stream (REFUSED_STREAM),
	// and no call with st follows.
	NewRequest(st *Stream) (req *protocol.Request, buf *bytebufferpool.ByteBuffer)

	// OnRequest says that the head is complete and valid; end, that no body follows. A CONNECT
	// has no Path. st.Length returns the length that the peer declared.
	OnRequest(st *Stream, end bool)

	// OnOversize comes instead of OnRequest if the head exceeds the limits. The handler should
	// respond with status 431, or Reset. The request has no use, and nothing more of it is passed
	// on: the stream is over after OnSent.
	OnOversize(st *Stream)

	// OnNoRoom comes instead of OnRequest after MayGrow has returned false. What holds for
	// OnOversize holds for it, with status 503.
	OnNoRoom(st *Stream)
}

// ResponseHandler is the Handler of a client.
type ResponseHandler interface {
	Handler

	// NewResponse provides the memory of a response, as NewRequest of a request. OnInterim,
	// OnResponse or OnReset follows at once. nil resets the stream (CANCEL), and no call with st
	// follows.
	NewResponse(st *Stream) (res *protocol.Response, buf *bytebufferpool.ByteBuffer)

	// OnInterim passes an interim response (1xx but 101). NewResponse is called again for the next
	// head, and may return the same memory.
	OnInterim(st *Stream)

	// OnResponse passes the final head. res.DeclaredLength is set if there is a Content-Length.
	OnResponse(st *Stream, end bool)

	// OnSettings says that the server's settings were received or have changed: see MayOpen.
	OnSettings()

	// OnGoAway says that the server accepts no new stream. The OnReset of streams above last
	// follow.
	OnGoAway(last uint32, code Code)

	// OnBarrier says that the server has read everything up to the latest unanswered Barrier. It comes once for each.
	OnBarrier()
}

// Releaser owns the memory of a message.
type Releaser interface {
	// Release is called exactly once, when the Conn no longer needs the message: often before the
	// call that took it returns.
	Release()
	// Buffered returns the bytes of memory that the message holds until then.
	Buffered() int
}
