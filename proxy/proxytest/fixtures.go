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

// OneMiB gives a mesh 1 MiB of limits.buffered, and 4 MiB more to the hard mark.
const OneMiB = "limits: {message: 1MiB, buffered: 1MiB}"

// LongMessage is more than limits.message of the meshes here.
const (
	SmallMessages = "limits: {message: 64KiB}"
	LongMessage   = 100_000
)

const HedgeOn = `, idempotent: true, timeout: 2s, hedge: {mode: on, delay: 5ms}`

const Ingress = "10.0.1.1:15006"

const GetStream = "GET /s HTTP/1.1\r\nHost: compute\r\n\r\n"

// StreamResponses are responses that are streams, as far as the application sends them.
var StreamResponses = []struct {
	Name, Says string
	Framing    string // of the head that the client gets
	Here       string // of the body
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

// HardMark is that of a mesh with small limits.
const HardMark = 5 << 20

const (
	TheirTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	TheirSpan  = "00f067aa0ba902b7"
	SampledBy  = "00-" + TheirTrace + "-" + TheirSpan + "-01"
)

// Elsewhere is where clients mean their connections to go that are redirected to
// the consumer's sidecar.
const Elsewhere = "192.0.2.7:8080"

// ShapeAnswer is the body that every shape is answered with.
var ShapeAnswer = strings.Repeat("x", 200)

const ShapeAnswerHead = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Length: 200\r\n\r\n"

const GetHead = "GET /features?user=42 HTTP/1.1\r\nHost: compute\r\nAccept: */*\r\nUser-Agent: test\r\nTraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n"

var OKPrefix = []byte("HTTP/1.1 200")

// LongBodies are requests, and answers, with bodies of n bytes, in pieces of what one read
// brings; the last of the bytes are not the others'.
func LongBodies(n int, chunked bool) (request [][]byte, answer, body []byte) {
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

func Equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// Main runs the tests of a package. Buffers that are given back are filled with a
// pattern, so that whoever still reads them sees it; not in benchmarks.
func Main(m *testing.M) {
	flag.Parse()
	protocol.PoisonBuffers = flag.Lookup("test.bench").Value.String() == ""
	os.Exit(m.Run())
}
