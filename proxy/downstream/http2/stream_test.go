package http2_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// field is a header or trailer.
func field(name, value string) protocol.Header {
	return protocol.Header{Name: []byte(name), Value: []byte(value)}
}

// TestStreamOfRequest: which requests leave the loop, how the goroutine gets them, and the client its response.
func TestStreamOfRequest(t *testing.T) {
	const long = proxytest.LongBodySize
	for name, c := range map[string]struct {
		method  string
		headers []string
		length  int64
		body    string   // sent after the head
		trailer bool     // x-sum follows the body, and ends the request
		ends    bool     // the request ends without trailers
		head    []string // lines of the head that the goroutine gets
		text    string   // of the body that it gets; it is as long as the client has sent
	}{
		"long":         {"POST", nil, long, "hello", false, false, []string{"Content-Length: 100000"}, "hello"},
		"pauses":       {"POST", nil, -1, "hello", true, false, []string{"Transfer-Encoding: chunked"}, "0\r\nx-sum: 5\r\n\r\n"},
		"no trailers":  {"POST", nil, -1, "hello", false, true, []string{"Transfer-Encoding: chunked"}, "0\r\n\r\n"},
		"length known": {"PUT", nil, 5, "", false, false, []string{"Content-Length: 5"}, ""},
		"trailers":     {"POST", []string{"trailer: x-sum"}, 5, "hello", true, false, []string{"Transfer-Encoding: chunked", "trailer: x-sum"}, "0\r\nx-sum: 5\r\n\r\n"},
		"nothing":      {"POST", nil, 0, "", false, true, []string{"Content-Length: 0"}, ""},
		"HEAD":         {"HEAD", nil, long, "hello", false, false, []string{"Content-Length: 100000"}, "hello"},
	} {
		t.Run(name, func(t *testing.T) {
			m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallMessages})
			client := dial(m, 0)
			a := client.announce(request(c.method, "/up", 0, append(c.headers, "x-request-id: id")...), c.length, false)
			client.add(a, c.body)
			m.RunUntil("a stream", func() bool { return len(streams.Requests) == 1 })
			m.W.Run(10 * time.Millisecond)
			r, socket := streams.Requests[0], streams.Sockets[0]
			if r.Kind != stats.StreamBody || r.ToHead != (c.method == "HEAD") || r.Minor != 1 || r.Continue || string(r.RequestID) != "id" ||
				r.Chunks != (len(c.head) > 1 || c.length < 0) || !strings.HasPrefix(string(r.Head), c.method+" /up HTTP/1.1\r\n") {
				t.Errorf("left as %+v", r)
			}
			for _, line := range c.head {
				if !strings.Contains(string(r.Head), line+"\r\n") {
					t.Errorf("no %s in %q", line, r.Head)
				}
			}
			if n := m.Consumer.Report().Stats.Handoffs[stats.Handoff(stats.StreamBody)]; n != 1 {
				t.Errorf("%d handoffs", n)
			}
			if c.trailer {
				client.end(a, field("x-sum", "5"))
			}
			if c.ends {
				client.end(a)
			}
			m.W.Run(10 * time.Millisecond)
			onLoop := m.Consumer.Loop.Do
			var got string
			onLoop(func() {
				arrived := proxytest.ReadArrived(t, socket)
				got = string(r.Buffer.B) + string(arrived)
				if body := string(proxytest.WholeBody(t, r, arrived)); body != c.body {
					t.Errorf("the goroutine decodes %q", body)
				}
			})
			if !strings.HasPrefix(got, c.body) || !strings.HasSuffix(got, c.text) {
				t.Errorf("the goroutine got %q", got)
			}
			onLoop(func() {
				_, _ = socket.Write([]byte("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n"))
				if c.method != "HEAD" {
					_, _ = socket.Write([]byte("3\r\nabc\r\n0\r\nx-end: 1\r\n\r\n"))
				}
			})
			client.await(a)
			body, behind := "abc", "x-end: 1"
			if c.method == "HEAD" {
				body, behind = "", ""
			}
			if a.Status != 201 || string(a.body) != body || a.behind != behind || fmt.Sprint(a.before) != "[103]" {
				t.Errorf("the client got %v and %d, %q, %q", a.before, a.Status, a.body, a.behind)
			}
			proxytest.CheckStreamsSettled(m, streams)
			client.checkIdle()
		})
	}
}

