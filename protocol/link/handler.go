package link

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/valyala/bytebufferpool"
)

// Handler receives what a Reader decodes, in the order of arrival and inside
// Feed. It may call Forget and Close of that Reader, and any method of the
// Writer, but not Feed.
type Handler interface {
	// OnPreface comes first, once: both sides call Writer.Open with what it
	// is given. version is the one that both speak.
	OnPreface(version uint8, peer Settings)

	// OnStream comes instead, to acceptors only, and is the last call: the
	// connection carries a stream, and rest, valid until OnStream returns, is
	// what Feed was given behind its preface.
	OnStream(s Stream, rest []byte)

	// NewRequest supplies the structure for the OnRequest of id that follows at
	// once. The decoded one is swapped with it, lists of headers and their
	// capacity included, so that nothing is copied and nothing allocated when
	// the handler uses its structures again. nil drops the message.
	NewRequest(id uint64) *protocol.Request

	// OnRequest hands over a whole request: req is what NewRequest returned.
	// ttl is the time left (0: no deadline); req.Deadline is not set. The
	// slices of req alias buf, which is the handler's from here on (give it
	// back with Buffers.Put, do not append to it), or memory of the
	// interning table, which never changes and is kept by the garbage
	// collector as long as something points to it.
	OnRequest(id uint64, req *protocol.Request, ttl time.Duration, buf *bytebufferpool.ByteBuffer)

	// NewResponse is to OnResponse what NewRequest is to OnRequest. It is the
	// place to drop the answer to a request that nobody waits for: nil.
	NewResponse(id uint64) *protocol.Response

	// OnResponse hands over a whole response, with the same rule of ownership:
	// its StreamToken aliases buf, never the table. Without FeatureStreams in
	// the Reader's own settings there is none.
	OnResponse(id uint64, resp *protocol.Response, codec protocol.Codec, buf *bytebufferpool.ByteBuffer)

	// OnReject: message id can't be taken, and what else arrives of it is
	// skipped. why is TooLarge (over the limits), Overload (too many messages
	// in reassembly, or no memory for more), DeadlinePassed (it took too long
	// to arrive, see Expire) or Malformed (text that must not be sent on, such
	// as a line break in a header). An acceptor answers Writer.Refused(id, why);
	// a dialer fails the attempt and calls Writer.Cancel.
	OnReject(id uint64, why Reason)

	// OnCancel: the peer withdraws request id, which the handler may never
	// have seen (it was in reassembly, or rejected): it answers with CancelAck
	// in every case.
	OnCancel(id uint64)
	OnCancelAck(id uint64, d Dropped)

	// OnRefused: request id ends without a response. If it is still being sent,
	// the handler calls Writer.Drop.
	OnRefused(id uint64, why Reason)

	OnPing(n uint64) // answer with Writer.Pong(n)
	OnPong(n uint64)

	// OnGoAway: requests above last were not and will not be processed by the
	// peer, and it takes no new ones.
	OnGoAway(last uint64, why Reason)

	// OnCredit: pass n to Writer.Granted, then flush if Writer.Ready.
	OnCredit(n uint32)
	OnLoad(l Load)
}

// ReaderLimits bounds what a peer can make a Reader hold.
type ReaderLimits struct {
	Message int64 // bytes of a body; default 4 MiB
	Header  int   // bytes of a head: target, header lines, trailers; default 64 KiB
	Headers int   // count of header lines, and of trailers; default 128
	Streams int   // messages in reassembly at a time; default 4096

	// Full, if not nil, is asked before the reassembly of a message begins;
	// true rejects it (Overload).
	Full func() bool

	// Buffers is where the memory of messages comes from and goes to.
	Buffers *protocol.Buffers
}

func (l ReaderLimits) withDefaults() ReaderLimits {
	if l.Message <= 0 {
		l.Message = 4 << 20
	}
	if l.Header <= 0 {
		l.Header = 64 << 10
	}
	if l.Headers <= 0 {
		l.Headers = 128
	}
	if l.Streams <= 0 {
		l.Streams = 4096
	}
	return l
}
