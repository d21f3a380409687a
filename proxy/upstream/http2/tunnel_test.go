package http2_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/sim"
)

// newTunnels returns a mesh with an application that speaks HTTP/2, for tunnels.
func newTunnels(t *testing.T, service string) (*proxytest.Mesh, *proxytest.Carrier, *app) {
	t.Helper()
	m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages, Service: service})
	return m, consumer, startApps(m)[0]
}

// tunnel is a stream to an application. The test reads and writes at the end of a goroutine.
type tunnel struct {
	m      *proxytest.Mesh
	opened proxytest.Opened
	pipe   *proxytest.Pipe
}

// openTunnel opens a stream to compute.
func openTunnel(m *proxytest.Mesh, c *proxytest.Carrier) *tunnel {
	opened := m.Consumer.Open()
	s := &tunnel{m, opened, c.Pipes[len(c.Pipes)-1]}
	m.W.Run(20 * time.Millisecond)
	return s
}

// write writes text, and lets the application do what follows.
func (s *tunnel) write(text string) {
	_, _ = s.opened.Target.Socket.Write([]byte(text))
	s.m.W.Run(20 * time.Millisecond)
}

// read returns what has arrived. err is nil if more may follow.
func (s *tunnel) read() (text string, err error) {
	b := make([]byte, 64<<10)
	for {
		n, err := s.opened.Target.Socket.Read(b)
		text += string(b[:n])
		switch {
		case errors.Is(err, sim.ErrWouldBlock):
			return text, nil
		case err != nil:
			return text, err
		}
	}
}

// end is what a carrier does at the end of a stream.
func (s *tunnel) end() {
	_ = s.opened.Target.Socket.Close()
	s.opened.Stream.Close(false, 0, 0)
	s.m.W.Run(20 * time.Millisecond)
}

// chunk is text as a chunk.
func chunk(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }

const (
	lastChunk   = "0\r\n\r\n"
	chunkedHead = " / HTTP/1.1\r\nHost: compute\r\nTransfer-Encoding: chunked\r\n"
	startsPOST  = "POST" + chunkedHead + "\r\n"
)

// TestConversation: messages of a gRPC call go both ways as they come, and so do trailers. A second call takes the same
// connection.
func TestConversation(t *testing.T) {
	m, c, a := newTunnels(t, "")
	var server *proxytest.HTTP2Conn
	var st *http2.Stream
	a.onHead = func(c *proxytest.HTTP2Conn, of *http2.Stream) { server, st = c, of }
	whole := false
	a.onCall = func(*proxytest.HTTP2Conn, *http2.Stream) { whole = true }
	says := func(what func()) {
		a.of.Loop.Do(func() { what(); server.Flush() })
		m.W.Run(20 * time.Millisecond)
	}
	for range 2 {
		whole = false
		s := openTunnel(m, c)
		if !s.pipe.Opened {
			t.Fatal("the pipe is not open")
		}
		s.write("POST" + chunkedHead + "Content-Type: application/grpc\r\n\r\n" + chunk("hello"))
		if string(server.Body) != "hello" || whole {
			t.Errorf("the application got %q, all of it: %t", server.Body, whole)
		}
		says(func() {
			server.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: -1})
			server.H2.Send(st, []byte("wor"))
		})
		says(func() { server.H2.Send(st, []byte("ld")) })
		if text, err := s.read(); !strings.HasPrefix(text, "HTTP/1.1 200 OK\r\n") || !strings.HasSuffix(text, "\r\n\r\n"+chunk("wor")+chunk("ld")) || err != nil {
			t.Errorf("arrived has %q, %v", text, err)
		}
		s.write(chunk("again") + "0\r\na: b\r\n\r\n")
		if string(server.Body) != "helloagain" || !whole || fmt.Sprint(server.Request.Trailers) != "[a: b]" {
			t.Errorf("the application got %q, trailers %s, all of it: %t", server.Body, server.Request.Trailers, whole)
		}
		says(func() {
			server.H2.Finish(st, []protocol.Header{{Name: []byte("grpc-status"), Value: []byte("0")}})
		})
		if text, err := s.read(); text != "0\r\ngrpc-status: 0\r\n\r\n" || err != io.EOF {
			t.Errorf("arrived has %q at the end, %v", text, err)
		}
		if len(server.Resets) != 0 {
			t.Errorf("the application got resets %v", server.Resets)
		}
		s.end()
	}
	if len(a.conns) != 1 {
		t.Errorf("%d connections", len(a.conns))
	}
	proxytest.CheckStreamsSettled(m, c)
}

