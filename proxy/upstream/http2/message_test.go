package http2_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// field is one header or trailer.
func field(name, value string) protocol.Header {
	return protocol.Header{Name: []byte(name), Value: []byte(value)}
}

// respondWith sends res with the nonce of the request.
func respondWith(c *proxytest.HTTP2Conn, st *http2.Stream, res protocol.Response) {
	nonce := slices.Clone(protocol.Find(c.Request.Headers, "x-nonce"))
	res.Headers = append(slices.Clone(res.Headers), protocol.Header{Name: []byte("x-nonce"), Value: nonce})
	c.H2.Respond(st, &res, nil)
}

// TestMessages: responses that may be messages arrive whole. A response that is longer than limits.message, or whose head is longer
// than limits.header, fails once that is known, and the endpoint need not go on with it. The connection is used again.
func TestMessages(t *testing.T) {
	const most = 64 << 10
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Limits: proxytest.SmallMessages,
		Service: "timeout: 10s, retry: {on: []}, idempotent: true, hedge: {mode: on, delay: 5s}"})
	a := startApps(m)[0]
	whole := func(res protocol.Response) func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		res.DeclaredLength = -1
		return func(c *proxytest.HTTP2Conn, st *http2.Stream) { respondWith(c, st, res) }
	}
	// begins sends a head, and n bytes of a body that does not end.
	begins := func(length int64, n int) func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		return func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			c.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: length})
			c.H2.Send(st, make([]byte, n))
		}
	}
	for _, c := range []struct {
		name     string
		respond  func(c *proxytest.HTTP2Conn, st *http2.Stream)
		status   int
		code     string
		size     int    // of the body
		trailers string // names and values
		resets   int    // that the endpoint gets
	}{
		{name: "empty", respond: whole(protocol.Response{Status: 200}), status: 200},
		{name: "no content", respond: whole(protocol.Response{Status: 204}), status: 204},
		{name: "body", respond: whole(protocol.Response{Status: 200, Body: []byte("hello")}), status: 200, size: 5},
		{name: "trailers", respond: whole(protocol.Response{Status: 200, Body: []byte("hello"), Trailers: []protocol.Header{field("a", "b"), field("c", "d")}}),
			status: 200, size: 5, trailers: "a: b, c: d"},
		{name: "trailers alone", respond: whole(protocol.Response{Status: 200, Trailers: []protocol.Header{field("a", "b")}}), status: 200, trailers: "a: b"},
		{name: "as long as may be", respond: whole(protocol.Response{Status: 200, Body: make([]byte, most)}), status: 200, size: most},
		{name: "too long at its end", respond: whole(protocol.Response{Status: 200, Body: make([]byte, most+1), Trailers: []protocol.Header{field("a", "b")}}),
			status: 502, code: "response-too-large"},
		{name: "says that it is too long", respond: begins(most+1, 0), status: 502, code: "response-too-large", resets: 1},
		{name: "becomes too long", respond: begins(-1, most+1), status: 502, code: "response-too-large", resets: 1},
		{name: "long head", respond: whole(protocol.Response{Status: 200, Headers: []protocol.Header{field("a", strings.Repeat("x", most))}}),
			status: 502, code: "response-too-large"},
	} {
		a.onCall = c.respond
		before := 0
		if len(a.conns) > 0 {
			before = len(a.conns[0].Resets)
		}
		call := m.Post(10)
		m.Do(call)
		m.Finish(call)
		var trailers []string
		for _, h := range call.Trailers {
			trailers = append(trailers, string(h.Name)+": "+string(h.Value))
		}
		if call.Status != c.status || call.Code != c.code || c.code == "" && len(call.Body) != c.size || strings.Join(trailers, ", ") != c.trailers {
			t.Errorf("%s: %d %s, %d bytes, trailers %s", c.name, call.Status, call.Code, len(call.Body), trailers)
		}
		if call.Took > time.Second {
			t.Errorf("%s: after %v", c.name, call.Took)
		}
		m.W.Run(10 * time.Millisecond)
		if n := len(a.conns[0].Resets) - before; n != c.resets {
			t.Errorf("%s: the endpoint got %d resets, want %d", c.name, n, c.resets)
		}
		m.Settled()
	}
	if len(a.conns) != 1 {
		t.Errorf("%d connections", len(a.conns))
	}
}