// TestLongGRPCMessage: a gRPC request whose first message is too long for a message, by its prefix, leaves the loop with its
// first bytes. A shorter request, and other types, wait for the rest, which may come soon.
func TestLongGRPCMessage(t *testing.T) {
	const fits = 64<<10 - 5 // in SmallMessages, with the prefix
	for _, c := range []struct {
		media  string
		length int // of the message
		leaves bool
	}{{"application/grpc", fits + 1, true}, {"application/grpc", fits, false}, {"application/grpc-web", fits + 1, false}} {
		m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallMessages})
		client := dial(m, 0)
		a := client.announce(request("POST", "/", 0, "content-type: "+c.media), -1, false)
		client.add(a, string(binary.BigEndian.AppendUint32([]byte{0}, uint32(c.length)))+"first bytes")
		m.W.Run(race.GRPCStreamAfter - time.Millisecond)
		if leaves := len(streams.Requests) == 1; leaves != c.leaves {
			t.Errorf("%+v: the request has left the loop: %t", c, leaves)
		}
		proxytest.CheckStreamsSettled(m, streams)
	}
}

// TestStreamWindow: a client sends no more of a long body than the goroutine has room for, and more once it has read.
func TestStreamWindow(t *testing.T) {
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallMessages})
	client := dial(m, 0)
	const length = 3 << 20
	a := client.announce(request("POST", "/", 0), length, false)
	m.RunUntil("a stream", func() bool { return len(streams.Requests) == 1 })
	sent, read := 0, 0
	more := func() {
		client.do(func() {
			for n := 1; n > 0 && sent < length; sent += n {
				n = client.codec.Send(a.stream, make([]byte, min(64<<10, length-sent)))
			}
		})
		m.W.Run(10 * time.Millisecond)
	}
	for range 5 {
		more()
	}
	if sent == 0 || sent > 1<<20 {
		t.Errorf("%d bytes were sent to a goroutine that reads nothing", sent)
	}
	for range 200 {
		more()
		m.Consumer.Loop.Do(func() { read += len(proxytest.ReadArrived(t, streams.Sockets[0])) })
	}
	if sent != length || read != length {
		t.Errorf("%d bytes were sent, %d read", sent, read)
	}
	client.do(func() { client.conn.Close() })
	proxytest.CheckStreamsSettled(m, streams)
}

// TestStreamEnds: what ends a stream ends it for both sides.
func TestStreamEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(client *client, a *reply, socket func(says string, reset bool))
		reset bool // the client gets one
		left  bool // the client has
	}{
		"the client resets it": {func(c *client, a *reply, _ func(string, bool)) {
			c.do(func() { c.codec.Reset(a.stream, http2.Cancel) })
		}, false, false},
		"the client leaves":       {func(c *client, _ *reply, _ func(string, bool)) { c.do(c.conn.Close) }, false, true},
		"the goroutine resets it": {func(_ *client, _ *reply, s func(string, bool)) { s("", true) }, true, false},
		"the response breaks": {func(_ *client, _ *reply, s func(string, bool)) {
			s("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", true)
		}, true, false},
		"the response is no HTTP": {func(_ *client, _ *reply, s func(string, bool)) { s("hello", false) }, true, false},
		"the response comes earlier": {func(_ *client, _ *reply, s func(string, bool)) {
			s("HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n", false)
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallMessages})
			client := dial(m, 0)
			a := client.announce(request("POST", "/", 0), proxytest.LongBodySize, false)
			m.RunUntil("a stream", func() bool { return len(streams.Requests) == 1 })
			c.end(client, a, func(says string, reset bool) {
				m.Consumer.Loop.Do(func() {
					_, _ = streams.Sockets[0].Write([]byte(says))
					if reset {
						streams.Sockets[0].(proxytest.PipeSocket).Reset()
					}
				})
			})
			m.W.Run(100 * time.Millisecond)
			if (a.reset && a.code == http2.InternalError) != c.reset {
				t.Errorf("reset %t with %d, status %d", a.reset, a.code, a.Status)
			}
			if pipe := streams.Pipes[0]; pipe.Closed == nil && (c.reset || !pipe.Ended) {
				t.Error("the goroutine does not learn of the end")
			}
			proxytest.CheckStreamsSettled(m, streams)
			if !c.left {
				client.checkIdle()
			}
		})
	}
}

