package http1

import (
	"math/rand/v2"
	"testing"
)

// The fuzzers mutate bytes and seldom combine two attacks. These tests assemble
// messages from valid and malformed pieces, and compare the decoder with net/http.

type pieces struct{ valid, malformed []string }

// pick returns a malformed piece once in odds picks, and a valid one otherwise.
func (p pieces) pick(rng *rand.Rand, odds int) string {
	from := p.valid
	if rng.IntN(odds) == 0 {
		from = p.malformed
	}
	return from[rng.IntN(len(from))]
}

var (
	somePrefix  = pieces{[]string{""}, []string{"\r\n", "\n", " ", "\r\n\r\n"}}
	someMethod  = pieces{[]string{"GET", "POST", "HEAD", "OPTIONS"}, []string{"CONNECT", "get", "X-Y!", "", "PRI", "G@T"}}
	someSpace   = pieces{[]string{" "}, []string{"  ", "\t", "", "\r", "\v", "\xa0"}}
	someTarget  = pieces{[]string{"/", "/a?b=c", "*", "http://a/x"}, []string{"//a", "/%zz", "http://u@a/", "http://a?b", "http://a", "/#", "HTTP://A:1/", "a:1", "[::1]:1", "/\x00", "/:", "http://[::1]/", "http://a%41/", "/\\", "http:///", "?"}}
	someVersion = pieces{[]string{"HTTP/1.1", "HTTP/1.1", "HTTP/1.0"}, []string{"HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/1.1 ", "HTTP/01.1", "HTTP/1", "HTTP/0.9", ""}}
	someEnd     = pieces{[]string{"\r\n"}, []string{"\n", "\r", "\r\r\n", "\n\r", "\r\n ", "\r\n\t", " \r\n", "\x00\r\n", "\r\n\r\n"}}
	someHost    = pieces{[]string{"Host: h\r\n"}, []string{"", "Host: h\r\nHost: h\r\n", "Host: [::1]:80\r\n", "Host:\r\n", "Host: h,i\r\n", "Host : h\r\n", "hOsT:\th \r\n"}}
	someField   = pieces{
		[]string{"A: b", "Content-Length: 5", "Transfer-Encoding: chunked", "Connection: keep-alive", "X-A: 1", ""},
		[]string{"Content-Length: 5", "Content-Length: 6", "Content-Length: 5, 5", "Content-Length: +5", "Content-Length: 05", "Content-Length : 5", "Content-Length:\v5", "content-length: 5 ", "Content_Length: 5",
			"Transfer-Encoding: chunked", "Transfer-Encoding: CHUNKED ", "Transfer-Encoding: identity", "Transfer-Encoding: chunked, identity", "Transfer-Encoding: x\r\n chunked", "Transfer-Encoding : chunked", "Transfer-Encoding:\x0bchunked", "Transfer-Encoding:chunked\x00", "transfer-encoding:\tchunked",
			"Connection: close", "Connection: x-a, X-Remora-A", "Connection: Content-Length", "Connection: Transfer-Encoding, host", "Connection: ,,", "Connection: upgrade", "Connection: a b", "X-Remora-A: 1",
			"Upgrade: h2c", "TE: trailers", "Trailer: X-A", "Trailer: Content-Length", "Expect: 100-continue", "Expect: x", "Pragma: no-cache", "Keep-Alive: 5", "Host: i", "Proxy-Connection: close",
			": x", "a", "a b: c", "\x00: x", "A:", "A: \xff", "A: b\rC: d", "A: \x7f", "A:b\tc", " A: b"},
	}
	someBody = pieces{
		[]string{"hello", "5\r\nhello\r\n0\r\n\r\n", ""},
		[]string{"5;a=b\r\nhello\r\n0\r\n\r\n", "0005\r\nhello\r\n00\r\nX: y\r\n\r\n", "5 \r\nhello\r\n0\r\n\r\n", "5 ;a\r\nhello\r\n0\r\n\r\n", "5\nhello\n0\n\n", "5\r\nhello0\r\n\r\n", "5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\n",
			"0x5\r\nhello\r\n0\r\n\r\n", "-5\r\nhello\r\n", "5;\nhello\r\n0\r\n\r\n", "5;\"\r\n\"\r\nhello\r\n0\r\n\r\n", "FFFFFFFFFFFFFFFFF\r\n", "5\r\nhello\r\n0\r\n", "0\r\nX : y\r\n\r\n", "0\r\n X: y\r\n\r\n", "0\r\nX: y\n\n", "A\r\n0123456789\r\n0\r\nX: y\r\nX: z\r\n\r\n"},
	}
	someStatus = pieces{[]string{"200 OK", "404 Not Found", "204 No Content", "304 Not Modified"}, []string{"200", "200 ", "100 Continue", "101 Switching Protocols", "103 x", "99 x", "600 x", "2000 x", "20 x", "+20 x", " 200 OK", "200  x", "200\tOK", "205 Reset Content"}}
)

func appendFields(b []byte, rng *rand.Rand) []byte {
	for range rng.IntN(6) {
		if s := someField.pick(rng, 3); s != "" {
			b = append(append(b, s...), someEnd.pick(rng, 60)...)
		}
	}
	b = append(b, someEnd.pick(rng, 60)...)
	b = append(b, someBody.pick(rng, 2)...)
	return append(b, rest...)
}

func TestAssembledRequestsVsNetHTTP(t *testing.T) {
	accepted := 0
	for seed := range uint64(assembled) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b := []byte(somePrefix.pick(rng, 20))
		for _, p := range []pieces{someMethod, someSpace, someTarget, someSpace, someVersion, someEnd, someHost} {
			b = append(b, p.pick(rng, 12)...)
		}
		if compareRequest(t, appendFields(b, rng)) {
			accepted++
		}
	}
	compared(t, accepted)
}

func TestAssembledResponsesVsNetHTTP(t *testing.T) {
	accepted := 0
	for seed := range uint64(assembled) {
		rng := rand.New(rand.NewPCG(seed, 2))
		b := []byte(somePrefix.pick(rng, 60))
		for _, p := range []pieces{someVersion, someSpace, someStatus, someEnd} {
			b = append(b, p.pick(rng, 8)...)
		}
		if compareResponse(t, appendFields(b, rng), seed%5 == 0) {
			accepted++
		}
	}
	compared(t, accepted)
}

// assembled is the number of messages that each test assembles.
const assembled = 20000

// compared checks that enough messages were accepted for the comparison to count.
func compared(t *testing.T, accepted int) {
	t.Logf("%d of %d accepted and compared", accepted, assembled)
	if accepted < assembled/20 {
		t.Fatal("too few messages were accepted")
	}
}
