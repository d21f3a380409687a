package http2_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestExpectation: a client that waits with its body gets 100, or the response that the head decides.
func TestExpectation(t *testing.T) {
	for name, c := range map[string]struct {
		o      proxytest.MeshOptions
		path   string
		before string
		status int
		code   string
		leaves bool
	}{
		"served":   {proxytest.MeshOptions{}, "/", "[100]", 200, "", false},
		"no route": {proxytest.MeshOptions{Match: "match: {path: /served}"}, "/", "[]", 404, "no-route", false},
		"limited":  {proxytest.MeshOptions{Listener: "rate_limit: {rate: 1, burst: 1}"}, "/", "[]", 429, "rate-limited", false},
		"passed":   {proxytest.MeshOptions{Listener: "expect: forward"}, "/", "[]", 0, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Apps = 1
			if c.o.Match == "" {
				c.o.Match = "match: {path: /}"
			}
			m, streams, _ := proxytest.NewStreamMesh(t, c.o)
			got := 0
			m.Apps[0].OnRequest = func(req *protocol.Request) { got = len(req.Body) }
			client := dial(m, 0)
			if c.code == "rate-limited" {
				client.await(client.send(request("GET", "/", 0)))
			}
			a := client.announce(request("POST", c.path, 0), 5, true)
			m.W.Run(50 * time.Millisecond)
			if fmt.Sprint(a.before) != c.before || a.done != (c.status >= 400) || len(streams.Requests) != map[bool]int{true: 1}[c.leaves] {
				t.Errorf("the client got %v, and its response %t; %d streams", a.before, a.done, len(streams.Requests))
			}
			if c.leaves {
				if r := streams.Requests[0]; !r.Continue || r.Chunks {
					t.Errorf("left as %+v", r)
				}
				proxytest.CheckStreamsSettled(m, streams)
				return
			}
			if !a.done {
				client.add(a, "hello")
				client.end(a)
			}
			if client.await(a); a.Status != c.status || code(a) != c.code || c.status == 200 && got != 5 {
				t.Errorf("%d %s, %d bytes came", a.Status, code(a), got)
			}
			proxytest.CheckStreamsSettled(m, streams)
		})
	}
}

// TestInterimResponses: a client gets the interim responses of the application, and its own request id.
func TestInterimResponses(t *testing.T) {
	for _, requests := range []int{1, 2} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
		m.Apps[0].RespondWith("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		c := dial(m, 0)
		var all []*reply
		for i := range requests {
			all = append(all, c.send(request("GET", "/", 0, fmt.Sprint("x-request-id: ", i))))
		}
		c.await(all...)
		for i, a := range all {
			if id := string(protocol.Find(a.Headers, "x-request-id")); a.Status != 200 || fmt.Sprint(a.before) != "[103]" || id != fmt.Sprint(i) {
				t.Errorf("response %d: %v and %d with the id %s", i, a.before, a.Status, id)
			}
		}
		c.do(c.conn.Close)
	}
}

// TestInterimComesFirst: a client gets an interim response before the application has the response.
func TestInterimComesFirst(t *testing.T) {
	for _, requests := range []int{1, 2} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
		app := m.Apps[0].RespondWith("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n")
		c := dial(m, 0)
		var all []*reply
		for range requests {
			all = append(all, c.send(request("GET", "/", 0)))
		}
		m.RunUntil("the interim responses", func() bool {
			return !slices.ContainsFunc(all, func(a *reply) bool { return len(a.before) == 0 })
		})
		m.Apps[0].Loop.Do(func() { (*app).Conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")) })
		m.RunUntil("a response", func() bool { return slices.ContainsFunc(all, func(a *reply) bool { return string(a.body) == "ok" }) })
		c.do(c.conn.Close)
	}
}

// TestOneWrite: the responses that the requests of one read get go to the client together.
func TestOneWrite(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Match: "match: {path: /served}"})
	m.W.Options.Cut = 0
	c := dial(m, 0)
	m.W.Run(100 * time.Millisecond)
	c.pieces = 0
	var all []*reply
	c.do(func() {
		for range 10 {
			a := &reply{}
			a.stream = c.codec.Request(request("GET", "/other", 0), "http", nil)
			a.stream.Owner = a
			all = append(all, a)
		}
	})
	if c.await(all...); c.pieces != 1 {
		t.Errorf("%d responses came in %d pieces", len(all), c.pieces)
	}
	m.Settled()
}

// TestClientAddress: an application learns the address of a client of HTTP/2 as of others.
func TestClientAddress(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	var came []string
	m.Apps[0].OnRequest = func(req *protocol.Request) {
		came = append(came, string(protocol.Find(req.Headers, "x-forwarded-for")))
	}
	first := m.Get("/")
	m.Do(first)
	m.OK(first)
	c := dial(m, 0)
	c.await(c.send(request("GET", "/", 0)))
	if len(came) != 2 || came[0] == "" || came[1] != came[0] {
		t.Errorf("the application got %q", came)
	}
	m.Settled()
}

