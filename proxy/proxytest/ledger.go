package proxytest

import (
	"testing"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
)

// linkLedger counts the requests of a link's dialler and the responses of its acceptor, by
// the id of the stream.
type linkLedger struct {
	Requested map[uint64]bool // complete, or invalid
	Responses map[uint64]int
	Cancelled map[uint64]bool
}

// NewLinkLedger reads the bytes of both directions. said may end with invalid bytes; heard
// must be valid frames.
func NewLinkLedger(t *testing.T, said, heard []byte, limits link.ReaderLimits) *linkLedger {
	t.Helper()
	l := &linkLedger{Requested: map[uint64]bool{}, Responses: map[uint64]int{}, Cancelled: map[uint64]bool{}}
	_ = link.NewAcceptor(link.Settings{}, limits, l).Feed(said)
	if err := link.NewDialer(link.Settings{}, limits, l).Feed(heard); err != nil {
		t.Fatalf("the sidecar's frames are malformed: %v\n%x", err, heard)
	}
	return l
}

func (l *linkLedger) OnPreface(uint8, link.Settings)      {}
func (l *linkLedger) OnStream(link.Stream, []byte)        {}
func (l *linkLedger) NewRequest(uint64) *protocol.Request { return &protocol.Request{} }
func (l *linkLedger) OnRequest(id uint64, _ *protocol.Request, _ time.Duration, _ *bytebufferpool.ByteBuffer) {
	l.Requested[id] = true
}
func (l *linkLedger) NewResponse(uint64) *protocol.Response { return &protocol.Response{} }
func (l *linkLedger) OnInterim(uint64, *protocol.Response)  {}
func (l *linkLedger) OnResponse(id uint64, _ *protocol.Response, _ protocol.Codec, _ *bytebufferpool.ByteBuffer) {
	l.Responses[id]++
}
func (l *linkLedger) OnReject(id uint64, _ link.Reason)  { l.Requested[id] = true }
func (l *linkLedger) OnCancel(id uint64)                 { l.Cancelled[id] = true }
func (l *linkLedger) OnCancelAck(uint64, link.Dropped)   {}
func (l *linkLedger) OnRefused(id uint64, _ link.Reason) { l.Responses[id]++ }
func (l *linkLedger) OnPing(uint64)                      {}
func (l *linkLedger) OnPong(uint64)                      {}
func (l *linkLedger) OnGoAway(uint64, link.Reason)       {}
func (l *linkLedger) OnCredit(uint32)                    {}
func (l *linkLedger) OnLoad(link.Load)                   {}
func (l *linkLedger) OnStart(uint64)                     {}
func (l *linkLedger) OnWithdraw(uint64)                  {}
func (l *linkLedger) OnProbe()                           {}
func (l *linkLedger) OnAnswer(link.Load)                 {}

// LinkPreface returns the first bytes that a side sends.
func LinkPreface(role link.Role) []byte {
	w := link.NewWriter()
	w.Preface(role, link.Settings{})
	w.Open(1, link.Settings{})
	return w.Append(nil, 1<<20)
}

// LinkFrames returns the preface of a dialler and the frames that say writes.
func LinkFrames(say func(w *link.Writer)) []byte {
	w := link.NewWriter()
	w.Preface(link.Dialer, link.Settings{})
	w.Open(1, link.Settings{})
	say(w)
	return w.Append(nil, 1<<30)
}

// LinkRequest is a short request.
var LinkRequest = &protocol.Request{Service: []byte("local"), Method: []byte("GET"), Path: []byte("/"), Authority: []byte("a")}

// Refusals counts the refusals of an acceptor by their reason.
type Refusals struct {
	link.ResponseHandler
	Why map[link.Reason]int
}

func (r *Refusals) OnPreface(uint8, link.Settings)           {}
func (r *Refusals) OnInterim(uint64, *protocol.Response)     {}
func (r *Refusals) OnLoad(link.Load)                         {}
func (r *Refusals) OnRefused(_ uint64, why link.Reason)      { r.Why[why]++ }
func (r *Refusals) NewResponse(id uint64) *protocol.Response { return nil }
