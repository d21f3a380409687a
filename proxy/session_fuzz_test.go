package proxy_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

var fuzzLimits = protocol.Limits{Header: 64 << 10, Headers: 128, Message: 1 << 20}

// requestsIn decodes b as a server. toHead has an element for each complete request, and
// says whether its method is HEAD. rest follows these requests. more reports whether the
// connection may stay open.
func requestsIn(b []byte) (toHead []bool, rest []byte, more bool) {
	for len(b) > 0 {
		var req protocol.Request
		var head http1.Head
		var body http1.Body
		var buf bytebufferpool.ByteBuffer
		n, err := http1.DecodeRequest(b, &req, &head, &fuzzLimits)
		if err != nil || head.Connect {
			return toHead, b, err == http1.ErrIncomplete
		}
		body.Reset(&head, &fuzzLimits)
		used, done, err := body.Decode(b[n:], &buf)
		if err != nil || !done {
			return toHead, b, err == nil
		}
		toHead = append(toHead, head.HeadMethod)
		b = b[n+used:]
		if !head.KeepAlive {
			return toHead, b, false
		}
	}
	return toHead, b, true
}

// responsesIn decodes b as the client that sent the requests toHead. It returns the number
// of final responses. All of b must be well-formed and complete.
func responsesIn(t *testing.T, b []byte, toHead []bool) (n int) {
	t.Helper()
	for len(b) > 0 {
		var resp protocol.Response
		var head http1.Head
		var body http1.Body
		var buf bytebufferpool.ByteBuffer
		used, err := http1.DecodeResponse(b, n < len(toHead) && toHead[n], &resp, &head, &fuzzLimits)
		if err != nil {
			t.Fatalf("response %d: %v\n%q", n, err, b)
		}
		b = b[used:]
		if resp.Status < 200 {
			continue
		}
		body.Reset(&head, &fuzzLimits)
		used, done, err := body.Decode(b, &buf)
		if err != nil || !done {
			t.Fatalf("body of response %d: done %v, error %v\n%q", n, done, err, b)
		}
		b = b[used:]
		n++
		if !head.KeepAlive && len(b) > 0 {
			t.Fatalf("the sidecar sends more after the last response: %q", b)
		}
	}
	return n
}

// finalHead reports whether b holds the whole head of a final response, which interim
// responses may precede (RFC 9110 section 15.2).
func finalHead(b []byte) bool {
	for {
		head, rest, whole := bytes.Cut(b, []byte("\r\n\r\n"))
		if !whole || !bytes.HasPrefix(head, []byte("HTTP/1.1 1")) {
			return whole
		}
		b = rest
	}
}

// httpSeeds are inputs of clients of an HTTP listener.
var httpSeeds = func() []string {
	post := "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
	chunked := "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-t: 1\r\n\r\n"
	expect := "PUT /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc"
	get := "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	return []string{post, chunked, expect, get, post + chunked + expect + get, get + "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n" + get,
		"\r", "\x16\xfd\x94\xcb", "\r\n" + get, "\r\n\r\n" + get, strings.Repeat(get, 17), get + "GET / HTTP/1.0\r\n\r\n" + get, post + "\r\n" + get, get + "junk", chunked[:70],
		expect[:70], get + "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
		strings.Repeat("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", 17), get + "HEAD / H\rTP/1.1\r\n\r\n"}
}()

// tlsAlert is the record of the fatal alert handshake_failure (RFC 8446 section 6).
var tlsAlert = []byte("\x15\x03\x03\x00\x02\x02\x28")

// FuzzDownstreamHTTP sends anything to an HTTP listener. Each complete request gets a
// response, in order. The application gets only well-formed requests, and no memory is
// held in the end.
func FuzzDownstreamHTTP(f *testing.F) {
	for _, s := range httpSeeds {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, said []byte, seed uint64) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Seed: seed, Apps: 1, OneHop: true, Limits: "limits: {message: 1MiB}"})
		m.W.Options.Cut = 0.7
		p := &proxytest.Peer{Says: said}
		m.Clients.Do(func() { m.Clients.Dial(proxytest.Egress, time.Second, p) })
		m.W.RunUntil(func() bool { return p.Ended }, 45*time.Second)
		toHead, rest, more := requestsIn(said)
		heard := p.Heard
		if len(toHead) == 0 && bytes.Equal(heard, tlsAlert) { // a client that seems to speak TLS
			heard = nil
		}
		refusedHead := bytes.HasPrefix(bytes.TrimLeft(rest, "\r\n"), []byte("HEAD "))
		n := responsesIn(t, heard, append(toHead, refusedHead))
		if n > len(toHead)+1 || !p.Ended && (n != len(toHead) || !more) {
			t.Errorf("%d responses to %d requests, closed %v", n, len(toHead), p.Ended)
		}
		if due := min(len(toHead), 16); n < due {
			t.Errorf("only %d of %d complete requests got a response", n, due)
		}
		m.Settled()
	})
}