// TestLateBody: a request whose deadline has passed before its body is complete counts as unrouted, whether or not its client has waited
// for 100 Continue.
func TestLateBody(t *testing.T) {
	for _, waits := range []bool{false, true} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
		c := dial(m, 0)
		a := c.announce(request("POST", "/", 0, "x-remora-timeout-ms: 50"), 5, waits)
		m.W.Run(200 * time.Millisecond)
		c.add(a, "hello")
		c.end(a)
		c.await(a)
		stats := m.Consumer.Report().Stats
		if n := stats.Unrouted["egress"]; code(a) != "deadline" || n != 1 || stats.Errors.Of("deadline") != 1 {
			t.Errorf("waits %t: %d %s, %d without a service of %d", waits, a.Status, code(a), n, stats.Errors.Of("deadline"))
		}
		m.Settled()
	}
}

// TestMalformedStream: a response whose body is a stream, and whose head can't be sent safely, is a failure of the endpoint.
func TestMalformedStream(t *testing.T) {
	m, consumer, provider := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1})
	m.RespondOverLink(&protocol.Response{Status: 200, StreamToken: make([]byte, 16), DeclaredLength: -1, Headers: []protocol.Header{field("a b", "c")}})
	c := dial(m, 0)
	a := c.send(request("GET", "/s", 0))
	if c.await(a); a.Status != 502 || code(a) != "upstream-malformed" || len(consumer.Responses) != 0 {
		t.Errorf("%d %s, %d streams", a.Status, code(a), len(consumer.Responses))
	}
	c.do(c.conn.Close)
	proxytest.CheckStreamsSettled(m, consumer, provider)
}

// TestBatch: a response to a request of class batch leaves the connection to others that come later.
func TestBatch(t *testing.T) {
	const size = 1 << 20
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, size) }
	c := dial(m, 16<<20)
	c.await(c.send(request("GET", "/", 0)))
	m.W.Faults.PauseReading(c.conn, true)
	batch := c.send(request("GET", "/", 0, "x-remora-priority: batch"))
	m.W.Run(100 * time.Millisecond)
	other := c.send(request("GET", "/", 0))
	m.W.Run(100 * time.Millisecond)
	m.W.Faults.PauseReading(c.conn, false)
	if c.await(other); batch.done {
		t.Error("the batch was first")
	}
	c.await(batch)
	m.Settled()
}

// TestResetOfRefusal: a client that resets a request which was refused, before it reads the response, ends no other request.
func TestResetOfRefusal(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallMessages})
	m.Apps[0].Delay = func() time.Duration { return time.Second }
	c, other := dial(m, 5), dial(m, 0)
	c.deaf = true
	refused := c.announce(request("POST", "/", 0), proxytest.LongBodySize, false)
	m.RunUntil("a part of the response", func() bool { return len(refused.body) == 5 })
	a := other.send(request("GET", "/", 0))
	m.W.Run(100 * time.Millisecond)
	c.do(func() { c.codec.Reset(refused.stream, http2.Cancel) })
	if other.await(a); a.Status != 200 {
		t.Errorf("the other request: %d %s", a.Status, code(a))
	}
	c.checkIdle()
	m.Settled()
}

// TestSteadyBody: a request whose body comes bit by bit stays on the loop, and its bytes are counted as they come.
func TestSteadyBody(t *testing.T) {
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1})
	c := dial(m, 0)
	a := c.begin(request("POST", "/", 0))
	for n := range 10 {
		m.W.Run(60 * time.Millisecond)
		c.add(a, strings.Repeat("x", 10_000))
		m.W.Run(10 * time.Millisecond)
		if held := m.Consumer.Proc.Held(); held < int64(n+1)*10_000 {
			t.Errorf("%d bytes are held of %d pieces", held, n+1)
		}
	}
	c.end(a)
	if c.await(a); a.Status != 200 || len(streams.Requests) != 0 {
		t.Errorf("%d %s, %d streams", a.Status, code(a), len(streams.Requests))
	}
	proxytest.CheckStreamsSettled(m, streams)
}