// header is a list of one header.
func header(name, value string) []protocol.Header {
	return []protocol.Header{{Name: []byte(name), Value: []byte(value)}}
}

// TestTunnelResponses: the response to a tunnel's request arrives as HTTP/1.1. Its length is kept, unless trailers may follow.
func TestTunnelResponses(t *testing.T) {
	const post, head = startsPOST + lastChunk, "HEAD / HTTP/1.1\r\nHost: compute\r\n\r\n"
	for _, c := range []struct {
		name, request string
		res           protocol.Response
		body          string // "" means that the head is all
		want          string
	}{
		{"head alone", post, protocol.Response{Status: 200, DeclaredLength: -1}, "", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"},
		{"no content", post, protocol.Response{Status: 204, DeclaredLength: -1}, "", "HTTP/1.1 204 No Content\r\n"},
		{"to HEAD", head, protocol.Response{Status: 200, DeclaredLength: 7}, "", "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n"},
		{"length", post, protocol.Response{Status: 200, DeclaredLength: 5}, "hello", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n|hello"},
		{"no length", post, protocol.Response{Status: 200, DeclaredLength: -1}, "hello", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n|" + chunk("hello") + lastChunk},
		{"length of gRPC", post, protocol.Response{Status: 200, DeclaredLength: 5, Headers: header("content-type", "application/grpc")}, "hello",
			"HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\nTransfer-Encoding: chunked\r\n|" + chunk("hello") + lastChunk},
		{"length and trailers", post, protocol.Response{Status: 200, DeclaredLength: 5, Headers: header("trailer", "a")}, "hello",
			"HTTP/1.1 200 OK\r\ntrailer: a\r\nTransfer-Encoding: chunked\r\n|" + chunk("hello") + lastChunk},
	} {
		m, carrier, a := newTunnels(t, "")
		a.onCall = func(server *proxytest.HTTP2Conn, st *http2.Stream) {
			if c.body == "" {
				server.H2.Respond(st, &c.res, nil)
				return
			}
			server.H2.ResponseHead(st, &c.res)
			server.H2.Send(st, []byte(c.body))
			server.H2.Finish(st, nil)
		}
		s := openTunnel(m, carrier)
		s.write(c.request)
		text, err := s.read()
		got, body, _ := strings.Cut(text, "\r\n\r\n")
		if got = strings.Replace(got+"\r\n", "Connection: close\r\n", "", 1); body != "" {
			got += "|" + body
		}
		if got != c.want || err != io.EOF {
			t.Errorf("%s: arrived has %q, %v, want\n%q", c.name, got, err, c.want)
		}
		s.end()
		proxytest.CheckStreamsSettled(m, carrier)
	}
}

// TestTunnelInterim: interim responses are passed on, but not without a bound. One that lets the body of the request follow
// always is.
func TestTunnelInterim(t *testing.T) {
	for _, expect := range []bool{false, true} {
		m, c, a := newTunnels(t, "")
		a.onHead = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			for range http1.MaxInterim + 5 {
				c.H2.Interim(st, &protocol.Response{Status: 103})
			}
			for range 2 {
				c.H2.Interim(st, &protocol.Response{Status: 100})
			}
		}
		s := openTunnel(m, c)
		request := "POST" + chunkedHead
		if expect {
			request += "Expect: 100-continue\r\n"
		}
		s.write(request + "\r\n")
		text, err := s.read()
		hints, lets := strings.Count(text, "HTTP/1.1 103 Early Hints\r\n\r\n"), strings.Count(text, "HTTP/1.1 100 Continue\r\n\r\n")
		if hints != http1.MaxInterim || (lets == 1) != expect || lets > 1 || err != nil {
			t.Errorf("expect %t: %d early hints, %d continues, %v", expect, hints, lets, err)
		}
		s.write(lastChunk)
		if text, err := s.read(); !strings.HasPrefix(text, "HTTP/1.1 200 OK\r\n") || err != io.EOF {
			t.Errorf("arrived has %q, %v", text, err)
		}
		s.end()
		proxytest.CheckStreamsSettled(m, c)
	}
}

// TestTunnelEnds: a tunnel that does not end with its response. An endpoint that has done nothing with the request says so to the
// goroutine, which may send the request again.
func TestTunnelEnds(t *testing.T) {
	const (
		reset  = "proxy: the endpoint has reset the stream"
		goAway = "\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" // no stream was processed
	)
	responds := func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		c.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: -1})
		c.Flush()
	}
	for _, c := range []struct {
		name   string
		onHead func(c *proxytest.HTTP2Conn, st *http2.Stream) // of the application; nil means nothing
		then   func(s *tunnel, c *proxytest.HTTP2Conn)        // what follows; nil means nothing
		want   string                                         // error that the goroutine gets; "" means any
		resets []http2.Code                                   // that the application gets
	}{
		{"reset", func(c *proxytest.HTTP2Conn, st *http2.Stream) { c.H2.Reset(st, http2.InternalError) }, nil, reset, nil},
		{"refused", func(c *proxytest.HTTP2Conn, st *http2.Stream) { c.H2.Reset(st, http2.RefusedStream) }, nil,
			fault.Error{Failure: fault.Refused}.Error(), nil},
		{"refused, but it has responded", func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			responds(c, st)
			c.H2.Reset(st, http2.RefusedStream)
		}, nil, reset, nil},
		{"goes away", func(c *proxytest.HTTP2Conn, _ *http2.Stream) { c.Conn.Write([]byte(goAway)) }, nil,
			fault.Error{Failure: fault.GoAway}.Error(), nil},
		{"lost", nil, func(s *tunnel, c *proxytest.HTTP2Conn) { s.m.W.Faults.Reset(c.Conn) }, reset, nil},
		{"closed by the goroutine", nil, func(s *tunnel, _ *proxytest.HTTP2Conn) { _ = s.opened.Target.Socket.Close() }, "", []http2.Code{http2.Cancel}},
		{"reset by the goroutine", nil, func(s *tunnel, _ *proxytest.HTTP2Conn) { s.opened.Target.Socket.Reset() }, "", []http2.Code{http2.Cancel}},
		{"ended within the body", nil, func(s *tunnel, _ *proxytest.HTTP2Conn) { _ = s.opened.Target.Socket.CloseWrite() }, "", []http2.Code{http2.Cancel}},
		{"no chunk", nil, func(s *tunnel, _ *proxytest.HTTP2Conn) { s.write("x\r\n") }, "", []http2.Code{http2.Cancel}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, carrier, a := newTunnels(t, "")
			a.onHead = func(server *proxytest.HTTP2Conn, st *http2.Stream) {
				if c.onHead != nil {
					c.onHead(server, st)
				}
			}
			s := openTunnel(m, carrier)
			s.write(startsPOST)
			if c.then != nil {
				if s.pipe.Closed != nil {
					t.Errorf("it ends too early: %v", s.pipe.Closed)
				}
				c.then(s, a.conns[0])
				m.W.Run(20 * time.Millisecond)
			}
			if s.pipe.Closed == nil || c.want != "" && s.pipe.Closed.Error() != c.want {
				t.Errorf("the goroutine gets %v, want %s", s.pipe.Closed, c.want)
			}
			if got := a.conns[0].Resets; !slices.Equal(got, c.resets) {
				t.Errorf("the application gets resets %v, want %v", got, c.resets)
			}
			s.end()
			proxytest.CheckStreamsSettled(m, carrier)
		})
	}
}

