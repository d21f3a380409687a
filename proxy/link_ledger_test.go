package proxy_test

import (
	"testing"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
)

// linkLedger is both halves of what was said on a link: what a dialler asked for,
// and what the acceptor answered.
type linkLedger struct {
	asked     map[uint64]bool // complete, or such that they can't be taken
	answered  map[uint64]int
	withdrawn map[uint64]bool
}

// newLinkLedger reads both halves. What was said may end in anything; what was
// heard must be frames.
func newLinkLedger(t *testing.T, said, heard []byte, limits link.ReaderLimits) *linkLedger {
	t.Helper()
	l := &linkLedger{asked: map[uint64]bool{}, answered: map[uint64]int{}, withdrawn: map[uint64]bool{}}
	_ = link.NewReader(link.Acceptor, link.Settings{}, limits).Feed(said, l)
	if err := link.NewReader(link.Dialer, link.Settings{}, limits).Feed(heard, l); err != nil {
		t.Fatalf("the sidecar's frames are malformed: %v\n%x", err, heard)
	}
	return l
}

func (l *linkLedger) OnPreface(uint8, link.Settings)      {}
func (l *linkLedger) OnStream(link.Stream, []byte)        {}
func (l *linkLedger) NewRequest(uint64) *protocol.Request { return &protocol.Request{} }
func (l *linkLedger) OnRequest(id uint64, _ *protocol.Request, _ time.Duration, _ *bytebufferpool.ByteBuffer) {
	l.asked[id] = true
}
func (l *linkLedger) NewResponse(uint64) *protocol.Response { return &protocol.Response{} }
func (l *linkLedger) OnResponse(id uint64, _ *protocol.Response, _ protocol.Codec, _ *bytebufferpool.ByteBuffer) {
	l.answered[id]++
}
func (l *linkLedger) OnReject(id uint64, _ link.Reason)  { l.asked[id] = true }
func (l *linkLedger) OnCancel(id uint64)                 { l.withdrawn[id] = true }
func (l *linkLedger) OnCancelAck(uint64, link.Dropped)   {}
func (l *linkLedger) OnRefused(id uint64, _ link.Reason) { l.answered[id]++ }
func (l *linkLedger) OnPing(uint64)                      {}
func (l *linkLedger) OnPong(uint64)                      {}
func (l *linkLedger) OnGoAway(uint64, link.Reason)       {}
func (l *linkLedger) OnCredit(uint32)                    {}
func (l *linkLedger) OnLoad(link.Load)                   {}