// TestUnsendable: a request that can't be sent over HTTP/2, or not on a connection that others share, is refused. The endpoint sees
// nothing of it.
func TestUnsendable(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Speaks: "http2"})
	a := startApps(m)[0]
	m.OK(do(m))
	w, p := m.DialLink()
	for i, c := range []struct {
		change func(req *protocol.Request)
		code   string
	}{
		{func(req *protocol.Request) { req.Method = []byte("CONNECT") }, "bad-request"},
		{func(req *protocol.Request) { req.Codec = dubbo.CodecFastjson }, "not-convertible"},
		{func(req *protocol.Request) {
			req.Headers = []protocol.Header{field("authorization", "Negotiate YII")}
		}, "connection-login"},
	} {
		req := *proxytest.LinkRequest
		c.change(&req)
		w.Request(uint64(i+1), &req, time.Minute, nil)
		m.Clients.Do(func() { p.Conn.Write(w.Append(nil, 1<<20)) })
		m.W.Run(10 * time.Millisecond)
		if n := m.Nodes[1].Report().Stats.Errors.Of(c.code); n != 1 {
			t.Errorf("%s: %d requests were refused for that", c.code, n)
		}
		m.Settled()
	}
	m.OK(do(m))
	if a.calls != 2 || len(a.conns) != 1 || len(a.conns[0].Resets) != 0 {
		t.Errorf("%d calls on %d connections, resets %v", a.calls, len(a.conns), a.conns[0].Resets)
	}
}

// TestReportedLoad: endpoints get requests by the load that they report in a header.
func TestReportedLoad(t *testing.T) {
	m, apps := newMesh(t, 2, "lb: {policy: weighted_round_robin}")
	for i, report := range []string{"TEXT cpu_utilization=0.9, rps_fractional=100", "TEXT cpu_utilization=0.3, rps_fractional=100"} {
		apps[i].onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			respondWith(c, st, protocol.Response{Status: 200, DeclaredLength: -1, Headers: []protocol.Header{field("endpoint-load-metrics", report)}})
		}
	}
	for range 10 {
		m.WarmUp(4)
		m.W.Run(500 * time.Millisecond)
	}
	before := apps[1].calls
	m.WarmUp(40)
	if n := apps[1].calls - before; n < 29 || n > 31 {
		t.Errorf("%d of 40 requests went to the endpoint with less load, want 30", n)
	}
	m.Settled()
}

// TestFirstByteHeld: the head of a stream is held until its first byte, if first bytes have followed heads, so that a hedge may
// win. A hedge without a first byte either does not win. A head alone is passed on after a while.
func TestFirstByteHeld(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name           string
		primary, hedge time.Duration // from the request to the first byte; 0 means never
		won            bool          // by the hedge
		least, most    time.Duration // when the head is passed on
	}{
		{"first byte", 10 * ms, 0, false, 10 * ms, 13 * ms},
		{"hedge", 0, 7 * ms, true, 27 * ms, 30 * ms},
		{"neither", 0, 0, false, 40 * ms, 43 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 2, OneHop: true, Speaks: "http2", Match: messages,
				Service: "idempotent: true, hedge: {mode: on, delay: 20ms, budget: 1}"})
			firstBytes := []time.Duration{2 * ms, c.primary, c.hedge} // of attempts in the order of their arrival
			var seen []string
			for _, a := range startApps(m) {
				a.onCall = func(server *proxytest.HTTP2Conn, st *http2.Stream) {
					after := firstBytes[len(seen)]
					seen = append(seen, a.of.Addr)
					a.of.Loop.After(ms, &loop.Timer{Fire: func() {
						server.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: -1,
							Headers: []protocol.Header{{Name: protocol.NameContentType, Value: []byte("text/event-stream")}}})
						server.Flush()
					}})
					if after == 0 {
						return
					}
					a.of.Loop.After(after, &loop.Timer{Fire: func() {
						if st.ID() != 0 {
							server.H2.Send(st, []byte("first"))
							server.Flush()
						}
					}})
				}
			}
			m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
			m.RunUntil("a stream", func() bool { return len(consumer.Responses) == 1 })
			if learn := consumer.Responses[0].Source.Stream.OnFirstByte(); learn != nil {
				learn()
			}
			m.W.Run(500 * ms)
			began := m.W.Now()
			m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
			m.RunUntil("the second stream", func() bool { return len(consumer.Responses) == 2 })
			if took := m.W.Now() - began; took < c.least || took > c.most {
				t.Errorf("the head was passed on after %v, want %v to %v", took, c.least, c.most)
			}
			if from := consumer.Responses[1].Source.Addr; len(seen) > 2 && (from == seen[2]) != c.won || len(seen) > 2 != (c.primary == 0) {
				t.Errorf("the stream comes from %s; attempts were at %s", from, seen)
			}
			proxytest.CheckStreamsSettled(m, consumer)
		})
	}
}

