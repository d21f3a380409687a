package link

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/valyala/bytebufferpool"
)

// A head with fields of a later version is decoded up to the known fields.
func TestUnknownHeadFields(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	request := []byte{14, 0, 0, 0, 0, 0, 2, 'G', 2, '/', 0, 0, 7, 0, 7, 'b'}
	feed(t, a, append(appendHeader(nil, uint8(frameRequest), 1, len(request)), request...))
	response := []byte{7, 0, 0, 0xc8, 1, 0, 0, 7, 'b'}
	feed(t, d, append(appendHeader(nil, uint8(frameResponse), 1, len(response)), response...))
	if req := a.h.requests[1]; req == nil || string(req.Body) != "b" || string(req.Path) != "/" || req.Hold != 7*time.Microsecond {
		t.Errorf("got %q", a.h.events)
	}
	if resp := d.h.responses[1]; resp == nil || string(resp.Body) != "b" || resp.Status != 200 {
		t.Errorf("got %q", d.h.events)
	}
}

func TestTimeLeft(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	for i, c := range []struct{ left, want time.Duration }{
		{0, 0},                           // no deadline
		{-time.Second, time.Microsecond}, // a deadline that has passed
		{1, time.Microsecond},            // rounded up
		{1500 * time.Nanosecond, 2 * time.Microsecond},
		{1<<63 - 1, (1<<63 - 1) / 1000 * 1000},
	} {
		id := uint64(i + 1)
		d.w.Request(id, typical(1), c.left, nil)
		exchange(t, d, a)
		if got := a.h.ttls[id]; got != c.want {
			t.Errorf("%v arrives as %v, want %v", c.left, got, c.want)
		}
	}
}

// closer closes the Reader during Feed.
type closer struct {
	recorder
	r    *Reader
	seen int
}

func (s *closer) OnRequest(_ uint64, _ *protocol.Request, _ time.Duration, buf *bytebufferpool.ByteBuffer) {
	s.seen++
	(*protocol.Buffers)(nil).Put(buf)
	s.r.Close()
}

func TestCloseDuringFeed(t *testing.T) {
	d, _ := newLink(t, Settings{}, ReaderLimits{})
	d.w.Request(1, big(100<<10), 0, nil) // in reassembly when 2 arrives
	d.w.Request(2, typical(1), 0, nil)
	d.w.Request(3, typical(1), 0, nil)
	b := d.w.Append(nil, 1<<20)
	splits(t, b, func(t *testing.T, parts [][]byte) {
		_, a := newLink(t, Settings{}, ReaderLimits{})
		h := &closer{r: a.r}
		a.r.call(h)
		for _, p := range parts {
			if err := a.r.Feed(p); err != nil {
				t.Fatal(err)
			}
		}
		if h.seen != 1 || a.r.Buffered() != 0 {
			t.Errorf("%d requests after Close, %d bytes buffered", h.seen, a.r.Buffered())
		}
	})
}

// refuser drops all messages.
type refuser struct{ recorder }

func (*refuser) NewRequest(uint64) *protocol.Request { return nil }

func TestHandlerDropsMessages(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	h := &refuser{}
	a.r.call(h)
	d.w.Request(1, big(20<<10), 0, nil)
	d.w.Request(2, typical(1), 0, nil)
	d.w.Ping(1)
	if err := a.r.Feed(d.w.Append(nil, 1<<20)); err != nil || len(h.events) != 1 || a.r.Buffered() != 0 {
		t.Errorf("%v, %q, %d bytes buffered", err, h.events, a.r.Buffered())
	}
}

// TestReaderForgetsMessages: nothing of a Reader keeps the memory of a message that it has delivered.
func TestReaderForgetsMessages(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	d.w.Request(1, typical(1), 0, nil)
	if err := a.r.Feed(d.w.Append(nil, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if c := &a.r.cursor; c.b != nil || c.trace != nil {
		t.Error("it keeps a slice of the message")
	}
}

// TestExpirePreface: a preface that took its time does not make the first frame slow.
func TestExpirePreface(t *testing.T) {
	d, a := newSide(Dialer, Settings{}, ReaderLimits{}), newSide(Acceptor, Settings{}, ReaderLimits{})
	preface := d.w.Append(nil, 0)
	frame := appendHeader(nil, uint8(framePing), 1000, 0)
	for at, b := range [][]byte{preface[:5], preface[5:], frame[:2]} {
		feed(t, a, b)
		if err := a.r.Expire(time.Duration(10*at+1)*time.Second, 15*time.Second); err != nil {
			t.Fatalf("piece %d: %v", at, err)
		}
	}
	if err := a.r.Expire(36*time.Second, 15*time.Second); err != ErrSlow {
		t.Errorf("at the end: %v", err)
	}
}

// TestUnknownFrameWithinMessage: what is skipped between the DATA of a message is no part of it.
func TestUnknownFrameWithinMessage(t *testing.T) {
	d, a := newLink(t, Settings{Window: MaxWindow}, ReaderLimits{})
	req := big(40 << 10)
	for i := range req.Body {
		req.Body[i] = byte(i)
	}
	d.w.Request(1, req, 0, nil)
	for d.w.Ready() {
		feed(t, a, d.w.Append(nil, 0))
		feed(t, a, append(appendHeader(nil, 31, 7, 5), "other"...))
	}
	if got := a.h.requests[1]; got == nil || !bytes.Equal(got.Body, req.Body) {
		t.Error("the message did not arrive unchanged")
	}
}