// surplus reports whether said has bytes after its first final response.
func surplus(said []byte) bool {
	for len(said) > 0 {
		var resp protocol.Response
		var head http1.Head
		var body http1.Body
		var buf bytebufferpool.ByteBuffer
		n, err := http1.DecodeResponse(said, false, &resp, &head, &fuzzLimits)
		if err != nil {
			return false
		}
		said = said[n:]
		if resp.Status < 200 {
			continue
		}
		body.Reset(&head, &fuzzLimits)
		n, done, err := body.Decode(said, &buf)
		return err == nil && done && n < len(said)
	}
	return false
}

// FuzzUpstreamHTTP makes an application send anything. Each caller gets exactly one
// well-formed response, its own.
func FuzzUpstreamHTTP(f *testing.F) {
	ok := "HTTP/1.1 200 OK\r\nx-nonce: NONCE\r\nContent-Length: 2\r\n\r\nok"
	for _, s := range []string{ok, ok + ok, "HTTP/1.1 100 Continue\r\n\r\n" + ok, "HTTP/1.1 204 No Content\r\nx-nonce: NONCE\r\n\r\n",
		"HTTP/1.1 200 OK\r\nx-nonce: NONCE\r\n\r\nuntil close", "HTTP/1.0 500 X\r\n\r\n", "HTTP/1.1 101 X\r\n\r\n", "junk",
		"HTTP/1.1 200 OK\r\nx-nonce: NONCE\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-t: 1\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok, "HTTP/1.1 103 Early Hints\r\n\r\n",
		"HTTP/1.1 304 X\r\nContent-Length: 7\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"} {
		for seed := range uint64(4) {
			f.Add([]byte(s), seed)
		}
	}
	f.Fuzz(func(t *testing.T, said []byte, seed uint64) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Seed: seed, Apps: 1, Service: "timeout: 1s, idempotent: true", Provider: "timeout: 1s",
			OneHop: seed%4 >= 2, Limits: "limits: {message: 1MiB}"})
		m.W.Options.Cut = 0.7
		m.Apps[0].Stop()
		app := m.W.Loop("10.0.1.1-raw")
		m.W.Net.Listen(m.Apps[0].Addr, app, func() loop.Receiver {
			p := &proxytest.Peer{ClosesAfterReply: seed%2 == 1}
			done := 0
			p.Reply = func(heard []byte) []byte {
				if n := bytes.Count(heard, []byte("\r\n\r\n")); n == done {
					return nil
				} else {
					done = n
				}
				nonce := heard[bytes.LastIndex(heard, []byte("x-nonce: "))+len("x-nonce: "):]
				nonce, _, _ = bytes.Cut(nonce, []byte("\r\n"))
				return bytes.ReplaceAll(said, []byte("NONCE"), nonce)
			}
			return p
		})
		raw := &proxytest.Peer{}
		for range 3 {
			raw.Says, raw.Heard, raw.Ended = nil, nil, false
			c := m.Get("/")
			raw.Says = c.Raw
			m.Clients.Do(func() { m.Clients.Dial(proxytest.Egress, time.Second, raw) })
			answered := func() bool { return raw.Ended || finalHead(raw.Heard) }
			if !m.W.RunUntil(answered, 10*time.Second) {
				t.Fatal("no response")
			}
			m.W.Run(100 * time.Millisecond)
			if n := responsesIn(t, raw.Heard, nil); n != 1 {
				t.Fatalf("%d responses to one request: %q", n, raw.Heard)
			}
			if i := bytes.Index(raw.Heard, []byte("x-nonce: n")); i >= 0 && !surplus(said) && bytes.Contains(said, []byte("x-nonce: NONCE\r\n")) &&
				!bytes.HasPrefix(raw.Heard[i:], []byte("x-nonce: "+c.Nonce)) {
				t.Errorf("call %s got the response %q", c.Nonce, raw.Heard)
			}
			m.Clients.Do(func() { raw.Conn.Close() })
			m.W.Run(10 * time.Millisecond)
		}
		m.Settled()
	})
}