// TestHeadOfRetry: an endpoint that refuses a gRPC call gets the same head again.
func TestHeadOfRetry(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Service: "timeout: 1s"})
	m.Apps[0].Stop()
	p := &proxytest.Peer{Says: []byte(settings)}
	m.W.Net.Listen(m.Apps[0].Addr, m.Apps[0].Loop, func() loop.Receiver { return p })
	m.Do(m.CallGRPC())
	m.W.Run(100 * time.Millisecond)
	m.Apps[0].Loop.Do(func() { p.Conn.Write([]byte(frame(frameReset, 0, 1, "\x00\x00\x00\x07"))) })
	m.W.Run(100 * time.Millisecond)
	want := ":method: POST, :scheme: http, :path: /compute, :authority: compute, te: trailers, all: false"
	if got := headsOf(p.Heard); !slices.Equal(got, []string{want, want}) {
		t.Errorf("the endpoint got %q", got)
	}
	m.W.Run(time.Second)
	m.Settled()
}

// TestBadResponseCounts: a response that waits for a better one counts in limits.buffered.
func TestBadResponseCounts(t *testing.T) {
	const size = 10_000 // of one read
	m, apps := newMesh(t, 2, "idempotent: true, timeout: 10s, retry: {on: [5xx]}, hedge: {mode: on, delay: 20ms, budget: 1}")
	m.W.Options.Cut = 0
	bad := -1
	for i, a := range apps {
		a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			if bad >= 0 {
				a.later(time.Second)(c, st)
				return
			}
			bad = i
			nonce := slices.Clone(protocol.Find(c.Request.Headers, "x-nonce"))
			a.of.Loop.After(50*time.Millisecond, &loop.Timer{Fire: func() {
				c.H2.Respond(st, &protocol.Response{Status: 500, DeclaredLength: -1, Body: make([]byte, size),
					Headers: []protocol.Header{{Name: []byte("x-nonce"), Value: nonce}}}, nil)
				c.Flush()
			}})
		}
	}
	c := m.Get("/")
	m.Do(c)
	m.W.Run(200 * time.Millisecond)
	if n := m.Consumer.Proc.Held(); c.Done || bad < 0 || n < size {
		t.Errorf("%d bytes are held, status %d", n, c.Status)
	}
	m.OK(c)
	m.Settled()
}

// TestInterimsDoNotCount: the bytes of a response are those of the final one, however many interim responses come before.
func TestInterimsDoNotCount(t *testing.T) {
	var bytes []uint64
	for _, interims := range []int{0, 3} {
		m, apps := newMesh(t, 1, "")
		apps[0].onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			for range interims {
				c.H2.Interim(st, &protocol.Response{Status: 103, Headers: []protocol.Header{{Name: []byte("link"), Value: []byte("</style>")}}})
			}
			respond(c, st)
		}
		m.OK(do(m))
		m.Settled()
		bytes = append(bytes, m.Consumer.Stats("compute").BytesOut)
	}
	if bytes[0] == 0 || bytes[0] != bytes[1] {
		t.Errorf("%d bytes without interim responses, %d with some", bytes[0], bytes[1])
	}
}

