package attacks

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/remora-proxy/remora/e2e/harness/h2"
	"golang.org/x/net/http2"
)

// h2Refer is a header block of fields, and of count references to one more that the table has. The first
// block of a connection puts that into the table.
func h2Refer(first bool, count int, name string, fields ...string) []byte {
	block := h2.Block(fields...)
	if first {
		long := h2.Block(name, strings.Repeat("x", 3900))
		long[0] = 0x40 // with a place in the table
		block = append(block, long...)
	}
	return append(block, bytes.Repeat([]byte{0xbe}, count)...)
}

// h2Long is how many references to a field of h2Refer a head may have under limits.header.
const h2Long = 15

// heaps sends many streams of next, and more from time to time. It keeps the connection open.
func heaps(name string, next func(id uint32, first bool) []byte) h2Way {
	return h2Way{name, func(ctx context.Context, p *h2.Peer) error {
		p.Send(h2.Hello(), h2.SettingsAck())
		id := uint32(1)
		send := func(count int) {
			var b []byte
			for range count {
				b = append(b, next(id, id == 1)...)
				id += 2
			}
			p.Send(b)
		}
		for send(200); pauseFor(ctx, 100*time.Millisecond) && !p.Over(); {
			send(20)
		}
		return nil
	}}
}

// http2Bombs are heads that take much more memory than their bytes on the wire, of requests that stay
// open or are whole. It takes many connections to have more in memory than limits.buffered.
var http2Bombs = []h2Attack{
	{name: "open HPACK bombs", meets: refusedSeries("overloaded"), size: 24, ways: []h2Way{
		heaps("a long field", func(id uint32, first bool) []byte {
			return h2.Heads(id, 0, h2Refer(first, h2Long, "a", h2.RequestFields("POST", "/compute")...))
		}),
	}},
	{name: "whole HPACK bombs", size: 24, ways: []h2Way{
		heaps("a long field", func(id uint32, first bool) []byte {
			return h2.Heads(id, h2.EndStream, h2Refer(first, h2Long, "a", h2.RequestFields("GET", "/compute")...))
		}),
	}},
	{name: "HPACK bombs in several forms", meets: refusedSeries("overloaded"), size: 8, ways: []h2Way{
		heaps("cookies", func(id uint32, first bool) []byte {
			return h2.Heads(id, 0, h2Refer(first, h2Long, "cookie", h2.RequestFields("POST", "/compute")...))
		}),
		heaps("long names", func(id uint32, first bool) []byte {
			block := h2.Block(h2.RequestFields("POST", "/compute")...)
			if first {
				long := h2.Block(strings.Repeat("n", 3900), "")
				long[0] = 0x40
				block = append(block, long...)
			}
			return h2.Heads(id, 0, append(block, bytes.Repeat([]byte{0x0f, 0x2f, 1, 'v'}, h2Long)...))
		}),
		heaps("many fields", func(id uint32, _ bool) []byte {
			return h2.Heads(id, 0, append(h2.Block(h2.RequestFields("POST", "/compute")...), bytes.Repeat([]byte{0x90}, 120)...))
		}),
		heaps("trailers", func(id uint32, first bool) []byte {
			return slices.Concat(h2.Post(id, "/compute"), h2.Heads(id, h2.EndStream, h2Refer(first, h2Long, "a")))
		}),
		heaps("calls of gRPC", func(id uint32, first bool) []byte {
			return h2.Heads(id, 0, h2Refer(first, h2Long, "a", h2.RequestFields("POST", "/compute", "content-type", "application/grpc")...))
		}),
	}},
	{name: "header blocks in parts", size: 100, ways: []h2Way{
		{"as long as may be", func(ctx context.Context, p *h2.Peer) error {
			p.Send(h2.Hello(), h2.SettingsAck())
			p.Send(h2.Frame(http2.FrameHeaders, 0, 1, h2.Block(h2.RequestFields("GET", "/compute")...)))
			for range 7 {
				p.Send(h2.Frame(http2.FrameContinuation, 0, 1, h2.Block("a", strings.Repeat("x", 16<<10-10))))
			}
			for pauseFor(ctx, 100*time.Millisecond) && !p.Over() {
			}
			return nil
		}},
	}},
}
