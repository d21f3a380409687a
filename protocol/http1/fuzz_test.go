package http1

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

func seedRequests(f *testing.F, add func([]byte)) {
	f.Helper()
	for _, c := range acceptedRequests {
		add([]byte(c.in + rest))
	}
	add(benchRequest)
	for _, c := range corpusRequests(f) {
		add(c.Bytes())
	}
}

func seedResponses(f *testing.F, add func([]byte, bool)) {
	f.Helper()
	for _, c := range acceptedResponses {
		in := c.in
		if !c.eof {
			in += nextResponse
		}
		add([]byte(in), c.toHead)
	}
	add(benchResponse, false)
	for _, c := range corpusResponses(f) {
		add(c.Bytes(), c.Method == "HEAD")
	}
}

// FuzzRequest checks that the outcome does not depend on how the input is split,
// and that an accepted request can be forwarded without changing its meaning.
func FuzzRequest(f *testing.F) {
	seedRequests(f, func(b []byte) { f.Add(b, uint64(1)) })
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		o := (feeder{lim: testLimits}).feedAll(t, in, seed)
		if o.err != nil {
			return
		}
		req, h := decodeRequest(t, in, testLimits)
		if h.Connect {
			return
		}
		if err := ValidRequest(req); err != nil {
			t.Fatalf("decoded %q, but %v", in, err)
		}
		out := AppendRequest(nil, req)
		again := (feeder{lim: benchLimits}).feed(t, append(out, rest...), nil)
		if again.err != nil || again.used != len(out) || again.head != o.head || again.body != o.body || again.trailers != o.trailers {
			t.Fatalf("%q\nbecame %q\nfrom %+v\nto   %+v", in, out, o, again)
		}
	})
}

// decodeRequest decodes a valid request with its body.
func decodeRequest(t *testing.T, in []byte, lim *protocol.Limits) (*protocol.Request, *Head) {
	var req protocol.Request
	var h Head
	n, err := DecodeRequest(in, &req, &h, lim)
	if err != nil {
		t.Fatal(err)
	}
	req.Body, req.Trailers = decodeBody(t, in[n:], &h, lim)
	return &req, &h
}

func decodeBody(t *testing.T, in []byte, h *Head, lim *protocol.Limits) ([]byte, []protocol.Header) {
	var d Body
	var dst bytebufferpool.ByteBuffer
	d.Reset(h, lim)
	if _, _, err := d.Decode(in, &dst); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return dst.B[:d.Length()], d.Trailers(&dst, nil)
}

// FuzzResponse does the same for responses.
func FuzzResponse(f *testing.F) {
	seedResponses(f, func(b []byte, toHead bool) { f.Add(b, toHead, uint64(1)) })
	f.Fuzz(func(t *testing.T, in []byte, toHead bool, seed uint64) {
		o := (feeder{response: true, toHead: toHead, eof: true, lim: testLimits}).feedAll(t, in, seed)
		if o.err != nil {
			return
		}
		var resp protocol.Response
		var h Head
		n, err := DecodeResponse(in, toHead, &resp, &h, testLimits)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body, resp.Trailers = decodeBody(t, in[n:], &h, testLimits)
		if resp.Status < 200 {
			if ValidResponse(&resp) == nil {
				t.Fatalf("interim %d is valid", resp.Status)
			}
			return
		}
		if err := ValidResponse(&resp); err != nil {
			t.Fatalf("decoded %q, but %v", in, err)
		}
		out := AppendResponse(nil, &resp, ResponseFlags{Minor: 1, ToHead: toHead})
		again := (feeder{response: true, toHead: toHead, lim: benchLimits}).feed(t, append(out, nextResponse...), nil)
		if len(resp.Reason) == 0 { // may have become the registered one
			_, fields, _ := strings.Cut(again.head, "|")
			again.head = o.head[:4] + "|" + fields
		}
		if again.err != nil || again.used != len(out) || again.head != o.head || again.body != o.body || again.trailers != o.trailers {
			t.Fatalf("%q\nbecame %q\nfrom %+v\nto   %+v", in, out, o, again)
		}
	})
}

