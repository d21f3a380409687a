package http1

import (
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

const nextResponse = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

type acceptResponse struct {
	acceptCase
	toHead bool
	eof    bool
}

var acceptedResponses = []acceptResponse{
	{acceptCase: acceptCase{"4 length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nA: b\r\n\r\nhi", "200 OK|A=b;", "keep length=2", "hi", ""}},
	{acceptCase: acceptCase{"4 empty reason", "HTTP/1.1 599 \r\nContent-Length: 0\r\n\r\n", "599 |", "keep length=0", "", ""}},
	{acceptCase: acceptCase{"4 no space before no reason", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "200 |", "keep length=0", "", ""}},
	{acceptCase: acceptCase{"4 reason with tab and obs-text", "HTTP/1.1 404 N\t\xe9 x\r\nContent-Length: 0\r\n\r\n", "404 N\t\xe9 x|", "keep length=0", "", ""}},
	{acceptCase: acceptCase{"/5.3 Set-Cookie stays apart", "HTTP/1.1 200 OK\r\nSet-Cookie: a, b\r\nContent-Length: 0\r\nSet-Cookie: c\r\n\r\n", "200 OK|Set-Cookie=a, b;Set-Cookie=c;", "keep length=0", "", ""}},
	{acceptCase: acceptCase{"6.3 chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: y\r\n\r\n", "200 OK|", "keep chunked", "hi", "X=y;"}},
	{acceptCase: acceptCase{"6.3 until close", "HTTP/1.1 200 OK\r\n\r\nhello", "200 OK|", "close", "hello", ""}, eof: true},
	{acceptCase: acceptCase{"6.3 until close, empty", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", "200 OK|", "1.0 close", "", ""}, eof: true},
	{acceptCase: acceptCase{"6.3 HEAD with length", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", "200 OK|", "keep head declared=99", "", ""}, toHead: true},
	{acceptCase: acceptCase{"6.3 HEAD with a length past the limit", "HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n", "200 OK|", "keep head declared=9999999", "", ""}, toHead: true},
	{acceptCase: acceptCase{"6.3 HEAD without", "HTTP/1.1 200 OK\r\n\r\n", "200 OK|", "keep head", "", ""}, toHead: true},
	{acceptCase: acceptCase{"6.3 HEAD with a coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "200 OK|", "keep head", "", ""}, toHead: true},
	{acceptCase: acceptCase{"6.3 304 with length", "HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", "304 Not Modified|", "keep declared=99", "", ""}},
	{acceptCase: acceptCase{"6.3 204", "HTTP/1.1 204 No Content\r\n\r\n", "204 No Content|", "keep", "", ""}},
	{acceptCase: acceptCase{"/8.6 204 with length 0", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", "204 No Content|", "keep", "", ""}},
	{acceptCase: acceptCase{"/8.6 204 with a length that may follow", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "204 No Content|", "", "", ""}},
	{acceptCase: acceptCase{"/8.6 204 with a byte that may follow", "HTTP/1.1 204 No Content\r\nContent-Length: 1\r\n\r\n", "204 No Content|", "", "", ""}},
	{acceptCase: acceptCase{"6.1 204 with a coding", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", "204 No Content|", "", "", ""}},
	{acceptCase: acceptCase{"/15.2 interim", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", "103 Early Hints|Link=</a>;", "keep", "", ""}},
	{acceptCase: acceptCase{"/15.2.2 switching protocols", "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", "101 Switching Protocols|", "keep upgrade", "", ""}},
	{acceptCase: acceptCase{"9.3 close", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", "200 OK|", "length=0", "", ""}},
	{acceptCase: acceptCase{"9.3 HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "200 OK|", "1.0 length=0", "", ""}},
	{acceptCase: acceptCase{"9.3 HTTP/1.0 keep-alive", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", "200 OK|", "1.0 keep length=0", "", ""}},
	{acceptCase: acceptCase{"/7.6.1 protected not removed", "HTTP/1.1 200 OK\r\nConnection: set-cookie, x\r\nSet-Cookie: a\r\nX: b\r\nContent-Length: 0\r\n\r\n", "200 OK|Set-Cookie=a;", "keep length=0", "", ""}},
	{acceptCase: acceptCase{"Host and Expect mean nothing here", "HTTP/1.1 200 OK\r\nHost: a b\r\nExpect: x\r\nContent-Length: 0\r\n\r\n", "200 OK|Host=a b;Expect=x;", "keep length=0", "", ""}},
}

func TestAcceptedResponses(t *testing.T) {
	for i, c := range acceptedResponses {
		t.Run(c.why, func(t *testing.T) {
			f := feeder{response: true, toHead: c.toHead, eof: c.eof, lim: testLimits}
			checkAccepted(t, f, c.acceptCase, uint64(i))
		})
	}
}

// TestTooLargeUntilClose checks what no case of the corpus has: too long a body whose length nothing says.
func TestTooLargeUntilClose(t *testing.T) {
	in := "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 1001)
	if o := (feeder{response: true, eof: true, lim: testLimits}).feedAll(t, []byte(in), 1); o.err != error(ErrMessageTooLarge) {
		t.Errorf("%v", o.err)
	}
}

// TestTooLargeMessageDecoded checks that a head is decoded although it announces more
// than the limit, so that the caller may stream the body. Body refuses it.
func TestTooLargeMessageDecoded(t *testing.T) {
	const in = "PUT /big HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n"
	var req protocol.Request
	var h Head
	n, err := DecodeRequest([]byte(in+"x"), &req, &h, testLimits)
	if n != len(in) || err != error(ErrMessageTooLarge) {
		t.Fatalf("%d, %v", n, err)
	}
	if string(req.Path) != "/big" || h.Length != 1001 || h.Framing != FixedLength || !h.KeepAlive {
		t.Fatalf("%q, %+v", req.Path, h)
	}
	var d Body
	d.Reset(&h, testLimits)
	if _, _, err := d.Decode([]byte("x"), nil); err != error(ErrMessageTooLarge) {
		t.Fatal(err)
	}
}

// TestStatuses checks the status of the response to a refused request.
func TestStatuses(t *testing.T) {
	for err, want := range map[*Error]int{
		ErrBadRequestLine: 400, ErrMessageTooLarge: 413, ErrTargetTooLong: 414, ErrExpectationFailed: 417,
		ErrHeaderTooLarge: 431, ErrTooManyHeaders: 431, ErrTrailerTooLarge: 431, ErrUnknownCoding: 501, ErrBadVersion: 505,
	} {
		if err.Status != want {
			t.Errorf("%s: %d, want %d", err.Code, err.Status, want)
		}
	}
}

// TestBadStatusLines checks what is near to a status line.
func TestBadStatusLines(t *testing.T) {
	for line, want := range map[string]error{
		"HTTP/1.1 100 C": nil, "HTTP/1.1 599 X": nil, "HTTP/1.1 200": nil, "HTTP/1.1 200 ": nil,
		"HTTP/1.1 099 X": ErrBadStatusLine, "HTTP/1.1 600 X": ErrBadStatusLine, "HTTP/1.1 2:0 X": ErrBadStatusLine, "HTTP/1.1 20: X": ErrBadStatusLine,
		"HTTP/1.1 2/0 X": ErrBadStatusLine, "HTTP/1.1 20/ X": ErrBadStatusLine, "HTTP/1.1 :00 X": ErrBadStatusLine, "HTTP/1.1 20": ErrBadStatusLine,
		"HTTP/1.1 2000": ErrBadStatusLine, "HTTP/1.1 200\tX": ErrBadStatusLine, "HTTP/1.1 200 \x00": ErrBadStatusLine, "HTTP/1.1\t200 X": ErrBadStatusLine,
		"HTTP/1:1 200 X": ErrBadStatusLine, "HTTP/:.1 200 X": ErrBadStatusLine, "HTTP/1.: 200 X": ErrBadStatusLine, "HTTP/1./ 200 X": ErrBadStatusLine,
		"": ErrBadStatusLine, "HTTP/1.1 200 OK\rX": ErrBadStatusLine,
		"HTTP/1.2 200 X": ErrBadVersion, "HTTP/2.0 200 X": ErrBadVersion, "HTTP/0.9 200 X": ErrBadVersion,
	} {
		var resp protocol.Response
		var h Head
		if _, err := DecodeResponse([]byte(line+"\r\n\r\n"), false, &resp, &h, testLimits); err != want {
			t.Errorf("%q: %v, want %v", line, err, want)
		}
	}
}
