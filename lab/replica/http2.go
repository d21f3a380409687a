package replica

import (
	"golang.org/x/net/http2/hpack"

	"github.com/remora-proxy/remora/lab/server"
	"github.com/remora-proxy/remora/lab/wire"
)

// http2Conn is a connection of HTTP/2, without TLS. It takes each request for a unary gRPC call,
// and reads no header: the bench needs a server that costs less than the proxies before it.
type http2Conn struct {
	writer   // its lock guards the fields below too
	service  *service
	response *wire.Call
	answered bool
	window   int                 // bytes of data that the client takes
	owed     []uint32            // streams whose responses wait for that
	running  map[uint32]struct{} // streams with work
	taken    int                 // bytes of data since the last update of the client's window
}

func newHTTP2(s *service, nc *server.Conn) *http2Conn {
	h := &http2Conn{service: s, writer: writer{Conn: nc}, window: wire.FirstWindow, running: map[uint32]struct{}{}}
	h.out = wire.AppendFrame(h.out, wire.Frame{Type: wire.Settings})
	h.out = wire.AppendWindow(h.out, 0, wire.MostWindow-wire.FirstWindow)
	h.answer(wire.FirstTable)
	return h
}

var (
	grpcHead     = []hpack.HeaderField{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/grpc"}}
	grpcTrailers = []hpack.HeaderField{{Name: "grpc-status", Value: "0"}}
)

// answer makes the response, for a client with a table of so many bytes.
func (h *http2Conn) answer(table int) {
	h.response = wire.NewCall(table, grpcHead, h.service.body, grpcTrailers)
}

// onInput serves the whole frames in in. It returns their length, and whether the connection stays
// open. A replica that is frozen does not even acknowledge frames.
func (h *http2Conn) onInput(in []byte) (used int, open bool) {
	if h.service.opts.Mode != Fast {
		h.service.sleepUntil(h.service.thaw())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		f, n, err := wire.ParseFrame(in[used:])
		if err == wire.ErrIncomplete {
			return used, h.flush()
		}
		if err != nil {
			return used, false
		}
		h.onFrame(&f)
		used += n
	}
}

func (h *http2Conn) onFrame(f *wire.Frame) {
	switch f.Type {
	case wire.Data:
		// The window of a stream, which is one of 64 KiB, is never given back.
		if h.taken += len(f.Payload); h.taken > wire.MostWindow/2 {
			h.out = wire.AppendWindow(h.out, 0, h.taken)
			h.taken = 0
		}
		fallthrough
	case wire.Headers:
		if f.Flags&wire.EndStream != 0 {
			h.onCall(f.Stream)
		}
	case wire.Reset:
		delete(h.running, f.Stream)
	case wire.Settings:
		if f.Flags&wire.Ack == 0 {
			if table := f.Setting(wire.TableSize, wire.FirstTable); !h.answered {
				h.answer(table)
			}
			h.out = wire.AppendFrame(h.out, wire.Frame{Type: wire.Settings, Flags: wire.Ack})
		}
	case wire.Ping:
		if f.Flags&wire.Ack == 0 {
			h.out = wire.AppendFrame(h.out, wire.Frame{Type: wire.Ping, Flags: wire.Ack, Payload: f.Payload})
		}
	case wire.WindowUpdate:
		if f.Stream == 0 {
			h.window += f.Increment()
			h.respond()
		}
	}
}

// onCall takes a whole call. The caller holds the lock.
func (h *http2Conn) onCall(stream uint32) {
	if h.service.opts.Mode == Fast {
		h.service.served.Add(1)
		h.respond(stream)
		return
	}
	h.service.inFlight.Add(1)
	h.running[stream] = struct{}{}
	go h.work(stream)
}

// work is one call. Like a call over HTTP/1.1 it is worked on to its end, also if it was cancelled.
func (h *http2Conn) work(stream uint32) {
	s := h.service
	defer s.inFlight.Add(-1)
	s.work(0)
	s.served.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, wanted := h.running[stream]; !wanted || !h.Alive() {
		s.aborted.Add(1)
		return
	}
	delete(h.running, stream)
	if h.respond(stream); !h.flush() {
		h.Close()
	}
}

// respond appends the responses to these streams, and those owed, as far as the client takes
// them. The caller holds the lock.
func (h *http2Conn) respond(streams ...uint32) {
	h.owed = append(h.owed, streams...)
	sent := 0
	for sent < len(h.owed) && h.window >= h.response.Data {
		h.out = h.response.Append(h.out, h.owed[sent], !h.answered)
		h.answered = true
		h.window -= h.response.Data
		sent++
	}
	h.owed = append(h.owed[:0], h.owed[sent:]...)
}