// FuzzChunked tests the chunked coding alone, with limits that the fuzzer reaches.
// At most lim.Message bytes of body are buffered.
func FuzzChunked(f *testing.F) {
	for _, c := range acceptedRequests {
		if body, ok := strings.CutPrefix(c.in, chunkedHead); ok {
			f.Add([]byte(body+rest), uint16(64))
		}
	}
	for _, c := range corpusRequests(f) {
		if _, body, ok := strings.Cut(string(c.Bytes()), "Transfer-Encoding: chunked\r\n\r\n"); ok {
			f.Add([]byte(body), uint16(1000))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, limit uint16) {
		lim := &protocol.Limits{Header: 64, Headers: 4, Message: int64(limit)}
		whole, dst := feedChunked(t, in, len(in)+1, lim)
		for _, size := range []int{1, 2, 3, 7} {
			if o, _ := feedChunked(t, in, size, lim); o != whole {
				t.Fatalf("%q by %d: %+v, whole %+v", in, size, o, whole)
			}
		}
		if whole.err != nil {
			return
		}
		// The body survives another encoding.
		out := AppendBody(nil, []byte(whole.body), append(dst.trailers, protocol.Header{Name: []byte("x"), Value: []byte("y")}))
		again, _ := feedChunked(t, append(out, rest...), 5, &protocol.Limits{Header: 200, Headers: 9, Message: lim.Message})
		if again.err != nil || again.used != len(out) || again.body != whole.body || again.trailers != whole.trailers+"x=y;" {
			t.Fatalf("%q became %q: %+v", in, out, again)
		}
	})
}

// FuzzBodyStream checks that a streamed body equals the body of a decoded message,
// whatever its framing and its splits. The buffer holds no more than a piece and a
// trailer section.
func FuzzBodyStream(f *testing.F) {
	for _, c := range streamBodies {
		f.Add(uint8(c.head.Framing), uint16(c.head.Length), []byte(c.in), uint64(1))
	}
	f.Fuzz(func(t *testing.T, framing uint8, length uint16, in []byte, seed uint64) {
		h := &Head{Framing: Framing(framing % 4)}
		if h.Framing == FixedLength {
			h.Length = int64(length)
		}
		lim := &protocol.Limits{Header: 64, Headers: 4, Message: protocol.NoLimit}
		rng := rand.New(rand.NewPCG(seed, uint64(len(in))))
		cuts := randomCuts(rng, len(in))
		sameRelayed(t, h, lim, in, cuts)
		if r, _ := relayed(h, lim, in, cuts); r.held > 24+lim.Header {
			t.Fatalf("%q cut at %d: %d bytes held", in, cuts, r.held)
		}
	})
}

type trailerSection struct{ trailers []protocol.Header }

// feedChunked decodes in with pieces of size bytes.
func feedChunked(t *testing.T, in []byte, size int, lim *protocol.Limits) (o outcome, section trailerSection) {
	var d Body
	var dst bytebufferpool.ByteBuffer
	d.Reset(&Head{Framing: Chunked}, lim)
	for from := 0; from < len(in); from += size {
		n, done, err := d.Decode(in[from:min(from+size, len(in))], &dst)
		if err != nil {
			return outcome{err: err}, section
		}
		if o.used += n; done {
			break
		}
		if int64(d.Length()) > lim.Message || len(dst.B)-d.Length() > lim.Header {
			t.Fatalf("%d bytes buffered, %d of the body", len(dst.B), d.Length())
		}
	}
	o.err = d.Close()
	o.body = string(dst.B[:d.Length()])
	section.trailers = d.Trailers(&dst, nil)
	o.trailers = headerText(section.trailers)
	return o, section
}