// TestTunnelWithoutStream: what a tunnel does not become a stream for. The application sees nothing of it.
func TestTunnelWithoutStream(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(s *tunnel)
		want string // error that the goroutine gets
	}{
		{"closed before the head", func(s *tunnel) { _ = s.opened.Target.Socket.Close() }, ""},
		{"reset within the head", func(s *tunnel) { s.write("POST"); s.opened.Target.Socket.Reset() }, ""},
		{"no HTTP", func(s *tunnel) { s.write("hello\r\n\r\n") }, ""},
		{"CONNECT", func(s *tunnel) { s.write("CONNECT a.test:1 HTTP/1.1\r\nHost: a.test:1\r\n\r\n") },
			"proxy: the endpoint speaks HTTP/2, and takes no CONNECT and no upgrade"},
		{"login", func(s *tunnel) { s.write("GET / HTTP/1.1\r\nHost: compute\r\nAuthorization: NTLM eA==\r\n\r\n") },
			fault.Error{Failure: fault.ConnectionLogin}.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, carrier, a := newTunnels(t, "")
			s := openTunnel(m, carrier)
			c.do(s)
			m.W.Run(20 * time.Millisecond)
			if s.pipe.Closed == nil || c.want != "" && s.pipe.Closed.Error() != c.want {
				t.Errorf("the goroutine gets %v, want %s", s.pipe.Closed, c.want)
			}
			if a.calls != 0 || len(a.open()) != 1 || a.open()[0].H2.StreamCount() != 0 {
				t.Errorf("%d calls, %d connections are open", a.calls, len(a.open()))
			}
			s.end()
			proxytest.CheckStreamsSettled(m, carrier)
		})
	}
}

