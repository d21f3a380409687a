package proxytest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// SmallBudget sets limits.buffered to 1 MiB; the hard mark is 4 MiB above it.
const SmallBudget = "limits: {message: 1MiB, buffered: 1MiB}"

// SmallMessages sets limits.message below LongBodySize, in bytes.
const (
	SmallMessages = "limits: {message: 64KiB}"
	LongBodySize  = 100_000
)

// HedgeOn is the YAML of a service with hedging.
const HedgeOn = `idempotent: true, timeout: 2s, hedge: {mode: on, delay: 5ms}`

// Ingress is the link listener of the first provider's sidecar.
const Ingress = "10.0.1.1:15006"

// StreamRequest is a request whose response tests make a stream.
const StreamRequest = "GET /s HTTP/1.1\r\nHost: compute\r\n\r\n"

// StreamResponses are the beginnings of responses that become streams.
var StreamResponses = []struct {
	Name, Says string
	Framing    string // in the head that the client gets
	Here       string // of the body, as far as it is in Says
}{
	{"long", "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nfirst", "Content-Length: 100000\r\n", "first"},
	{"events", "HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n",
		"Transfer-Encoding: chunked\r\n", "first"},
	{"events until the close", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nfirst", "Transfer-Encoding: chunked\r\n", "first"},
	{"documents", "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n",
		"Transfer-Encoding: chunked\r\n", ""},
	{"parts", "HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace;boundary=b\r\n\r\n", "Transfer-Encoding: chunked\r\n", ""},
	{"pauses", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n", "Transfer-Encoding: chunked\r\n", "first"},
	{"pauses until the close", "HTTP/1.1 200 OK\r\n\r\nfirst", "Transfer-Encoding: chunked\r\n", "first"},
	{"long and whole", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10001\r\n" + strings.Repeat("y", 65_537) + "\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\n", strings.Repeat("y", 65_537)},
	{"grows", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n" + strings.Repeat("y", 70_000),
		"Transfer-Encoding: chunked\r\n", strings.Repeat("y", 70_000)},
}

// HardMark is the hard mark of a mesh with SmallBudget, in bytes.
const HardMark = 5 << 20

// The trace context of a caller that samples its request.
const (
	ParentTraceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	ParentSpanID  = "00f067aa0ba902b7"
	SampledParent = "00-" + ParentTraceID + "-" + ParentSpanID + "-01"
)

// OriginalDst is the destination of connections that are redirected to the consumer's
// sidecar.
const OriginalDst = "192.0.2.7:8080"

// ShapeBody is the body of the response to every shape.
var ShapeBody = strings.Repeat("x", 200)

// ShapeResponseHead is the head of the response with ShapeBody.
const ShapeResponseHead = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Length: 200\r\n\r\n"

// GetHead is a GET that is part of a trace.
const GetHead = "GET /features?user=42 HTTP/1.1\r\nHost: compute\r\nAccept: */*\r\nUser-Agent: test\r\nTraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n"

// OKPrefix is the beginning of a response with status 200.
var OKPrefix = []byte("HTTP/1.1 200")

// LongBodies returns a request and a response with bodies of n bytes. The request is in
// pieces of one read each. The last bytes of the body differ from all others.
func LongBodies(n int, chunked bool) (request [][]byte, response, body []byte) {
	body = append(bytes.Repeat([]byte{'x'}, n-8), "the end."...)
	head := fmt.Sprintf("Content-Length: %d\r\n\r\n", n)
	sent := body
	if chunked {
		head = "Transfer-Encoding: chunked\r\n\r\n"
		sent = fmt.Appendf(nil, "%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", n/2, body[:n/2], n-n/2, body[n/2:])
	}
	whole := append([]byte("POST / HTTP/1.1\r\nHost: compute\r\n"+head), sent...)
	for len(whole) > 0 {
		piece := min(64<<10, len(whole))
		request, whole = append(request, whole[:piece]), whole[piece:]
	}
	return request, append([]byte("HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n"+head), sent...), body
}

// Equal checks that got is want.
func Equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// Main runs the tests of a package. Outside of benchmarks, released buffers are filled with
// a pattern, so that a late reader fails.
func Main(m *testing.M) {
	flag.Parse()
	protocol.PoisonBuffers = flag.Lookup("test.bench").Value.String() == ""
	os.Exit(m.Run())
}
