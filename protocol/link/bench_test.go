package link

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/protocol"
	"github.com/valyala/bytebufferpool"
)

// discarder is a Handler that gives all messages back at once and ignores the rest.
type discarder struct {
	recorder
	req      protocol.Request
	resp     protocol.Response
	messages int
}

func (s *discarder) NewRequest(uint64) *protocol.Request   { return &s.req }
func (s *discarder) NewResponse(uint64) *protocol.Response { return &s.resp }

func (s *discarder) OnRequest(_ uint64, _ *protocol.Request, _ time.Duration, buf *bytebufferpool.ByteBuffer) {
	s.messages++
	(*protocol.Buffers)(nil).Put(buf)
}

func (s *discarder) OnResponse(_ uint64, _ *protocol.Response, _ protocol.Codec, buf *bytebufferpool.ByteBuffer) {
	s.messages++
	(*protocol.Buffers)(nil).Put(buf)
}

func (s *discarder) OnInterim(uint64, *protocol.Response) {}
func (s *discarder) OnLoad(Load)                          {}
func (s *discarder) OnStart(uint64)                       {}
func (s *discarder) OnWithdraw(uint64)                    {}
func (s *discarder) OnProbe()                             {}
func (s *discarder) OnAnswer(Load)                        {}

func (s *discarder) OnStream(Stream, []byte) {}

// roundTrip returns a function that sends a request over a link and the response
// back, and the number of messages received.
func roundTrip(t testing.TB) (call func(), count *int) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	h, req, resp := &discarder{}, typical(1), typicalResponse()
	a.r.call(h)
	d.r.call(h)
	out := make([]byte, 0, 64<<10)
	id := uint64(0)
	return func() {
		id++
		d.w.Request(id, req, 500*time.Millisecond, nil)
		out = d.w.Append(out[:0], 16<<10)
		if err := a.r.Feed(out); err != nil {
			t.Fatal(err)
		}
		a.w.Load(Load{Pending: 3, Latency: time.Millisecond})
		a.w.Response(id, resp, protocol.CodecHTTP, nil)
		out = a.w.Append(out[:0], 16<<10)
		if err := d.r.Feed(out); err != nil {
			t.Fatal(err)
		}
	}, &h.messages
}

func TestRoundTripAllocations(t *testing.T) {
	call, n := roundTrip(t)
	for range 100 {
		call()
	}
	if *n != 200 {
		t.Fatalf("%d messages arrived", *n)
	}
	if got := testing.AllocsPerRun(1000, call); got != 0 && !racetest.Enabled {
		t.Errorf("%v allocations per call", got)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	call, _ := roundTrip(b)
	b.ReportAllocs()
	for b.Loop() {
		call()
	}
}

func BenchmarkEncodeRequest(b *testing.B) {
	d, _ := newLink(b, Settings{}, ReaderLimits{})
	req := typical(1)
	out := make([]byte, 0, 64<<10)
	id := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		id++
		d.w.Request(id, req, 500*time.Millisecond, nil)
		out = d.w.Append(out[:0], 16<<10)
	}
	b.ReportMetric(float64(len(out)), "wire-bytes")
}

func BenchmarkDecodeRequest(b *testing.B) {
	d, a := newLink(b, Settings{}, ReaderLimits{})
	req := typical(1)
	var out []byte
	for id := range uint64(4) { // until all text is interned
		d.w.Request(id+1, req, time.Second, nil)
		out = d.w.Append(out[:0], 0)
		feed(b, a, out)
	}
	a.r.call(&discarder{})
	b.ReportAllocs()
	for b.Loop() {
		a.r.lastID = 0 // the same bytes again
		if err := a.r.Feed(out); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBigBody(b *testing.B) {
	d, a := newLink(b, Settings{}, ReaderLimits{})
	a.r.call(&discarder{})
	req := typical(1)
	req.Body = make([]byte, 1<<20)
	var out []byte
	var parts [][]byte
	id := uint64(0)
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		id++
		d.w.Request(id, req, time.Second, nil)
		for d.w.Ready() {
			out, parts = d.w.Gather(out[:0], parts[:0], 64<<10)
			for _, p := range parts {
				if err := a.r.Feed(p); err != nil {
					b.Fatal(err)
				}
			}
			d.w.Sent()
			d.w.Granted(a.r.TakeConsumed())
		}
	}
}

// TestSplitFrameAllocations: a frame that arrives in parts needs no new memory, either.
func TestSplitFrameAllocations(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{Buffers: &protocol.Buffers{Most: 1 << 20}})
	a.r.call(&discarder{})
	req, out, id := typical(1), make([]byte, 0, 64<<10), uint64(0)
	call := func() {
		id++
		d.w.Request(id, req, 0, nil)
		out = d.w.Append(out[:0], 16<<10)
		for _, b := range [][]byte{out[:2], out[2:100], out[100:]} {
			if err := a.r.Feed(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 100 {
		call()
	}
	if got := testing.AllocsPerRun(1000, call); got != 0 && !racetest.Enabled {
		t.Errorf("%v allocations per frame", got)
	}
}
