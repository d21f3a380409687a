package http2_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// messages matches no tunnel, which HTTP/2 has not.
const messages = "match: {method: [GET, HEAD, POST]}"

// TestEarlyLongResponse checks that a response which is too long for a message, and arrives while the
// endpoint has not read the request, goes on when it has.
func TestEarlyLongResponse(t *testing.T) {
	m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages})
	a := startApps(m)[0]
	a.stop()
	size := int(m.Consumer.Cfg.Limits.Message) + 1<<20
	withheld, left := true, size
	var server *proxytest.HTTP2Conn
	var stream *http2.Stream
	m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver {
		server = proxytest.NewHTTP2Conn(0, func(*proxytest.HTTP2Conn, *http2.Stream) {})
		server.Withhold = &withheld
		server.OnHead = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			stream = st
			c.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: int64(size)})
		}
		return server
	})
	send := func() {
		a.of.Loop.Do(func() {
			if stream != nil && stream.ID() != 0 && left > 0 {
				if left -= server.H2.Send(stream, make([]byte, left)); left == 0 {
					server.H2.Finish(stream, nil)
				}
				server.Flush()
			}
		})
		m.W.Run(20 * time.Millisecond)
	}
	m.Do(m.Post(100 << 10))
	for range 50 {
		send()
	}
	if left > size-200<<10 {
		t.Fatalf("%d bytes were sent before the request was read", size-left)
	}
	a.of.Loop.Do(func() {
		withheld = false
		server.H2.Consumed(stream, 60<<10)
		server.Flush()
	})
	got := 0
	for i := 0; i < 200 && got < size; i++ {
		send()
		for _, r := range consumer.Responses {
			n, _ := r.Source.Socket.Read(make([]byte, 256<<10))
			got += n
			if r.Source.Buffer != nil {
				got += len(r.Source.Buffer.B)
				r.Source.Buffer.B = nil
			}
		}
	}
	if got != size {
		t.Errorf("%d bytes of %d arrived, %d were not sent", got, size, left)
	}
	proxytest.CheckStreamsSettled(m, consumer)
}

// TestLateEnd checks that a response without a body whose end comes behind its HEADERS is whole: to a HEAD, whatever length
// the body of a GET would have, or of length 0.
func TestLateEnd(t *testing.T) {
	m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages})
	a := startApps(m)[0]
	for _, r := range []struct {
		method string
		length int64
	}{{"HEAD", -1}, {"HEAD", 10}, {"HEAD", 1 << 30}, {"GET", 0}} {
		a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			nonce := protocol.Find(c.Request.Headers, "x-nonce")
			c.H2.ResponseHead(st, &protocol.Response{
				Status: 200, DeclaredLength: r.length, Headers: []protocol.Header{{Name: []byte("x-nonce"), Value: nonce}},
			})
			end := &loop.Timer{}
			end.Fire = func() {
				if st.ID() != 0 {
					c.H2.Finish(st, nil)
					c.Flush()
				}
			}
			a.of.Loop.After(200*time.Millisecond, end)
		}
		c := m.Get("/")
		c.IsHead, c.Raw = r.method == "HEAD", append([]byte(r.method), c.Raw[len("GET"):]...)
		m.Do(c)
		m.Finish(c)
		if m.OK(c); len(consumer.Responses) > 0 {
			t.Errorf("%s, length %d: the response became a stream", r.method, r.length)
		}
	}
	proxytest.CheckStreamsSettled(m, consumer)
}

// TestEarlyWholeResponse checks that a response which is too long for a message, and complete before
// its request is sent, arrives, although the endpoint wants no more of the request.
func TestEarlyWholeResponse(t *testing.T) {
	m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages, Limits: "limits: {message: 128KiB}"})
	a := startApps(m)[0]
	a.stop()
	withheld, body := true, make([]byte, 200<<10)
	m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver {
		c := proxytest.NewHTTP2Conn(0, func(*proxytest.HTTP2Conn, *http2.Stream) {})
		c.Withhold = &withheld
		c.OnHead = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			respond := &loop.Timer{}
			respond.Fire = func() {
				c.H2.Respond(st, &protocol.Response{Status: 200, DeclaredLength: -1, Body: body}, nil)
				c.Flush()
				c.H2.Reset(st, http2.NoError)
				c.Flush()
			}
			a.of.Loop.After(time.Millisecond, respond)
		}
		return c
	})
	call := m.Post(100 << 10)
	m.Do(call)
	m.W.Run(time.Second)
	if call.Done || len(consumer.Responses) != 1 {
		t.Fatalf("%d streams, status %d %s", len(consumer.Responses), call.Status, call.Code)
	}
	src := consumer.Responses[0].Source
	got, err := len(src.Buffer.B), error(nil)
	for err == nil {
		var n int
		n, err = src.Socket.Read(make([]byte, 64<<10))
		got += n
	}
	if got != len(body) || err != io.EOF {
		t.Errorf("%d bytes have arrived of %d, and %v", got, len(body), err)
	}
	proxytest.CheckStreamsSettled(m, consumer)
}