// linkSeeds are the frames of an ordinary exchange.
func linkSeeds(f *testing.F) {
	var w *link.Writer
	begin := func() {
		w = link.NewWriter()
		w.Preface(link.Dialer, link.Settings{})
		w.Open(1, link.Settings{})
		w.Append(nil, 1<<20)
	}
	begin()
	add := func() {
		f.Add(w.Append(nil, 1<<20), uint64(1))
		begin()
	}
	req := protocol.Request{Method: []byte("POST"), Path: []byte("/"), Authority: []byte("a"), Body: []byte("abc")}
	w.Request(1, &req, time.Second, nil)
	w.Request(2, &req, 0, nil)
	add()
	w.Request(1, &req, time.Second, nil)
	f.Add(append(w.Append(nil, 1<<20), 4, 1, 0), uint64(3)) // and CANCEL
	req.Body = make([]byte, 20_000)
	w.Request(3, &req, time.Second, nil)
	add()
	tied := req
	tied.Body, tied.Hedge, tied.Tied = nil, true, true
	for id := range uint64(5) { // more than the slots of an acceptor, and its queue
		w.Request(id+1, &tied, time.Second, nil)
		w.Start(id + 1)
	}
	f.Add(append(w.Append(nil, 1<<20), 18, 4, 0, 18, 3, 0, 17, 3, 0), uint64(2)) // and WITHDRAW of two, START of one
	w.Start(1)
	w.Start(2)
	w.Refused(3, link.NoSlot)
	add()
	resp := protocol.Response{Status: 200, Body: []byte("abc"), DeclaredLength: -1}
	w.Response(1, &resp, protocol.CodecHTTP, nil)
	w.Response(2, &resp, protocol.CodecHTTP, nil)
	w.Load(link.Load{Pending: 1})
	add()
	w.Refused(1, link.Overload)
	w.CancelAck(2, link.CancelFinished)
	w.GoAway(1, link.Draining)
	w.Ping(1)
	add()
	resp.Body = make([]byte, 20_000)
	w.Response(1, &resp, protocol.CodecHTTP, nil)
	add()
}

// FuzzLinkAcceptor sends anything after a valid preface to a link listener. While the link
// is open, each complete request gets one response, and no other stream does.
func FuzzLinkAcceptor(f *testing.F) {
	linkSeeds(f)
	f.Fuzz(func(t *testing.T, said []byte, seed uint64) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Seed: seed, Apps: 1, Limits: "limits: {message: 1MiB}",
			Provider: "timeout: 1s, max_concurrency: 2, max_queue: 2"})
		m.W.Options.Cut = 0.7
		p := &proxytest.Peer{Says: append(proxytest.LinkPreface(link.Dialer), said...)}
		m.DialIngress(p)
		m.W.Run(2 * time.Second)
		l := proxytest.NewLinkLedger(t, p.Says, p.Heard, link.ReaderLimits{Message: 1 << 20})
		for id, n := range l.Responses {
			if n > 1 || !l.Requested[id] {
				t.Errorf("%d responses to request %d, which was complete: %t", n, id, l.Requested[id])
			}
		}
		if !p.Ended {
			for id := range l.Requested {
				if l.Responses[id] == 0 && !l.Cancelled[id] {
					t.Errorf("request %d has no response", id)
				}
			}
			m.Clients.Do(func() { p.Conn.Close() })
		}
		m.Settled()
	})
}

// FuzzLinkDialer makes a provider send anything after a valid preface. Each caller gets
// exactly one response.
func FuzzLinkDialer(f *testing.F) {
	linkSeeds(f)
	f.Fuzz(func(t *testing.T, said []byte, seed uint64) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Seed: seed, Apps: 1, Limits: "limits: {message: 1MiB}",
			Service: "timeout: 1s, idempotent: true, hedge: {mode: on, delay: 5ms}, retry: {attempts: 2, on: [connect, refused, reset, 5xx]}"})
		m.W.Options.Cut = 0.7
		var raw []registry.Endpoint
		for _, addr := range []string{"10.0.2.1:15006", "10.0.2.2:15006"} {
			m.W.Net.Listen(addr, m.W.Loop(addr[:8]), func() loop.Receiver {
				preface := proxytest.LinkPreface(link.Acceptor)
				preface[len(preface)-1] |= link.FeatureStarts
				said := append(preface, said...)
				return &proxytest.Peer{Reply: func([]byte) []byte { out := said; said = nil; return out }, ClosesAfterReply: seed%4 == 3}
			})
			raw = append(raw, registry.Endpoint{Addr: addr, Weight: 1})
		}
		m.Consumer.Update("compute", raw...)
		m.W.Run(time.Millisecond)
		var peers []*proxytest.Peer
		for range 3 {
			p := &proxytest.Peer{Says: m.Post(20_000).Raw}
			m.Clients.Do(func() { m.Clients.Dial(proxytest.Egress, time.Second, p) })
			peers = append(peers, p)
		}
		m.W.Run(3 * time.Second)
		for _, p := range peers {
			if n := responsesIn(t, p.Heard, nil); n != 1 {
				t.Errorf("%d responses to one request: %q", n, p.Heard)
			}
			if !p.Ended {
				m.Clients.Do(func() { p.Conn.Close() })
			}
		}
		m.Settled()
	})
}
