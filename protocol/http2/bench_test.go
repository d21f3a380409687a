package http2

import (
	"testing"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/protocol"
)

// reuser is a Handler that reuses one message, and answers requests if it has a response.
type reuser struct {
	*Conn
	req   protocol.Request
	res   protocol.Response
	buf   bytebufferpool.ByteBuffer
	reply *protocol.Response
	ended int
	body  []byte
}

func (r *reuser) NewRequest(*Stream) (*protocol.Request, *bytebufferpool.ByteBuffer) {
	r.buf.Reset()
	return &r.req, &r.buf
}

func (r *reuser) NewResponse(*Stream) (*protocol.Response, *bytebufferpool.ByteBuffer) {
	r.buf.Reset()
	return &r.res, &r.buf
}

func (r *reuser) OnRequest(st *Stream, end bool)  { r.end(st, end) }
func (r *reuser) OnInterim(*Stream)               {}
func (r *reuser) OnResponse(st *Stream, end bool) { r.end(st, end) }

func (r *reuser) OnData(st *Stream, b []byte, end bool) {
	r.body = append(r.body[:0], b...)
	if !end {
		r.Consumed(st, len(b))
	}
	r.end(st, end)
}

func (r *reuser) OnTrailers(st *Stream, hs []protocol.Header) { r.end(st, true) }

func (r *reuser) end(st *Stream, end bool) {
	if !end {
		return
	}
	if r.ended++; r.reply != nil {
		r.Respond(st, r.reply, nil)
	}
}

func (r *reuser) MayGrow(*Stream, int) bool     { return true }
func (r *reuser) OnNoRoom(*Stream)              {}
func (r *reuser) OnOversize(*Stream)            {}
func (r *reuser) OnReset(*Stream, Code, *Error) {}
func (r *reuser) OnWritable(*Stream)            {}
func (r *reuser) OnSent(*Stream)                {}
func (r *reuser) OnSettings()                   {}
func (r *reuser) OnGoAway(uint32, Code)         {}
func (r *reuser) OnBarrier()                    {}

// unary returns a function that makes one call, and the client's handler.
func unary(t testing.TB) (call func(), client *reuser) {
	limits := protocol.Limits{Header: 16 << 10, Headers: 100}
	client, server := &reuser{}, &reuser{reply: typicalResponse()}
	client.Conn = newConn(true, &Options{Limits: limits}, client)
	server.Conn = newConn(false, &Options{Limits: limits}, server)
	req := typical()
	feed := func(from, to *reuser) {
		if err := to.Feed(from.Output(64 << 10)); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		client.Request(req, "http", nil)
		feed(client, server)
		feed(server, client)
	}, client
}

func TestUnaryAllocations(t *testing.T) {
	call, client := unary(t)
	for range 1000 {
		call()
	}
	if client.ended != 1000 {
		t.Fatalf("%d responses", client.ended)
	}
	if got := testing.AllocsPerRun(5000, call); got != 0 && !racetest.Enabled {
		t.Errorf("%v allocations per call", got)
	}
}

func BenchmarkUnary(b *testing.B) {
	call, client := unary(b)
	for range 100 {
		call()
	}
	b.ReportAllocs()
	for b.Loop() {
		call()
	}
	if client.ended < 100 {
		b.Error(client.ended)
	}
}