// TestSlowConversation checks that the response to a gRPC call which becomes a stream needs no pace: its
// reader may be slow.
func TestSlowConversation(t *testing.T) {
	for _, media := range []string{"application/grpc", "text/event-stream"} {
		m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages})
		startApps(m)[0].onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			c.H2.ResponseHead(st, &protocol.Response{
				Status: 200, DeclaredLength: -1, Headers: []protocol.Header{{Name: protocol.NameContentType, Value: []byte(media)}},
			})
			c.H2.Send(st, []byte("first"))
		}
		m.Do(m.Post(10))
		m.RunUntil("a stream", func() bool { return len(consumer.Responses) == 1 })
		if talk := consumer.Responses[0].Source.Interactive; talk != (media == "application/grpc") {
			t.Errorf("%s: interactive %t", media, talk)
		}
		proxytest.CheckStreamsSettled(m, consumer)
	}
}

// TestConversionOfLongBody checks that an endpoint which reads the rest of a request only once a part of its response
// was taken gets all of the request, if the response is too long for a message.
func TestConversionOfLongBody(t *testing.T) {
	const in, out, piece = 3 << 20, 10 << 20, 40 << 10 // the response is 10/3 of the request
	m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages})
	a := startApps(m)[0]
	a.stop()
	withheld, left, whole := true, out, false
	m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver {
		c := proxytest.NewHTTP2Conn(0, func(*proxytest.HTTP2Conn, *http2.Stream) { whole = true })
		c.Withhold = &withheld
		c.OnHead = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			c.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: out})
			write := &loop.Timer{}
			write.Fire = func() {
				if st.ID() == 0 || c.Ended {
					return
				}
				if st.Unsent() == 0 {
					n := c.H2.Send(st, make([]byte, min(piece, left)))
					if left -= n; left == 0 {
						c.H2.Finish(st, nil)
					}
					c.H2.Consumed(st, n*in/out)
					c.Flush()
				}
				a.of.Loop.After(time.Millisecond, write)
			}
			a.of.Loop.After(time.Millisecond, write)
		}
		return c
	})
	m.Do(m.Post(in))
	got, began := 0, m.W.Now()
	for got < out && m.W.Now()-began < time.Second {
		m.W.Run(time.Millisecond)
		for _, r := range consumer.Responses {
			n, _ := r.Source.Socket.Read(make([]byte, 256<<10))
			got += n
			if r.Source.Buffer != nil {
				got += len(r.Source.Buffer.B)
				r.Source.Buffer.B = nil
			}
		}
	}
	if got != out || !whole {
		t.Errorf("%d bytes of %d arrived, %d were not sent; all of the request %t", got, out, left, whole)
	}
	proxytest.CheckStreamsSettled(m, consumer)
}

// TestRestOfRequestCounts: what is unsent of a request whose response becomes a stream counts in limits.buffered, also
// while the endpoint sends nothing.
func TestRestOfRequestCounts(t *testing.T) {
	const in = 1 << 20 // more than the windows of the endpoint
	m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages})
	a := startApps(m)[0]
	a.stop()
	withheld := true
	m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver {
		c := proxytest.NewHTTP2Conn(0, func(*proxytest.HTTP2Conn, *http2.Stream) {})
		c.Withhold = &withheld
		c.OnHead = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			c.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: -1})
			c.H2.Send(st, []byte("first"))
		}
		return c
	})
	m.Do(m.Post(in))
	m.RunUntil("a stream", func() bool { return len(consumer.Responses) == 1 })
	if n := m.Consumer.Proc.Buffered(); n < in/2 {
		t.Errorf("%d bytes count of a request with %d", n, in)
	}
	proxytest.CheckStreamsSettled(m, consumer)
}

