package proxy_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

// http2Shape is a kind of request over HTTP/2.
type http2Shape struct {
	name    string
	request proxytest.Frames
	o       proxytest.AllocMeshOptions
}

// literal is a field that the peer adds to its table. The latest one has index 62 there.
func literal(name, value string) string {
	return "\x40" + string(rune(len(name))) + name + string(rune(len(value))) + value
}

// varying is one that it does not add.
func varying(name, value string) string { return "\x00" + literal(name, value)[1:] }

func http2Head(flags byte, block string) []byte {
	return proxytest.Frame(proxytest.FrameHeaders, flags|proxytest.FlagEndHeaders, block)
}

// http2Message is a message with a body, which is its end unless flags are 0.
func http2Message(block, body string, flags byte) []byte {
	return append(http2Head(0, block), proxytest.Frame(proxytest.FrameData, flags, body)...)
}

// http2Shapes is for clients of HTTP/2 what shapes is for those of HTTP/1.1. Their methods, scheme
// and status are of the static table.
func http2Shapes() []http2Shape {
	const end = proxytest.FlagEnd
	body := strings.Repeat("x", 300)
	get := "\x82\x86\x84" + literal(":authority", "compute") + literal("accept", "*/*")
	post := "\x83\x86" + literal(":path", "/compute") + literal(":authority", "compute") + literal("content-type", "application/json")
	call := "\x83\x86" + literal(":path", "/bench.Feature/Compute") + literal(":authority", "compute") + literal("content-type", "application/grpc") +
		literal("user-agent", "grpc-go/1.83.2") + literal("te", "trailers")
	message := func(n int) string {
		return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(n))) + strings.Repeat("x", n)
	}
	fixed := proxytest.AllocMeshOptions{Response: proxytest.ShapeResponseHead + proxytest.ShapeBody}
	grpc := proxytest.AllocMeshOptions{Speaks: "grpc", Frames: proxytest.Frames{
		First: append(http2Message("\x88"+literal("content-type", "application/grpc"), message(195), 0), http2Head(end, literal("grpc-status", "0"))...),
		Later: append(http2Message("\x88\xbf", message(195), 0), http2Head(end, "\xbe")...),
	}}
	return []http2Shape{
		{"HTTP2 GET", proxytest.Frames{First: http2Head(end, get), Later: http2Head(end, "\x82\x86\x84\xbf\xbe")}, fixed},
		{"HTTP2 POST", proxytest.Frames{First: http2Message(post, body, end), Later: http2Message("\x83\x86\xc0\xbf\xbe", body, end)}, fixed},
		{"gRPC", proxytest.Frames{
			First: http2Message(call+varying("grpc-timeout", "999m"), message(300), end),
			Later: http2Message("\x83\x86\xc2\xc1\xc0\xbf\xbe"+varying("grpc-timeout", "998m"), message(300), end),
		}, grpc},
	}
}

// http2Response is the response to the shape HTTP2 of HTTP/1.1's clients.
var http2Response = proxytest.Frames{
	First: http2Message("\x88"+literal("content-type", "application/json"), proxytest.ShapeBody, proxytest.FlagEnd),
	Later: http2Message("\x88\xbe", proxytest.ShapeBody, proxytest.FlagEnd),
}

// http2Load makes requests on all clients of a mesh, some at once on each.
type http2Load struct {
	*proxytest.AllocMesh
	request proxytest.Frames
	streams int // at once on each client
	next    uint32
	in      []byte
}

func newHTTP2Load(t testing.TB, s http2Shape, hops, clients, streams int, service string) *http2Load {
	s.o.Hops, s.o.Clients, s.o.Service = hops, clients, service
	l := &http2Load{AllocMesh: proxytest.NewAllocMesh(t, s.o), request: s.request, streams: streams, next: 1}
	l.Greet()
	return l
}

// call sends the requests, and checks that each gets a whole response.
func (l *http2Load) call() {
	l.in = l.in[:0]
	for range l.streams {
		l.in = l.request.Append(l.in, l.next)
		l.next += 2
	}
	for _, c := range l.Clients {
		c.Deliver(l.in)
	}
	l.Net.Pump()
	for _, c := range l.Clients {
		ended, data := 0, 0
		proxytest.EachFrame(c.Out, func(f []byte) {
			if f[3] == proxytest.FrameData {
				data += len(f) - proxytest.FrameHead
			}
			if f[3] <= proxytest.FrameHeaders && f[4]&proxytest.FlagEnd != 0 {
				ended++
			}
		})
		if ended != l.streams || data != l.streams*len(proxytest.ShapeBody) {
			l.T.Fatalf("%d responses of %d bytes to %d requests: %q", ended, data, l.streams, c.Out)
		}
		c.Out = c.Out[:0]
	}
}

// TestAllocationsHTTP2: in the steady state a request over HTTP/2 and its response allocate nothing,
// through one sidecar, or through two and a link. A gRPC call goes on to HTTP/2.
func TestAllocationsHTTP2(t *testing.T) {
	keepBuffers()
	crowds := []int{1, 8}
	if testing.Short() {
		crowds = crowds[:1]
	}
	for _, hops := range []int{1, 2} {
		for _, clients := range crowds {
			for _, streams := range []int{1, 8} {
				for _, service := range []string{"", "idempotent: true, hedge: {mode: on}"} {
					for _, s := range http2Shapes() {
						t.Run(fmt.Sprintf("%d hops/%d clients/%d streams/%s/%s", hops, clients, streams, s.name, service), func(t *testing.T) {
							l := newHTTP2Load(t, s, hops, clients, streams, service)
							l.CheckAllocs(0, l.call)
						})
					}
				}
			}
		}
	}
}