// TestTunnelFlowControl: whoever does not read slows the other end down, and gets all once it reads.
func TestTunnelFlowControl(t *testing.T) {
	const size = 1 << 20
	// start has the application send a long body to a goroutine that does not read yet. *left bytes of the body are not sent.
	start := func(t *testing.T) (m *proxytest.Mesh, c *proxytest.Carrier, s *tunnel, left *int) {
		t.Helper()
		m, c, a := newTunnels(t, "")
		a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			c.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: size})
			left = a.sendBody(c, st, size)
		}
		s = openTunnel(m, c)
		s.write(startsPOST + lastChunk)
		m.W.Run(time.Second)
		if left == nil {
			t.Fatal("the application got no request")
		}
		return m, c, s, left
	}
	t.Run("the goroutine does not read", func(t *testing.T) {
		m, c, s, left := start(t)
		if sent := size - *left; sent < 256<<10 || sent > 400<<10 { // a window, and what the application's codec takes
			t.Errorf("%d bytes were sent to a goroutine that does not read", sent)
		}
		got, end := 0, error(nil)
		for range 100 {
			text, err := s.read()
			if got += len(text); err != nil {
				end = err
				break
			}
			m.W.Run(10 * time.Millisecond)
		}
		if got < size || got > size+200 || end != io.EOF {
			t.Errorf("%d bytes arrived of %d, %v", got, size, end)
		}
		s.end()
		proxytest.CheckStreamsSettled(m, c)
	})
	t.Run("the goroutine reads byte by byte", func(t *testing.T) {
		m, c, s, left := start(t)
		socket, head := s.opened.Target.Socket, ""
		for !strings.HasSuffix(head, "\r\n\r\n") {
			head += string(must.Read(t, socket, 1))
		}
		must.Read(t, socket, mux.StreamWindow/4-8) // a quarter of the window opens it again, and this is a little less
		m.W.Run(20 * time.Millisecond)
		before := *left
		for range 8 {
			must.Read(t, socket, 1)
			m.W.Run(5 * time.Millisecond)
		}
		if n := before - *left; n < mux.StreamWindow/4 {
			t.Errorf("%d bytes were sent after a quarter of the window was read", n)
		}
		s.end()
		proxytest.CheckStreamsSettled(m, c)
	})
	t.Run("the application does not read", func(t *testing.T) {
		m, c, a := newTunnels(t, "")
		withheld, whole := true, false
		var server *proxytest.HTTP2Conn
		var st *http2.Stream
		a.onHead = func(c *proxytest.HTTP2Conn, of *http2.Stream) {
			server, st = c, of
			c.Withhold = &withheld
		}
		a.onCall = func(*proxytest.HTTP2Conn, *http2.Stream) { whole = true }
		s := openTunnel(m, c)
		s.write(startsPOST)
		s.write(chunk(strings.Repeat("x", size)) + lastChunk)
		m.W.Run(time.Second)
		if n := len(s.pipe.Out); n < size-200<<10 || whole {
			t.Errorf("%d bytes of %d wait", n, size)
		}
		withheld = false
		a.of.Loop.Do(func() { server.H2.Consumed(st, len(server.Body)); server.Flush() })
		m.W.Run(time.Second)
		if len(server.Body) != size || !whole {
			t.Errorf("%d bytes of %d arrived, all of it: %t", len(server.Body), size, whole)
		}
		s.end()
		proxytest.CheckStreamsSettled(m, c)
	})
}