// TestLongWholeResponse: a response that is too long for a message is a whole stream, whether its last byte has told so, or its length,
// or a part of it. Trailers may follow, although the endpoint tells a length.
func TestLongWholeResponse(t *testing.T) {
	const size = 64<<10 + 1
	for _, c := range []struct {
		length int64 // as declared
		more   int   // bytes that come later
		before []protocol.Header
		behind []protocol.Header // trailers
	}{
		{length: -1},
		{length: size},
		{length: -1, more: 10_000},
		{length: size, before: header("trailer", "a"), behind: header("a", "b")},
	} {
		m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages, Limits: proxytest.SmallMessages})
		a := startApps(m)[0]
		a.onCall = func(server *proxytest.HTTP2Conn, st *http2.Stream) {
			server.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: c.length, Headers: c.before})
			server.H2.Send(st, make([]byte, size))
			end := func() {
				server.H2.Send(st, make([]byte, c.more))
				server.H2.Finish(st, c.behind)
				server.Flush()
			}
			if c.more == 0 {
				end()
				return
			}
			a.of.Loop.After(10*time.Millisecond, &loop.Timer{Fire: end})
		}
		m.Do(m.Get("/"))
		m.RunUntil("a stream", func() bool { return len(consumer.Responses) == 1 })
		m.W.Run(100 * time.Millisecond)
		src := consumer.Responses[0].Source
		rest, err := io.ReadAll(src.Socket)
		if err != nil {
			t.Error(err)
		}
		_, done, err := src.Body.Decode(rest, src.Buffer)
		if src.Body.Length() != size+c.more || !done || err != nil {
			t.Errorf("%+v: %d bytes have arrived of %d, all of it: %t, %v", c, src.Body.Length(), size+c.more, done, err)
		}
		if got := src.Body.Trailers(src.Buffer, nil); fmt.Sprintf("%s", got) != fmt.Sprintf("%s", c.behind) {
			t.Errorf("%+v: trailers %s", c, got)
		}
		if len(a.conns[0].Resets) != 0 {
			t.Errorf("%+v: the application got resets %v", c, a.conns[0].Resets)
		}
		proxytest.CheckStreamsSettled(m, consumer)
	}
}

// TestTrickle: a response of unknown length becomes a stream a tenth of a second after its head, although its body goes on to come. That
// to a gRPC call does so after 5 ms.
func TestTrickle(t *testing.T) {
	const ms = time.Millisecond
	for media, after := range map[string]time.Duration{"text/plain": 100 * ms, "application/grpc": 5 * ms} {
		m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages})
		a := startApps(m)[0]
		a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			c.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: -1, Headers: []protocol.Header{field("content-type", media)}})
			more := &loop.Timer{}
			more.Fire = func() {
				if st.ID() != 0 && !c.Ended {
					c.H2.Send(st, []byte("more"))
					c.Flush()
					a.of.Loop.After(30*ms, more)
				}
			}
			more.Fire()
		}
		m.Do(m.Get("/"))
		if m.W.Run(after * 19 / 20); len(consumer.Responses) != 0 {
			t.Errorf("%s: it is a stream before its time", media)
		}
		if m.W.Run(15 * ms); len(consumer.Responses) != 1 {
			t.Errorf("%s: it is no stream", media)
		}
		proxytest.CheckStreamsSettled(m, consumer)
	}
}

// TestHeadOfStream: the head of a response that becomes a stream is that of any response: it loses what only a sidecar may say, and gets a
// Date.
func TestHeadOfStream(t *testing.T) {
	m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages, Limits: proxytest.SmallMessages})
	startApps(m)[0].onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		c.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: 64<<10 + 1, Headers: header("x-remora-error", "overloaded")})
	}
	m.Do(m.Get("/"))
	m.RunUntil("a stream", func() bool { return len(consumer.Responses) == 1 })
	head := consumer.Responses[0].Head
	resp, _, _ := proxytest.DecodeHead(t, head)
	if protocol.Find(resp.Headers, "date") == nil || protocol.Find(resp.Headers, "x-remora-error") != nil {
		t.Errorf("the head is %q", head)
	}
	proxytest.CheckStreamsSettled(m, consumer)
}

// TestFeedWithoutEvent: the head of a feed is passed on at once, whether or not there is an event.
func TestFeedWithoutEvent(t *testing.T) {
	m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages})
	startApps(m)[0].onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		c.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: -1, Headers: []protocol.Header{field("content-type", "text/event-stream")}})
	}
	m.Do(m.Get("/"))
	if m.W.Run(10 * time.Millisecond); len(consumer.Responses) != 1 {
		t.Errorf("%d streams", len(consumer.Responses))
	}
	proxytest.CheckStreamsSettled(m, consumer)
}