// TestAnswerIsStream: a response whose body is a stream gets its head and its body from the goroutine.
func TestAnswerIsStream(t *testing.T) {
	const edits = "response_headers: {set: {x-back: '{path} {request_id}'}}"
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallMessages, Match: "match: {path: /}, " + edits})
	m.Apps[0].RespondWith(proxytest.StreamResponses[1].Says)
	c := dial(m, 0)
	a := c.send(request("GET", "/s", 0, "x-request-id: id"))
	m.RunUntil("a stream", func() bool { return len(streams.Responses) == 1 })
	head := string(streams.Responses[0].Head)
	for _, line := range []string{"x-back: /s id", "X-Request-Id: id", "Transfer-Encoding: chunked"} {
		if !strings.Contains(head, line+"\r\n") {
			t.Errorf("no %s in %q", line, head)
		}
	}
	if n := m.Consumer.Report().Stats.Handoffs[stats.HandoffAnswer]; n != 1 || !streams.Responses[0].Chunks {
		t.Errorf("%d handoffs, chunks %t", n, streams.Responses[0].Chunks)
	}
	m.Consumer.Loop.Do(func() { _, _ = streams.Sockets[0].Write([]byte(head + "5\r\nfirst\r\n")) })
	m.RunUntil("the first bytes", func() bool { return len(a.body) == 5 })
	m.Consumer.Loop.Do(func() { _, _ = streams.Sockets[0].Write([]byte("4\r\nlast\r\n0\r\n\r\n")) })
	if c.await(a); a.Status != 200 || string(a.body) != "firstlast" || string(protocol.Find(a.Headers, "x-back")) != "/s id" {
		t.Errorf("%d %q %s", a.Status, a.body, a.Headers)
	}
	proxytest.CheckStreamsSettled(m, streams)
}

// TestHeadOfStream: the head of a response that a goroutine writes may be longer than limits.header by what a sidecar adds, and have as
// many more fields. One that is much longer does not reach the client.
func TestHeadOfStream(t *testing.T) {
	for _, c := range []struct {
		fields, size int
		passes       bool
	}{{1, 4 << 10, true}, {1, 7 << 10, true}, {1, 9 << 10, false}, {40, 10, true}, {60, 10, true}, {80, 10, false}} {
		m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: "limits: {header: 4KiB, headers: 40}"})
		client := dial(m, 0)
		a := client.begin(request("POST", "/", 0))
		m.RunUntil("a stream", func() bool { return len(streams.Sockets) == 1 })
		fields := strings.Repeat("a: "+strings.Repeat("x", c.size)+"\r\n", c.fields)
		m.Consumer.Loop.Do(func() {
			_, _ = streams.Sockets[0].Write([]byte("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n" + fields + "\r\n"))
		})
		if client.await(a); (a.Status == 200) != c.passes || len(a.Headers) < c.fields && c.passes {
			t.Errorf("%d fields of %d bytes: status %d with %d fields", c.fields, c.size, a.Status, len(a.Headers))
		}
		proxytest.CheckStreamsSettled(m, streams)
	}
}