// TestTunnelsWaitForRoom: tunnels that wait for room on a connection get it in their order, those whose request has begun and
// those that are not open.
func TestTunnelsWaitForRoom(t *testing.T) {
	const most = 128 // connections
	m, c, a := newTunnels(t, "")
	a.streams = 1
	a.stop()
	a.listen()
	var served []string
	a.onCall = func(server *proxytest.HTTP2Conn, st *http2.Stream) {
		served = append(served, string(server.Request.Path))
		a.later(200*time.Millisecond)(server, st)
	}
	var all []*tunnel
	for range most + 2 {
		all = append(all, openTunnel(m, c))
	}
	if len(a.conns) != 1 { // a tunnel takes room only with its request
		t.Errorf("%d connections for tunnels without a request", len(a.conns))
	}
	for i, s := range all {
		_, _ = s.opened.Target.Socket.Write(fmt.Appendf(nil, "GET /%d HTTP/1.1\r\nHost: compute\r\n\r\n", i))
		m.W.Run(time.Millisecond)
	}
	m.W.Run(5 * time.Millisecond)
	if len(a.conns) != most || len(served) != most {
		t.Errorf("%d connections, %d requests were served", len(a.conns), len(served))
	}
	late := openTunnel(m, c)
	if late.pipe.Opened {
		t.Error("a tunnel is open for which there is no room")
	}
	m.W.Run(time.Second)
	if !late.pipe.Opened {
		t.Error("a tunnel is not open although there is room")
	}
	late.write("GET /late HTTP/1.1\r\nHost: compute\r\n\r\n")
	m.W.Run(time.Second)
	for i, s := range append(all, late) {
		if text, err := s.read(); !strings.HasPrefix(text, "HTTP/1.1 200 OK\r\n") || err != io.EOF {
			t.Errorf("tunnel %d: arrived has %q, %v", i, text, err)
		}
		s.end()
	}
	if len(served) != most+3 || !slices.Equal(served[most:], []string{"/128", "/129", "/late"}) {
		t.Errorf("served: %s", served)
	}
	proxytest.CheckStreamsSettled(m, c)
}

// TestTunnelsWait: tunnels whose requests wait for room may write on, and leave. They are served in their order.
func TestTunnelsWait(t *testing.T) {
	d := &proxytest.Dialler{MaxDials: 1}
	m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages, Dialler: d.Of,
		Service: "timeout: 60s, connect_timeout: 10s"})
	a := startApps(m)[0]
	a.streams = 1
	a.stop()
	a.listen()
	var served []string
	a.onCall = func(server *proxytest.HTTP2Conn, st *http2.Stream) {
		served = append(served, string(server.Request.Path)+" "+string(server.Body))
		respond(server, st)
	}
	a.onHead = func(*proxytest.HTTP2Conn, *http2.Stream) {}
	var all []*tunnel
	for range 6 {
		all = append(all, openTunnel(m, c))
	}
	d.Dialling = 1 // so that no connection follows
	post := func(n int) string {
		return fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: compute\r\nTransfer-Encoding: chunked\r\n\r\n", n)
	}
	for n, s := range all {
		s.write(post(n))
	}
	for n, s := range all {
		if n == 0 {
			continue
		}
		s.write(chunk("body of "))
		s.write(chunk(fmt.Sprint(n)) + lastChunk)
	}
	if len(served) != 0 {
		t.Errorf("served before there was room: %q", served)
	}
	all[2].opened.Target.Socket.Reset()
	_ = all[4].opened.Target.Socket.Close()
	m.W.Run(20 * time.Millisecond)
	for _, n := range []int{2, 4} {
		if all[n].pipe.Closed == nil {
			t.Errorf("tunnel %d is open after the goroutine has left", n)
		}
	}
	all[0].write(chunk("first") + lastChunk)
	m.W.Run(100 * time.Millisecond)
	if want := []string{"/0 first", "/1 body of 1", "/3 body of 3", "/5 body of 5"}; !slices.Equal(served, want) {
		t.Errorf("served %q, want %q", served, want)
	}
	for n, s := range all {
		if text, err := s.read(); n%2 == 1 && (!strings.HasPrefix(text, "HTTP/1.1 200 OK\r\n") || err != io.EOF) {
			t.Errorf("tunnel %d: arrived has %q, %v", n, text, err)
		}
		s.end()
	}
	proxytest.CheckStreamsSettled(m, c)
}