// TestRefusedUpload: a client whose request is refused may send all of the body before it reads the response.
func TestRefusedUpload(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallMessages})
	c := dial(m, 5)
	c.deaf = true
	a := c.begin(request("POST", "/", 0))
	const length = 2 << 20
	for sent, tries := 0, 0; sent < length && !a.reset; tries++ {
		if tries > 200 {
			t.Fatalf("the client can send no more than %d bytes", sent)
		}
		c.do(func() { sent += c.codec.Send(a.stream, make([]byte, min(64<<10, length-sent))) })
		m.W.Run(10 * time.Millisecond)
	}
	if a.Status != 413 || a.done || a.reset {
		t.Errorf("%d %s, done %t, reset %t", a.Status, code(a), a.done, a.reset)
	}
	c.end(a)
	c.deaf = false
	c.do(func() { c.codec.Consumed(a.stream, len(a.body)) })
	if c.await(a); a.reset || len(a.body) == 5 {
		t.Errorf("reset %t, %q", a.reset, a.body)
	}
	c.checkIdle()
	m.Settled()
}

// TestTrailers: the trailers of a request reach an application, but for those that the client may not send.
func TestTrailers(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2"})
	var came string
	m.Apps[0].ServeHTTP2(func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		came = fmt.Sprint(c.Request.Trailers)
		c.H2.Respond(st, &protocol.Response{Status: 200, DeclaredLength: -1}, nil)
	})
	c := dial(m, 0)
	for _, waits := range []bool{false, true} {
		a := c.announce(request("POST", "/", 0), 5, waits)
		m.W.Run(50 * time.Millisecond) // for the 100 Continue
		c.add(a, "hel")
		c.add(a, "lo")
		c.end(a, field("x-sum", "5"), field("via", "1.1 me"), field("x-remora-class", "a"))
		if c.await(a); a.Status != 200 || came != "[x-sum: 5]" {
			t.Errorf("waits %t: status %d, the application got %s", waits, a.Status, came)
		}
	}
	m.Settled()
}

// TestMessageLimit: without streams a body of limits.message is served, and one byte more is refused by the first sidecar, in
// whatever pieces it comes.
func TestMessageLimit(t *testing.T) {
	for _, n := range []int{64 << 10, 64<<10 + 1} {
		for _, length := range []int64{int64(n), -1} {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallMessages})
			c := dial(m, 0)
			a := c.announce(request("POST", "/", 0), length, false)
			for sent := 0; sent < n && !a.done; {
				c.do(func() { sent += c.codec.Send(a.stream, bytes.Repeat([]byte{'x'}, min(10_000, n-sent))) })
				m.W.Run(time.Millisecond)
			}
			if !a.done {
				c.end(a)
			}
			c.await(a)
			status, want := 200, ""
			if n > 64<<10 {
				status, want = 413, "message-too-large"
			}
			if a.Status != status || code(a) != want {
				t.Errorf("%d bytes, length %d: %d %s, want %d %s", n, length, a.Status, code(a), status, want)
			}
			m.Settled()
		}
	}
}

// TestGrowingBody: where streams are possible, a body without a length stays a message up to limits.message, and leaves the loop with
// one byte more.
func TestGrowingBody(t *testing.T) {
	for _, n := range []int{64 << 10, 64<<10 + 1} {
		m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallMessages})
		c := dial(m, 0)
		a := c.begin(request("POST", "/", 0))
		for sent := 0; sent < n; {
			c.do(func() { sent += c.codec.Send(a.stream, bytes.Repeat([]byte{'x'}, min(10_000, n-sent))) })
			m.W.Run(time.Millisecond)
		}
		if over := n > 64<<10; len(streams.Requests) != map[bool]int{true: 1}[over] {
			t.Errorf("%d bytes: %d streams", n, len(streams.Requests))
		} else if !over {
			c.end(a)
			if c.await(a); a.Status != 200 {
				t.Errorf("%d bytes: %d %s", n, a.Status, code(a))
			}
		}
		proxytest.CheckStreamsSettled(m, streams)
	}
}

// TestMisuse: what a client does wrong is counted, and ends the connection or the stream.
func TestMisuse(t *testing.T) {
	for name, c := range map[string]struct {
		raw  []byte
		code string
		ends bool
	}{
		"a frame that is none":    {[]byte{0, 0, 1, 4, 0, 0, 0, 0, 0, 0}, "http2-error", true},
		"a flood":                 {bytes.Repeat([]byte{0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, 20_000), "http2-flood", true},
		"a window that is bad":    {[]byte{0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 0}, "http2-error", false},
		"a window that is enough": {[]byte{0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 1}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
			m.Apps[0].Delay = func() time.Duration { return time.Second }
			client := dial(m, 0)
			a := client.send(request("GET", "/", 0))
			m.W.Run(100 * time.Millisecond)
			client.do(func() { client.raw = c.raw })
			m.W.Run(500 * time.Millisecond)
			stats := m.Consumer.Report().Stats
			for _, code := range []string{"http2-error", "http2-flood"} {
				want := uint64(0)
				if code == c.code {
					want = 1
				}
				if n := stats.Errors.Of(code); uint64(n) != want {
					t.Errorf("%s is counted %d times", code, n)
				}
			}
			misuse, want := uint64(0), uint64(0)
			for _, n := range stats.HTTP2 {
				misuse += n
			}
			if c.code != "" {
				want = 1
			}
			if misuse != want || uint64(stats.Unrouted["egress"]) != want || strings.Contains(m.Consumer.LogText.String(), "HTTP/2") != (want == 1) {
				t.Errorf("%d are counted by their reason, %v by listener; logged: %s", misuse, stats.Unrouted, m.Consumer.LogText.String())
			}
			if client.ended != c.ends || client.goAway != c.ends || a.reset != (c.code != "" && !c.ends) {
				t.Errorf("the connection ended: %t, GOAWAY %t, the stream was reset: %t", client.ended, client.goAway, a.reset)
			}
			m.Settled()
		})
	}
}