// FuzzRoundTrip checks that the encoder refuses a message of a converter or a link,
// or encodes it as one message that decodes to the same.
func FuzzRoundTrip(f *testing.F) {
	f.Add("GET", "/", "h", "A", "b", "C", "d", []byte(nil), "X", "y", 200, "OK", byte(1))
	f.Add("POST", "/a?b", "h:80", "Content-Length", "9", "transfer-encoding", "chunked", []byte("body"), "", "", 204, "", byte(0))
	f.Add("OPTIONS", "*", "[::1]", "Host", "x", "Connection", "close", []byte("b"), "Content-Length", "1", 304, "x", byte(2))
	f.Add("G\r\n", "/ HTTP/1.1\r\n", "h\r\nA: b", "A: b\r\nC", "x\r\n\r\nGET", "A ", "\x00", []byte("b"), "T\n", "v\r", 99, "a\r\nb", byte(3))
	f.Fuzz(func(t *testing.T, method, path, host, n1, v1, n2, v2 string, body []byte, tn, tv string, status int, reason string, flags byte) {
		headers := []protocol.Header{{Name: []byte(n1), Value: []byte(v1)}, {Name: []byte(n2), Value: []byte(v2)}}
		var trailers []protocol.Header
		if flags&4 != 0 {
			trailers = []protocol.Header{{Name: []byte(tn), Value: []byte(tv)}}
		}
		req := protocol.Request{Method: []byte(method), Path: []byte(path), Authority: []byte(host), Headers: headers, Body: body, Trailers: trailers}
		roundTripRequest(t, &req)
		resp := protocol.Response{Status: status, Reason: []byte(reason), Headers: headers, Body: body, Trailers: trailers, DeclaredLength: -1}
		roundTripResponse(t, &resp, ResponseFlags{Minor: int(flags & 1), Close: flags&2 != 0, ToHead: flags&8 != 0})
	})
}

func roundTripRequest(t *testing.T, req *protocol.Request) {
	lim := &protocol.Limits{Header: 1 << 20, Headers: 128, Message: 1 << 20}
	prefix := []byte("p")
	out := AppendRequest(prefix, req)
	if err := ValidRequest(req); err != nil {
		if !bytes.Equal(out, prefix) {
			t.Fatalf("%v, but encoded as %q", err, out)
		}
		return
	}
	out = out[1:]
	o := (feeder{lim: lim}).feed(t, append(bytes.Clone(out), rest...), nil)
	head := strings.Join([]string{string(req.Method), string(req.Path), string(req.Authority), wireText(req.Headers, func(k fieldKind) bool { return k == endToEnd })}, "|")
	if o.err != nil || o.used != len(out) || o.head != head || o.body != string(req.Body) || o.trailers != trailerText(req.Trailers) {
		t.Fatalf("%q:\ngot  %+v\nhead %q", out, o, head)
	}
}

func roundTripResponse(t *testing.T, resp *protocol.Response, f ResponseFlags) {
	lim := &protocol.Limits{Header: 1 << 20, Headers: 128, Message: 1 << 20}
	out := AppendResponse(nil, resp, f)
	if err := ValidResponse(resp); err != nil {
		if len(out) != 0 {
			t.Fatalf("%v, but encoded as %q", err, out)
		}
		return
	}
	o := (feeder{response: true, toHead: f.ToHead, lim: lim}).feed(t, append(bytes.Clone(out), nextResponse...), nil)
	body, trailers := string(resp.Body), trailerText(resp.Trailers)
	if !HasBody(resp, f) {
		body, trailers = "", ""
	}
	if f.Minor == 0 {
		trailers = ""
	}
	headers := wireText(resp.Headers, func(k fieldKind) bool { return k == endToEnd || k == fieldHost || k == fieldExpect })
	if _, got, _ := strings.Cut(o.head, "|"); len(resp.Reason) == 0 && got == headers {
		o.head = o.head[:4] + "|" + headers
	}
	head := o.head[:min(4, len(o.head))] + string(resp.Reason) + "|" + headers
	if o.err != nil || o.used != len(out) || o.head != head || o.body != body || o.trailers != trailers ||
		f.Close == strings.HasPrefix(o.flags, "keep") {
		t.Fatalf("%q:\ngot  %+v\nhead %q", out, o, head)
	}
}

// wireText returns the headerText of the headers that the encoder writes.
func wireText(hs []protocol.Header, keep func(fieldKind) bool) string {
	var kept []protocol.Header
	for _, h := range hs {
		if keep(kindOf(h.Name)) {
			kept = append(kept, protocol.Header{Name: h.Name, Value: bytes.Trim(h.Value, " \t")})
		}
	}
	return headerText(kept)
}

func trailerText(hs []protocol.Header) string {
	var kept []protocol.Header
	for _, h := range hs {
		if allowedTrailer(h.Name) {
			kept = append(kept, h)
		}
	}
	return wireText(kept, func(fieldKind) bool { return true })
}