// TestTunnelWithoutMemory: while memory is full, the long head of a response ends its tunnel, and a short head passes.
func TestTunnelWithoutMemory(t *testing.T) {
	for size, passes := range map[int]bool{100: true, 60 << 10: false} {
		m, c, a := newTunnels(t, "")
		a.onCall = func(server *proxytest.HTTP2Conn, st *http2.Stream) {
			server.H2.Respond(st, &protocol.Response{Status: 200, DeclaredLength: -1, Headers: header("a", strings.Repeat("x", size))}, nil)
		}
		s := openTunnel(m, c)
		m.Consumer.Proc.Charge(1 << 30)
		s.write(startsPOST + lastChunk)
		m.Consumer.Proc.Charge(-1 << 30)
		if text, err := s.read(); strings.HasPrefix(text, "HTTP/1.1 200 OK\r\n") != passes || (err == io.EOF) != passes {
			t.Errorf("a head of %d bytes: arrived has %.50q, %v", size, text, err)
		}
		s.end()
		proxytest.CheckStreamsSettled(m, c)
	}
}

// TestTunnelsWithoutConnection: tunnels fail with the dial that they wait for.
func TestTunnelsWithoutConnection(t *testing.T) {
	m, c, a := newTunnels(t, "")
	a.stop()
	var all []*tunnel
	for range 3 {
		all = append(all, openTunnel(m, c))
	}
	for i, s := range all {
		if got := s.pipe.Closed; got != (fault.Error{Failure: fault.Connect}) {
			t.Errorf("tunnel %d: %v", i, got)
		}
		s.end()
	}
	proxytest.CheckStreamsSettled(m, c)
}

// TestTunnelHeads: the heads of responses do not mix. Each takes memory only until it is passed on: then others may use that memory.
func TestTunnelHeads(t *testing.T) {
	const long = 30_000
	m, c, a := newTunnels(t, "")
	a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		c.H2.Interim(st, &protocol.Response{Status: 103, Headers: header("link", strings.Repeat("l", long))})
		a.of.Loop.After(50*time.Millisecond, &loop.Timer{Fire: func() {
			c.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: -1, Headers: header("other", strings.Repeat("o", long))})
			c.Flush()
		}})
	}
	s := openTunnel(m, c)
	s.write(startsPOST + lastChunk)
	var kept []int64
	for _, want := range []string{"HTTP/1.1 103 Early Hints\r\nlink: " + strings.Repeat("l", long), "HTTP/1.1 200 OK\r\nother: " + strings.Repeat("o", long)} {
		got, err := s.read()
		if !strings.HasPrefix(got, want+"\r\n") || strings.Contains(got, "link") != strings.Contains(want, "link") || err != nil {
			t.Errorf("arrived has %.80q, %v, want %.80q", got, err, want)
		}
		kept = append(kept, m.Consumer.Proc.Kept())
		m.W.Run(50 * time.Millisecond)
	}
	s.end()
	kept = append(kept, m.Consumer.Proc.Kept())
	// The same memory is taken again for each head.
	if kept[0] < long || kept[1] != kept[0] || kept[2] != kept[0] {
		t.Errorf("%d bytes are free for others after the first head, %d after the second, and %d at the end, want the same", kept[0], kept[1], kept[2])
	}
	proxytest.CheckStreamsSettled(m, c)
}
