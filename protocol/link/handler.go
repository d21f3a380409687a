package link

import (
	"cmp"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// Handler receives the frames and messages that a Reader decodes, in the order of arrival and
// during Feed: see RequestHandler and ResponseHandler. It may call Forget and Close of the Reader, not Feed, and all of
// the Writer.
type Handler interface {
	// OnPreface comes first, once. Both sides then call Writer.Open with its arguments.
	// version is the version that both sides speak.
	OnPreface(version uint8, peer Settings)

	// OnReject says that message id was not accepted; the rest of it is skipped. why is
	// TooLarge (over the limits), Overload (too many messages in reassembly, or no memory for
	// more), DeadlinePassed (it took too long to arrive, see Expire) or Malformed (text that
	// must not be forwarded, such as a line break in a header). An acceptor must call
	// Writer.Refused(id, why). A dialer must fail the attempt and call Writer.Cancel.
	OnReject(id uint64, why Reason)

	OnPing(n uint64) // the handler calls Writer.Pong(n)
	OnPong(n uint64)

	OnCredit(n uint32) // grants DATA: pass n to Writer.Granted, and flush if Writer.Ready
}

// RequestHandler is the Handler of an acceptor.
type RequestHandler interface {
	Handler

	// OnStream comes instead of OnPreface, and is the last call: the
	// connection carries a stream. rest is the part of Feed's input after the preface, and is
	// valid until OnStream returns.
	OnStream(s Stream, rest []byte)

	// NewRequest returns the structure for the OnRequest of id, which follows at once. The
	// Reader swaps it with its own, header slices included: nothing is copied, and nothing is
	// allocated if the handler reuses its structures. nil drops the message.
	NewRequest(id uint64) *protocol.Request

	// OnRequest passes a complete request; req is what NewRequest returned. ttl is the time
	// left, and 0 means no deadline; req.Deadline is not set. The slices of req alias buf or
	// the interning table, whose memory never changes. The handler owns buf: it must give it
	// back with Buffers.Put and must not append to it.
	OnRequest(id uint64, req *protocol.Request, ttl time.Duration, buf *bytebufferpool.ByteBuffer)

	// OnCancel says that the peer cancels request id. The handler must respond with CancelAck
	// even if it never saw the request, because it was in reassembly, which the Reader has dropped, or rejected.
	OnCancel(id uint64)

	// OnStart says that the peer wants to be told, once, when request id starts. The handler calls Writer.Start(id) then,
	// and at once if it knows no request id that waits to start.
	OnStart(id uint64)

	// OnWithdraw says that request id must not wait for the application any longer. If the request
	// waits, the handler refuses it (NoSlot); else it does nothing.
	OnWithdraw(id uint64)

	// OnProbe says that the peer asks for the load of the service. The handler calls Writer.Answer,
	// unless earlier output waits: a load that waits is old when it arrives.
	OnProbe()
}

// ResponseHandler is the Handler of a dialer.
type ResponseHandler interface {
	Handler

	// NewResponse is for OnResponse what RequestHandler.NewRequest is for OnRequest. It returns nil to drop a
	// response that is no longer awaited.
	NewResponse(id uint64) *protocol.Response

	// OnResponse passes a complete response, owned like a request. Its StreamToken aliases
	// buf, never the table, and needs FeatureStreams in the Reader's own settings.
	OnResponse(id uint64, resp *protocol.Response, codec protocol.Codec, buf *bytebufferpool.ByteBuffer)

	// OnInterim passes an interim response (1xx but 101) to request id. resp is valid until it returns. The handler drops it if
	// it does not wait for a response to id: the Reader does not know that.
	OnInterim(id uint64, resp *protocol.Response)

	// OnCancelAck says what became of request id, which Writer.Cancel has cancelled.
	OnCancelAck(id uint64, d Dropped)

	// OnRefused says that request id ends without a response. If the request is still being
	// sent, the handler must call Writer.Drop.
	OnRefused(id uint64, why Reason)

	// OnStart says that the application works on request id, or soon will: see Writer.Start.
	OnStart(id uint64)

	// OnGoAway says that the peer has not processed and will not process requests above last,
	// and that it accepts no new ones.
	OnGoAway(last uint64, why Reason)

	OnLoad(l Load)   // the load of the service
	OnAnswer(l Load) // the load of the service, after Writer.Probe
}

// ReaderLimits limits the memory that a peer can occupy. In each field zero means the default.
type ReaderLimits struct {
	Message int64 // bytes of a body; default 4 MiB
	Header  int   // bytes of a head: target, header lines, trailers; default 64 KiB
	Headers int   // header lines, and trailers; default 128
	Streams int   // messages in reassembly at a time; default 4096

	// Full, if not nil, is called before the reassembly of message id begins. true rejects the
	// message (Overload).
	Full func(id uint64) bool

	Buffers *protocol.Buffers // provides the memory of messages and takes it back

	// Scratch is where a message is decoded before the handler provides its memory. The Readers
	// of a loop share it. nil means that the Reader has its own.
	Scratch *protocol.Scratch
}

func (l ReaderLimits) withDefaults() ReaderLimits {
	l.Message = cmp.Or(l.Message, 4<<20)
	l.Header = cmp.Or(l.Header, 64<<10)
	l.Headers = cmp.Or(l.Headers, 128)
	l.Streams = cmp.Or(l.Streams, 4096)
	if l.Scratch == nil {
		l.Scratch = new(protocol.Scratch)
	}
	return l
}