// TestStreamRefused: a request that is too long for a message, or pauses, and that may not leave the loop gets its response at once.
func TestStreamRefused(t *testing.T) {
	const long = proxytest.LongBodySize
	for name, c := range map[string]struct {
		o      proxytest.MeshOptions
		header string
		held   int // bytes, by others
		length int64
		status int
		code   string
	}{
		"no route":    {proxytest.MeshOptions{Match: "match: {path: /served}"}, "a: b", 0, long, 404, "no-route"},
		"no memory":   {proxytest.MeshOptions{}, "a: b", 1 << 30, long, 503, "overloaded"},
		"no time":     {proxytest.MeshOptions{}, "x-remora-timeout-ms: 0", 0, long, 504, "deadline"},
		"time passes": {proxytest.MeshOptions{}, "x-remora-timeout-ms: 50", 0, 5, 504, "deadline"}, // it pauses for longer
		"loops":       {proxytest.MeshOptions{}, "cdn-loop: " + strings.Repeat("remora,", 9), 0, long, 508, "loop-detected"},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Apps, c.o.Limits = 1, proxytest.SmallMessages
			m, streams, _ := proxytest.NewStreamMesh(t, c.o)
			client := dial(m, 0)
			m.Consumer.Proc.Charge(c.held)
			a := client.announce(request("POST", "/", 0, c.header), c.length, c.length < long) // a short one waits with its body
			client.await(a)
			if n := m.Consumer.Report().Stats.Errors.Of(c.code); a.Status != c.status || code(a) != c.code || len(streams.Requests) != 0 || n != 1 {
				t.Errorf("%d %s, counted %d times, %d streams", a.Status, code(a), n, len(streams.Requests))
			}
			m.Consumer.Proc.Charge(-c.held)
			proxytest.CheckStreamsSettled(m, streams)
		})
	}
}

// TestSlowReaderOfStream: a client that reads slowly stops the goroutine that has its response, and gets all of that in the end.
func TestSlowReaderOfStream(t *testing.T) {
	const length = 1 << 20
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1})
	c := dial(m, 1000)
	c.deaf = true
	a := c.begin(request("POST", "/", 0))
	m.RunUntil("a stream", func() bool { return len(streams.Sockets) == 1 })
	onLoop, s := m.Consumer.Loop.Do, streams.Sockets[0]
	onLoop(func() { _, _ = fmt.Fprintf(s, "HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n", length) })
	m.W.Run(time.Second)
	onLoop(func() {
		_, _ = s.Write(bytes.Repeat([]byte("y"), length))
		_ = s.Close()
	})
	m.W.Run(time.Second)
	if left := len(streams.Pipes[0].Out); left < length/2 || len(a.body) != 1000 {
		t.Errorf("the loop has left %d of %d bytes, the client has %d", left, length, len(a.body))
	}
	c.deaf = false
	c.do(func() { c.codec.Consumed(a.stream, 1000) })
	if c.await(a); !a.done || len(a.body) != length {
		t.Errorf("done %t, %d bytes", a.done, len(a.body))
	}
	proxytest.CheckStreamsSettled(m, streams)
}

// TestUnreadEndOfStream: a streamed response whose last bytes the client does not let through for timeouts.write is reset.
func TestUnreadEndOfStream(t *testing.T) {
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: short})
	c := dial(m, 1000)
	c.deaf = true
	a := c.begin(request("POST", "/", 0))
	m.RunUntil("a stream", func() bool { return len(streams.Sockets) == 1 })
	onLoop, s := m.Consumer.Loop.Do, streams.Sockets[0]
	onLoop(func() { _, _ = s.Write([]byte("HTTP/1.1 200 OK\r\ncontent-length: 3000\r\n\r\n")) })
	onLoop(func() { _, _ = s.Write(make([]byte, 2000)) })
	m.W.Run(10 * time.Second) // the goroutine may take its time
	if a.reset || len(a.body) != 1000 {
		t.Errorf("reset %t before the end, %d bytes", a.reset, len(a.body))
	}
	began := m.W.Now()
	onLoop(func() {
		_, _ = s.Write(make([]byte, 1000))
		_ = s.Close()
	})
	m.RunUntil("a reset", func() bool { return a.reset })
	if took := m.W.Now() - began; a.code != http2.Cancel || took < 4*time.Second || took > 8500*time.Millisecond {
		t.Errorf("reset with %d after %v", a.code, took)
	}
	if n := m.Consumer.WriteTimeouts(); n != 1 {
		t.Errorf("%d timeouts counted", n)
	}
	proxytest.CheckStreamsSettled(m, streams)
	c.checkIdle()
}
