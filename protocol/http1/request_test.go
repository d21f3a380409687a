package http1

import (
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// rest follows every message of the tables. The decoder must not touch it.
const rest = "GET /next HTTP/1.1\r\nHost: n\r\n\r\n"

type acceptCase struct {
	why      string // begins with the section of RFC 9112, or of RFC 9110 after a slash
	in       string
	head     string
	flags    string
	body     string
	trailers string
}

var acceptedRequests = []acceptCase{
	{"3.2.1 origin-form", "GET /a?b=c HTTP/1.1\r\nHost: h\r\n\r\n", "GET|/a?b=c|h|", "keep", "", ""},
	{"2.2 one empty line before", "\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET|/|h|", "keep", "", ""},
	{"3.1 methods keep their case", "gEt- / HTTP/1.1\r\nHost: h\r\n\r\n", "gEt-|/|h|", "keep", "", ""},
	{"9.3 HEAD", "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", "HEAD|/|h|", "keep head", "", ""},
	{"3.2.4 asterisk-form", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "OPTIONS|*|h|", "keep", "", ""},
	{"3.2.2 absolute-form replaces Host", "GET http://a:1/x HTTP/1.1\r\nHost: h\r\n\r\n", "GET|/x|a:1|", "keep", "", ""},
	{"3.2.2 scheme in any case", "GET HTTP://a/ HTTP/1.1\r\nHost: h\r\n\r\n", "GET|/|a|", "keep", "", ""},
	{"3.2.2 absolute-form without path", "GET http://a HTTP/1.1\r\nHost: h\r\n\r\n", "GET|/|a|", "keep", "", ""},
	{"3.2.2 query without path", "GET http://a:1?b/c HTTP/1.1\r\nHost: h\r\n\r\n", "GET|/?b/c|a:1|", "keep", "", ""},
	{"3.2.4 query without path is no *", "OPTIONS http://a? HTTP/1.1\r\nHost: h\r\n\r\n", "OPTIONS|/?|a|", "keep", "", ""},
	{"3.2.4 absolute-form for *", "OPTIONS http://a HTTP/1.1\r\nHost: h\r\n\r\n", "OPTIONS|*|a|", "keep", "", ""},
	{"3.2.3 authority-form", "CONNECT a:443 HTTP/1.1\r\nHost: h\r\n\r\n", "CONNECT||a:443|", "keep connect", "", ""},
	{"3.2 characters that want escaping", "GET /{a}|\"^[]\\%zz HTTP/1.1\r\nHost: h\r\n\r\n", "GET|/{a}|\"^[]\\%zz|h|", "keep", "", ""},
	{"3.2 empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET|/||", "keep", "", ""},
	{"3.2 IPv6 with port", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "GET|/|[::1]:80|", "keep", "", ""},
	{"3.2 no Host in 1.0", "GET / HTTP/1.0\r\n\r\n", "GET|/||", "1.0", "", ""},
	{"9.3 keep-alive in 1.0", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET|/||", "1.0 keep", "", ""},
	{"9.6 close", "GET / HTTP/1.1\r\nHost: h\r\nConnection: x, CLOSE ,,\r\n\r\n", "GET|/|h|", "", "", ""},
	{"9.6 close beats keep-alive", "GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", "GET|/|h|", "", "", ""},
	{"5.1 white space around values", "GET / HTTP/1.1\r\nHost:\t h \t\r\nA:b\r\nB: \t\r\n\r\n", "GET|/|h|A=b;B=;", "keep", "", ""},
	{"/5.5 obs-text and tab inside", "GET / HTTP/1.1\r\nHost: h\r\nA: x\ty \xff\xe9z longer than eight\r\n\r\n", "GET|/|h|A=x\ty \xff\xe9z longer than eight;", "keep", "", ""},
	{"/5.3 order and repetition kept", "GET / HTTP/1.1\r\na: 1\r\nHost: h\r\nA: 2\r\n\r\n", "GET|/|h|a=1;A=2;", "keep", "", ""},
	{"/7.6.1 hop-by-hop removed", "GET / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\nTrailer: a\r\nProxy-Authorization: b\r\nUpgrade: u\r\nA: 1\r\n\r\n",
		"GET|/|h|Trailer=a;Proxy-Authorization=b;A=1;", "keep", "", ""},
	{"/7.6.1 nominated removed, also before", "GET / HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nB: 2\r\nConnection: close, x-a\r\nconnection: X-C\r\nx-c: 3\r\n\r\n",
		"GET|/|h|B=2;", "", "", ""},
	{"/7.6.1 Connection nominates itself", "GET / HTTP/1.1\r\nHost: h\r\nConnection: connection, x-a\r\nB: 2\r\nConnection: x-c\r\nX-A: 1\r\nX-C: 3\r\n\r\n",
		"GET|/|h|B=2;", "keep", "", ""},
	{"/7.6.1 protected not removed", "POST / HTTP/1.1\r\nX-Remora-Attempt: 1\r\nConnection: host, content-length, x-remora-attempt, Cookie, x-forwarded-for\r\nHost: h\r\nContent-Length: 1\r\nCookie: c\r\nX-Forwarded-For: f\r\n\r\nb",
		"POST|/|h|X-Remora-Attempt=1;Cookie=c;X-Forwarded-For=f;", "keep length=1", "b", ""},
	{"/7.8 upgrade", "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n", "GET|/|h|Sec-WebSocket-Key=k;", "keep upgrade", "", ""},
	{"/7.8 no upgrade in 1.0", "GET / HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "GET|/||", "1.0", "", ""},
	{"6.2 length", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 005\r\n\r\nhello", "POST|/|h|", "keep length=5", "hello", ""},
	{"6.2 length 0", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", "POST|/|h|", "keep length=0", "", ""},
	{"6.2 length of a GET", "GET / HTTP/1.0\r\nContent-Length: 2\r\n\r\nab", "GET|/||", "1.0 length=2", "ab", ""},
	{"/10.1.1 expect", "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\nab", "POST|/|h|", "keep expect length=2", "ab", ""},
	{"/10.1.1 expect in 1.0 is ignored", "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab", "POST|/||", "1.0 length=2", "ab", ""},
	{"/10.1.1 expect without content", "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n", "POST|/|h|", "keep", "", ""},
	{"7.1 chunks", chunkedHead + "5\r\nhello\r\n00A\r\n, big wide\r\n6\r\n world\r\n0\r\n\r\n", "POST|/|h|", "keep chunked", "hello, big wide world", ""},
	{"7.1 no chunk", chunkedHead + "000\r\n\r\n", "POST|/|h|", "keep chunked", "", ""},
	{"7.1.1 extensions", chunkedHead + "1 ;a=\"b\t;\\\"\";c\r\nx\r\n0\t;z\r\n\r\n", "POST|/|h|", "keep chunked", "x", ""},
	{"7.1.2 trailers", chunkedHead + "1\r\nx\r\n0\r\nX-Sum: 1\r\nEtag:\t2 \r\n\r\n", "POST|/|h|", "keep chunked", "x", "X-Sum=1;Etag=2;"},
	{"/6.5.1 fields that must not be trailers", chunkedHead + "0\r\nContent-Length: 9\r\nHost: x\r\nA: 1\r\nAuthorization: b\r\nSet-Cookie: c\r\nTransfer-Encoding: chunked\r\nX-Remora-Attempt: 0\r\n\r\n",
		"POST|/|h|", "keep chunked", "", "A=1;"},
	{"3 limit of the head reached exactly", "GET /" + strings.Repeat("a", 512-len("GET / HTTP/1.0\r\n\r\n")) + " HTTP/1.0\r\n\r\n",
		"GET|/" + strings.Repeat("a", 512-len("GET / HTTP/1.0\r\n\r\n")) + "||", "1.0", "", ""},
	{"limit of the fields reached exactly", "GET / HTTP/1.0\r\n" + strings.Repeat("a:\r\n", 12) + "\r\n", "GET|/||" + strings.Repeat("a=;", 12), "1.0", "", ""},
	{"limit of the body reached exactly", "PUT / HTTP/1.0\r\nContent-Length: 1000\r\n\r\n" + strings.Repeat("b", 1000), "PUT|/||", "1.0 length=1000", strings.Repeat("b", 1000), ""},
	{"limit reached with chunks", chunkedHead + "1F4\r\n" + strings.Repeat("b", 500) + "\r\n1f4\r\n" + strings.Repeat("c", 500) + "\r\n0\r\n\r\n",
		"POST|/|h|", "keep chunked", strings.Repeat("b", 500) + strings.Repeat("c", 500), ""},
}

const chunkedHead = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n"

func TestAcceptedRequests(t *testing.T) {
	for i, c := range acceptedRequests {
		t.Run(c.why, func(t *testing.T) {
			checkAccepted(t, feeder{lim: testLimits}, c, uint64(i))
		})
	}
}

func checkAccepted(t *testing.T, f feeder, c acceptCase, seed uint64) {
	t.Helper()
	in := c.in
	if !f.eof {
		in += rest
	}
	got := f.feedAll(t, []byte(in), seed)
	want := outcome{used: len(c.in), head: c.head, flags: c.flags, body: c.body, trailers: c.trailers}
	if got != want {
		t.Fatalf("%q\ngot  %+v\nwant %+v", c.in, got, want)
	}
	// Every prefix is incomplete.
	for n := range len(c.in) {
		if f.eof && n > strings.Index(c.in, "\r\n\r\n") {
			break
		}
		if o := (feeder{response: f.response, toHead: f.toHead, lim: f.lim}).feed(t, []byte(c.in[:n]), nil); o.err != ErrIncomplete {
			t.Fatalf("first %d bytes of %q: %v", n, c.in, o.err)
		}
	}
}

type refuseCase struct {
	why string
	in  string
	err *Error
}

// one returns a request with one more field line.
func one(line string) string { return "GET / HTTP/1.1\r\nHost: h\r\n" + line + "\r\n\r\n" }

var refusedRequests = []refuseCase{
	{"3 no target", "GET HTTP/1.1\r\n\r\n", ErrBadRequestLine},
	{"3 empty target", "GET  HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadRequestLine},
	{"3 two spaces", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadRequestLine},
	{"3 two spaces before the version", "GET /  HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadRequestLine},
	{"3 space in the target", "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadRequestLine},
	{"3 tab", "GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadRequestLine},
	{"3 leading space", " GET / HTTP/1.1\r\n\r\n", ErrBadRequestLine},
	{"3 trailing space", "GET / HTTP/1.1 \r\nHost: h\r\n\r\n", ErrBadRequestLine},
	{"2.2 two empty lines before", "\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadRequestLine},
	{"2.2 bare LF before", "\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadRequestLine},
	{"2.2 bare CR before", "\rGET / HTTP/1.1\r\nHost: h\r\n\r\n", ErrBareCR},
	{"2.2 bare LF", "GET / HTTP/1.1\nHost: h\r\n\r\n", ErrBareLF},
	{"2.2 bare LF for the empty line", "GET / HTTP/1.1\r\nHost: h\r\n\n", ErrBareLF},
	{"2.2 bare LF in a value", one("A: b\nC: d"), ErrBareLF},
	{"2.2 bare CR in the line", "GET /\rx HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadTarget},
	{"2.2 bare CR in a name", one("A\rB: c"), ErrBareCR},
	{"2.2 bare CR in a value", one("A: b\rc"), ErrBareCR},
	{"2.2 CR CR LF", one("A: b\r"), ErrBareCR},
	{"3.1 method is no token", "GE(T / HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadRequestLine},
	{"a TLS hello", "\x16\x03\x01\x02\x00\x01", ErrBadRequestLine},
	{"2.3 HTTP/0.9", "GET /\r\n\r\n", ErrBadRequestLine},
	{"2.3 version in lower case", "GET / http/1.1\r\n\r\n", ErrBadRequestLine},
	{"2.3 version without minor", "GET / HTTP/1\r\n\r\n", ErrBadRequestLine},
	{"2.3 version with two digits", "GET / HTTP/1.10\r\n\r\n", ErrBadRequestLine},
	{"2.3 HTTP/2.0 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ErrBadVersion},
	{"2.3 HTTP/1.2", "GET / HTTP/1.2\r\n\r\n", ErrBadVersion},
	{"2.3 HTTP/0.1", "GET / HTTP/0.1\r\n\r\n", ErrBadVersion},
	{"3.2 relative target", "GET a HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadTarget},
	{"3.2 fragment", "GET /#a HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadTarget},
	{"3.2 beyond ASCII", "GET /\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadTarget},
	{"3.2 NUL", "GET /\x00 HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadTarget},
	{"3.2 DEL", "GET /\x7f HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadTarget},
	{"3.2.2 another scheme", "GET ftp://a/ HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadTarget},
	{"3.2.2 no authority", "GET http:///x HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadTarget},
	{"3.2.2 no authority, no path", "GET http:// HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadTarget},
	{"3.2.2 user information", "GET http://u:p@a/ HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadTarget},
	{"3.2.2 fragment", "GET http://a/#f HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadTarget},
	{"3.2.2 no authority, but a query", "GET http://?b HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadTarget},
	{"3.2.2 does not excuse Host", "GET http://a/ HTTP/1.1\r\n\r\n", ErrMissingHost},
	{"3.2.3 no port", "CONNECT a HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadTarget},
	{"3.2.3 empty port", "CONNECT a: HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadTarget},
	{"3.2.3 origin-form", "CONNECT /a HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadTarget},
	{"3.2.4 asterisk but not OPTIONS", "GET * HTTP/1.1\r\nHost: h\r\n\r\n", ErrBadTarget},
	{"3.2 no Host", "GET / HTTP/1.1\r\n\r\n", ErrMissingHost},
	{"3.2 two Hosts", one("hOST: h"), ErrDuplicateHost},
	{"3.2 two Hosts in 1.0", "GET / HTTP/1.0\r\nHost: h\r\nHost: h\r\n\r\n", ErrDuplicateHost},
	{"3.2 Host with a path", "GET / HTTP/1.1\r\nHost: h/x\r\n\r\n", ErrBadHost},
	{"3.2 Host with a user", "GET / HTTP/1.1\r\nHost: u@h\r\n\r\n", ErrBadHost},
	{"3.2 Host with a space", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", ErrBadHost},
	{"3.2 Host with a bad port", "GET / HTTP/1.1\r\nHost: h:8x\r\n\r\n", ErrBadHost},
	{"3.2 Host with a large port", "GET / HTTP/1.1\r\nHost: h:65536\r\n\r\n", ErrBadHost},
	{"3.2 Host with two ports", "GET / HTTP/1.1\r\nHost: h:1:2\r\n\r\n", ErrBadHost},
	{"3.2 Host of a port alone", "GET / HTTP/1.1\r\nHost: :80\r\n\r\n", ErrBadHost},
	{"3.2 Host of empty brackets", "GET / HTTP/1.1\r\nHost: []\r\n\r\n", ErrBadHost},
	{"3.2 Host with an open bracket", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", ErrBadHost},
	{"3.2 Host with text behind the bracket", "GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n", ErrBadHost},
	{"3.2 Host with a name in brackets", "GET / HTTP/1.1\r\nHost: [host]\r\n\r\n", ErrBadHost},
	{"3.2 Host beyond ASCII", "GET / HTTP/1.1\r\nHost: h\xe9\r\n\r\n", ErrBadHost},
	{"5.2 folded line", one("A: b\r\n c"), ErrObsFold},
	{"5.2 folded first line", "GET / HTTP/1.1\r\n Host: h\r\n\r\n", ErrObsFold},
	{"5.2 line of blanks", one("\t"), ErrObsFold},
	{"5.1 space before the colon", one("A : b"), ErrSpaceBeforeColon},
	{"5.1 tab before the colon", one("Content-Length\t: 5"), ErrSpaceBeforeColon},
	{"5.1 empty name", one(": b"), ErrBadFieldName},
	{"5.1 no colon", one("abc"), ErrBadFieldName},
	{"/5.1 name is no token", one("a(b: c"), ErrBadFieldName},
	{"/5.1 name beyond ASCII", one("\xe9: c"), ErrBadFieldName},
	{"/5.1 NUL in a name", one("a\x00: c"), ErrBadFieldName},
	{"/5.5 NUL in a value", one("a: b\x00"), ErrBadFieldValue},
	{"/5.5 control in a value", one("a: long enough for words\x0b"), ErrBadFieldValue},
	{"/5.5 DEL in a value", one("a: \x7f"), ErrBadFieldValue},
	{"6.2 empty", one("Content-Length:"), ErrBadContentLength},
	{"6.2 sign", one("Content-Length: +5"), ErrBadContentLength},
	{"6.2 hexadecimal", one("Content-Length: 0x5"), ErrBadContentLength},
	{"6.2 space inside", one("Content-Length: 5 5"), ErrBadContentLength},
	{"6.2 overflow", one("Content-Length: 9223372036854775808"), ErrBadContentLength},
	{"6.2 list of equal values", one("Content-Length: 5, 5"), ErrBadContentLength},
	{"6.3 equal lengths", one("Content-Length: 5\r\nContent-Length: 5"), ErrDuplicateLength},
	{"6.3 different lengths", one("Content-Length: 5\r\nContent-Length: 6"), ErrDuplicateLength},
	{"6.3 length and coding", one("Content-Length: 5\r\nTransfer-Encoding: chunked"), ErrLengthAndCoding},
	{"6.3 coding and length", one("Transfer-Encoding: chunked\r\nContent-Length: 5"), ErrLengthAndCoding},
	{"6.1 coding in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", ErrCodingInHTTP10},
	{"6.1 other coding", one("Transfer-Encoding: gzip, chunked"), ErrUnknownCoding},
	{"6.1 identity", one("Transfer-Encoding: identity"), ErrUnknownCoding},
	{"6.1 almost chunked", one("Transfer-Encoding: xchunked"), ErrUnknownCoding},
	{"6.1 quoted", one("Transfer-Encoding: \"chunked\""), ErrUnknownCoding},
	{"6.1 parameter", one("Transfer-Encoding: chunked;q=1"), ErrUnknownCoding},
	{"6.1 twice in a list", one("Transfer-Encoding: chunked, chunked"), ErrUnknownCoding},
	{"6.1 empty", one("Transfer-Encoding:"), ErrUnknownCoding},
	{"6.1 twice", one("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), ErrDuplicateCoding},
	{"6.1 chunked, then another", one("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"), ErrDuplicateCoding},
	{"/10.1.1 expectation", one("Expect: 200-ok"), ErrExpectationFailed},
	{"/7.6.1 option is no token", one("Connection: a b"), ErrBadConnection},
	{"/7.6.1 too many options", one("Connection: close" + strings.Repeat(",x", 32)), ErrBadConnection},
	{"3 long target", "GET /" + strings.Repeat("a", 600), ErrTargetTooLong},
	{"5 long head", one("A: " + strings.Repeat("b", 600)), ErrHeaderTooLarge},
	{"5 head one byte too long", "GET /" + strings.Repeat("a", 513-len("GET / HTTP/1.0\r\n\r\n")) + " HTTP/1.0\r\n\r\n", ErrHeaderTooLarge},
	{"5 many fields", "GET / HTTP/1.0\r\n" + strings.Repeat("a:\r\n", 13) + "\r\n", ErrTooManyHeaders},
	{"large length", "PUT / HTTP/1.0\r\nContent-Length: 1001\r\n\r\n", ErrMessageTooLarge},
	{"7.1 no size", chunkedHead + "\r\n", ErrBadChunkSize},
	{"7.1 extension alone", chunkedHead + ";a\r\n", ErrBadChunkSize},
	{"7.1 leading space", chunkedHead + " 5\r\n", ErrBadChunkSize},
	{"7.1 space behind", chunkedHead + "5 \r\n", ErrBadChunkSize},
	{"7.1 sign", chunkedHead + "-5\r\n", ErrBadChunkSize},
	{"7.1 prefix", chunkedHead + "0x5\r\n", ErrBadChunkSize},
	{"7.1 17 digits", chunkedHead + "00000000000000001\r\nx\r\n", ErrBadChunkSize},
	{"7.1 overflow", chunkedHead + "FFFFFFFFFFFFFFFF\r\n", ErrMessageTooLarge},
	{"7.1 past the limit", chunkedHead + "3E9\r\n", ErrMessageTooLarge},
	{"7.1 past the limit in sum", chunkedHead + "3E8\r\n" + strings.Repeat("b", 1000) + "\r\n1\r\n", ErrMessageTooLarge},
	{"7.1 bare LF behind the size", chunkedHead + "5\nhello\r\n", ErrBadChunkSize},
	{"7.1 bare CR behind the size", chunkedHead + "5\rhello\r\n", ErrBareCR},
	{"7.1 chunk too long", chunkedHead + "5\r\nhello!\r\n", ErrBadChunkEnd},
	{"7.1 bare LF behind the data", chunkedHead + "5\r\nhello\n0\r\n\r\n", ErrBadChunkEnd},
	{"7.1 bare CR behind the data", chunkedHead + "5\r\nhello\r0\r\n\r\n", ErrBadChunkEnd},
	{"7.1.1 LF in an extension", chunkedHead + "5;a\nhello\r\n", ErrBadChunkExt},
	{"7.1.1 LF in a quoted extension", chunkedHead + "5;a=\"\n\"\r\nhello\r\n", ErrBadChunkExt},
	{"7.1.1 CR in an extension", chunkedHead + "5;a\rb\r\n", ErrBareCR},
	{"7.1.1 NUL in an extension", chunkedHead + "5;\x00\r\n", ErrBadChunkExt},
	{"7.1.1 long extension", chunkedHead + "5;" + strings.Repeat("e", 600), ErrChunkOverhead},
	{"7.1.1 many extensions", chunkedHead + strings.Repeat("1;xxxxxxxxxxxxxxxx\r\nx\r\n", 60), ErrChunkOverhead},
	{"7.1.1 many zeros", chunkedHead + strings.Repeat("0000000000000001\r\nx\r\n", 60), ErrChunkOverhead},
	{"7.1.2 malformed trailer", chunkedHead + "0\r\nA : b\r\n\r\n", ErrSpaceBeforeColon},
	{"7.1.2 folded trailer", chunkedHead + "0\r\nA: b\r\n c\r\n\r\n", ErrObsFold},
	{"7.1.2 bare LF", chunkedHead + "0\r\n\n", ErrBareLF},
	{"7.1.2 bare LF behind a field", chunkedHead + "0\r\nA: b\n\r\n", ErrBareLF},
	{"7.1.2 bare CR in a field", chunkedHead + "0\r\nA: b\rc\r\n\r\n", ErrBareCR},
	{"7.1.2 bare CR in a name", chunkedHead + "0\r\nA\rB: c\r\n\r\n", ErrBareCR},
	{"7.1.2 NUL", chunkedHead + "0\r\nA: \x00\r\n\r\n", ErrBadFieldValue},
	{"7.1.2 no colon", chunkedHead + "0\r\nabc\r\n\r\n", ErrBadFieldName},
	{"7.1.2 large", chunkedHead + "0\r\nA: " + strings.Repeat("b", 600), ErrTrailerTooLarge},
	{"7.1.2 large in sum", chunkedHead + "0\r\n" + strings.Repeat("A: "+strings.Repeat("b", 95)+"\r\n", 6), ErrTrailerTooLarge},
	{"7.1.2 many", chunkedHead + "0\r\n" + strings.Repeat("A:\r\n", 13), ErrTooManyHeaders},
}

func TestRefusedRequests(t *testing.T) {
	for i, c := range refusedRequests {
		t.Run(c.why, func(t *testing.T) {
			if o := (feeder{lim: testLimits}).feedAll(t, []byte(c.in), uint64(i)); o.err != error(c.err) {
				t.Fatalf("%q: %v, want %v", c.in, o.err, c.err)
			}
		})
	}
}

// TestNominatedFieldsReleased checks that the reused list of headers refers to no
// removed header.
func TestNominatedFieldsReleased(t *testing.T) {
	var req protocol.Request
	var head Head
	b := []byte("GET / HTTP/1.1\r\nHost: h\r\nA: 1\r\nB: 2\r\nConnection: a, b\r\n\r\n")
	if _, err := DecodeRequest(b, &req, &head, &protocol.Limits{Header: 1000, Headers: 10, Message: 1000}); err != nil {
		t.Fatal(err)
	}
	if len(req.Headers) != 0 || cap(req.Headers) < 2 {
		t.Fatalf("%d of %d headers", len(req.Headers), cap(req.Headers))
	}
	for _, h := range req.Headers[:cap(req.Headers)] {
		if h.Name != nil || h.Value != nil {
			t.Errorf("%q", h)
		}
	}
}