// TestHeadersOfResponse: a response over HTTP/2 loses what only a sidecar may say, and gets a Date.
func TestHeadersOfResponse(t *testing.T) {
	m, apps := newMesh(t, 1, "")
	apps[0].onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		c.H2.Respond(st, &protocol.Response{Status: 200, DeclaredLength: -1, Body: []byte("body"), Headers: []protocol.Header{
			{Name: []byte("x-nonce"), Value: slices.Clone(protocol.Find(c.Request.Headers, "x-nonce"))},
			{Name: []byte("x-remora-error"), Value: []byte("overloaded")},
		}}, nil)
	}
	c := do(m)
	if m.OK(c); c.Code != "" || protocol.Find(c.Headers, "date") == nil {
		t.Errorf("the response has the headers %s", c.Headers)
	}
	m.Settled()
}

// TestMessageBeyondWindow: a response may be longer than the window of its stream.
func TestMessageBeyondWindow(t *testing.T) {
	const size = 1 << 20
	m, apps := newMesh(t, 1, "timeout: 10s")
	a := apps[0]
	a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		nonce := string(protocol.Find(c.Request.Headers, "x-nonce"))
		c.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: size, Headers: []protocol.Header{field("x-nonce", nonce)}})
		a.sendBody(c, st, size)
	}
	c := do(m)
	if m.OK(c); len(c.Body) != size || len(a.conns[0].Resets) != 0 {
		t.Errorf("%d bytes arrived of %d, the endpoint got resets %v", len(c.Body), size, a.conns[0].Resets)
	}
	m.Settled()
}

// TestInterimArrives: an interim response arrives ahead of the final one.
func TestInterimArrives(t *testing.T) {
	m, apps := newMesh(t, 1, "")
	a := apps[0]
	a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		c.H2.Interim(st, &protocol.Response{Status: 103, Headers: []protocol.Header{field("link", "</style>")}})
		a.later(time.Second)(c, st)
	}
	p := m.DialAndSend(proxytest.Egress, "GET / HTTP/1.1\r\nHost: compute\r\n\r\n")
	m.W.Run(500 * time.Millisecond)
	if got, want := string(p.Heard), "HTTP/1.1 103 Early Hints\r\nlink: </style>\r\n\r\n"; got != want {
		t.Errorf("before the final response the client got %q", got)
	}
	if m.W.Run(time.Second); !strings.Contains(string(p.Heard), "\r\n\r\nHTTP/1.1 200 OK\r\n") {
		t.Errorf("with the final response the client got %q", p.Heard)
	}
	m.Settled()
}

// TestMemoryOfKnownLength: a response whose length is known gets memory for all of it with its first bytes, if that is less than a quarter of
// limits.buffered. Otherwise its memory grows with what comes.
func TestMemoryOfKnownLength(t *testing.T) {
	const came, length = 10_000, 1 << 20
	for _, c := range []struct {
		name        string
		length      int64
		limits      string
		least, most int64 // held
	}{
		{"unknown", -1, "", came, 4 * came},
		{"known", length, "", length, length * 5 / 4}, // with room for a head
		{"known, little memory", length, "limits: {message: 2MiB, buffered: 3MiB}", came, 4 * came},
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Limits: c.limits, Service: "timeout: 1s, retry: {on: []}"})
		m.W.Options.Cut = 0 // so that the first bytes come at once
		startApps(m)[0].onCall = func(server *proxytest.HTTP2Conn, st *http2.Stream) {
			server.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: c.length})
			server.H2.Send(st, make([]byte, came))
		}
		m.Do(m.Get("/"))
		m.W.Run(100 * time.Millisecond)
		if n := m.Consumer.Proc.Held(); n < c.least || n > c.most {
			t.Errorf("%s: %d bytes are held of a body with %d so far, want %d to %d", c.name, n, came, c.least, c.most)
		}
		m.W.Run(time.Second)
		m.Settled()
	}
}