// TestUntrustedClient: the requests of a client whose certificate is no longer accepted get their responses, for timeouts.drain.
// A connection without a request closes at once.
func TestUntrustedClient(t *testing.T) {
	for delay, want := range map[time.Duration]struct {
		took   time.Duration
		served bool
	}{0: {0, false}, 3 * time.Second: {3 * time.Second, true}, 10 * time.Second: {5 * time.Second, false}} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: "timeouts: {drain: 5s}"})
		m.Apps[0].Delay = func() time.Duration { return delay }
		c := dial(m, 0)
		a := &reply{}
		if delay > 0 {
			a = c.send(request("GET", "/", 0))
		}
		m.W.Run(100 * time.Millisecond)
		m.W.Faults.Distrust(c.conn)
		began := m.W.Now()
		late := c.send(request("GET", "/", 0))
		m.RunUntil("the end of the connection", func() bool { return c.ended })
		if took := (m.W.Now() - began).Round(time.Second); took != want.took || a.done != want.served || late.done {
			t.Errorf("a request of %v: ended after %v, served %t, a later one %t", delay, took, a.done, late.done)
		}
		m.Settled()
	}
}

// TestShedConnection: a connection that does not read closes at once when it must give back memory, and its requests end.
func TestShedConnection(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallBudget, Service: "timeout: 5m"})
	c := dial(m, 5)
	c.deaf = true
	unread := c.send(request("GET", "/", 0))
	m.RunUntil("a part of a response", func() bool { return len(unread.body) == 5 })
	c.begin(request("POST", "/", 0))
	m.Apps[0].Delay = func() time.Duration { return time.Hour }
	for range 100 {
		c.send(request("POST", "/", 30<<10))
		m.W.Run(time.Millisecond)
	}
	m.Consumer.Proc.Charge(proxytest.HardMark)
	other := dial(m, 0)
	other.send(request("POST", "/", 100<<10))
	m.RunUntil("the end of the connection", func() bool { return c.ended || other.ended })
	if n := m.Consumer.ShedConnections(); n == 0 {
		t.Error("no connection is counted")
	}
	if n := m.Consumer.Proc.Pending(); n > 1 || !c.ended {
		t.Errorf("%d requests are pending, the connection ended: %t", n, c.ended)
	}
	m.Consumer.Proc.Charge(-proxytest.HardMark)
	for _, c := range []*client{c, other} {
		if !c.ended {
			c.do(c.conn.Close)
		}
	}
	m.W.Run(time.Second)
	if n := m.Consumer.Report().Stats.Connections; n != 0 {
		t.Errorf("%d connections are counted", n)
	}
}

// TestAllocations: in the steady state the requests of a connection allocate nothing, whether they come alone or not. Responses of one
// turn go to the client together.
func TestAllocations(t *testing.T) {
	head := func(block string) []byte {
		return proxytest.Frame(proxytest.FrameHeaders, proxytest.FlagEnd|proxytest.FlagEndHeaders, block)
	}
	get := proxytest.Frames{First: head("\x82\x86\x84\x41\x07compute"), Later: head("\x82\x86\x84\xbe")}
	for _, streams := range []int{1, 2, 8} {
		m := proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: 1, Clients: 1, Response: proxytest.ShapeResponseHead + proxytest.ShapeBody})
		m.Greet()
		m.Clients[0].Writes = 0
		c, next, in := m.Clients[0], uint32(1), []byte(nil)
		m.CheckAllocs(0, func() {
			in = in[:0]
			for range streams {
				in = get.Append(in, next)
				next += 2
			}
			c.Deliver(in)
			m.Net.Pump()
			if len(c.Out) < streams*len(proxytest.ShapeBody) || c.Writes != 1 {
				t.Fatalf("received %q in %d writes", c.Out, c.Writes)
			}
			c.Out, c.Writes = c.Out[:0], 0
		})
	}
}
