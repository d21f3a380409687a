package http1

import (
	"bytes"
	"testing"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/protocol"
)

// The benchmarks use the POST that wrk sends with a body of 300 bytes, and a
// response with a body of 200 bytes.
var (
	benchRequestHead = "POST /v1/features/compute?tier=gold HTTP/1.1\r\n" +
		"Host: compute.local:15001\r\n" +
		"User-Agent: wrk/4.2.0\r\n" +
		"Accept: */*\r\n" +
		"Accept-Encoding: gzip\r\n" +
		"Content-Type: application/json\r\n" +
		"X-Request-Id: 5f2b9c1e8d7a4f60\r\n" +
		"Connection: keep-alive\r\n" +
		"Content-Length: 300\r\n\r\n"
	benchResponseHead = "HTTP/1.1 200 OK\r\n" +
		"Content-Type: application/json\r\n" +
		"Date: Sat, 21 Nov 2026 09:00:00 GMT\r\n" +
		"Server: compute/1.4\r\n" +
		"Content-Length: 200\r\n\r\n"
	benchRequest  = []byte(benchRequestHead + string(bytes.Repeat([]byte("r"), 300)))
	benchResponse = []byte(benchResponseHead + string(bytes.Repeat([]byte("s"), 200)))
	benchLimits   = &protocol.Limits{Header: 64 << 10, Headers: 128, Message: 4 << 20}
)

func BenchmarkDecodeRequest(b *testing.B) {
	var req protocol.Request
	var h Head
	b.ReportAllocs()
	b.SetBytes(int64(len(benchRequestHead)))
	for b.Loop() {
		h.Reset()
		if _, err := DecodeRequest(benchRequest, &req, &h, benchLimits); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeResponse(b *testing.B) {
	var resp protocol.Response
	var h Head
	b.ReportAllocs()
	b.SetBytes(int64(len(benchResponseHead)))
	for b.Loop() {
		h.Reset()
		if _, err := DecodeResponse(benchResponse, false, &resp, &h, benchLimits); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeChunked(b *testing.B) {
	var buf bytebufferpool.ByteBuffer
	var d Body
	h := Head{Framing: Chunked}
	src := []byte("c8\r\n" + string(bytes.Repeat([]byte("s"), 200)) + "\r\n0\r\n\r\n")
	b.ReportAllocs()
	for b.Loop() {
		buf.Reset()
		d.Reset(&h, benchLimits)
		if _, done, err := d.Decode(src, &buf); !done || err != nil {
			b.Fatal(done, err)
		}
	}
}

func benchDecoded(tb testing.TB) (*protocol.Request, *protocol.Response) {
	var req protocol.Request
	var resp protocol.Response
	var h Head
	n, err := DecodeRequest(benchRequest, &req, &h, benchLimits)
	if err != nil {
		tb.Fatal(err)
	}
	req.Body = benchRequest[n:]
	h.Reset()
	if n, err = DecodeResponse(benchResponse, false, &resp, &h, benchLimits); err != nil {
		tb.Fatal(err)
	}
	resp.Body = benchResponse[n:]
	return &req, &resp
}

func BenchmarkAppendRequest(b *testing.B) {
	req, _ := benchDecoded(b)
	dst := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendRequest(dst[:0], req)
	}
}

func BenchmarkAppendResponse(b *testing.B) {
	_, resp := benchDecoded(b)
	dst := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendResponse(dst[:0], resp, ResponseFlags{Minor: 1})
	}
}

// TestNoAllocations checks that no message causes an allocation once the slices
// have grown.
func TestNoAllocations(t *testing.T) {
	var req protocol.Request
	var resp protocol.Response
	var h Head
	var d Body
	var buf bytebufferpool.ByteBuffer
	dst := make([]byte, 0, 4096)
	checkNoAllocations(t, "request", func() {
		h.Reset()
		n, err := DecodeRequest(benchRequest, &req, &h, benchLimits)
		if err != nil {
			t.Fatal(err)
		}
		buf.Reset()
		d.Reset(&h, benchLimits)
		if _, done, err := d.Decode(benchRequest[n:], &buf); !done || err != nil {
			t.Fatal(done, err)
		}
		req.Body = buf.B
		dst = AppendRequest(dst[:0], &req)
	})
	checkNoAllocations(t, "response", func() {
		h.Reset()
		n, err := DecodeResponse(benchResponse, false, &resp, &h, benchLimits)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body = benchResponse[n:]
		dst = AppendResponse(dst[:0], &resp, ResponseFlags{Minor: 1})
	})
	chunks := []byte("5;x=y\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n")
	trailers := make([]protocol.Header, 0, 4)
	checkNoAllocations(t, "chunked", func() {
		buf.Reset()
		d.Reset(&Head{Framing: Chunked}, benchLimits)
		if _, done, err := d.Decode(chunks, &buf); !done || err != nil {
			t.Fatal(done, err)
		}
		if trailers = d.Trailers(&buf, trailers[:0]); len(trailers) != 1 {
			t.Fatal(trailers)
		}
		dst = AppendBody(dst[:0], buf.B[:d.Length()], trailers)
	})
}

// TestNoAllocationsRareInput checks the same for rare input: a peer must not be
// able to cause allocations.
func TestNoAllocationsRareInput(t *testing.T) {
	var req protocol.Request
	var h Head
	nominating := []byte("GET / HTTP/1.1\r\nHost: a\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n")
	checkNoAllocations(t, "nominated", func() {
		h.Reset()
		if _, err := DecodeRequest(nominating, &req, &h, benchLimits); err != nil || len(req.Headers) != 0 {
			t.Fatal(err, req.Headers)
		}
	})
	in := []byte("GET / HTTP/1.1\r\nHost : a\r\n\r\n")
	checkNoAllocations(t, "refusal by bytes", func() {
		h.Reset()
		for i := range in {
			_, err := DecodeRequest(in[:i+1], &req, &h, benchLimits)
			if i+1 < len(in) && err != ErrIncomplete || i+1 == len(in) && err != error(ErrSpaceBeforeColon) {
				t.Fatal(i, err)
			}
		}
	})
}

func checkNoAllocations(t *testing.T, what string, f func()) {
	t.Helper()
	f()
	if n := testing.AllocsPerRun(100, f); n != 0 && !racetest.Enabled { // the detector allocates
		t.Errorf("%s: %v allocations", what, n)
	}
}
