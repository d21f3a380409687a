package stream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux/httpstream"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
)

// dialBy makes the sidecar connect to its endpoints by Sockets that wrap returns. n counts them from 1 on.
func (s *sidecar) dialBy(wrap func(n int32, nc socket) (loop.Socket, error)) {
	var dials atomic.Int32
	s.srv.opt.Dial = func(ctx context.Context, addr, _, _ string, _ []byte) (loop.Socket, error) {
		n := dials.Add(1)
		var d net.Dialer
		nc, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		return wrap(n, socket{nc.(*net.TCPConn)})
	}
}

// onlyPair waits until the only stream of s is as check wants it.
func (s *sidecar) onlyPair(what string, check func(p *pair) bool) (found *pair) {
	s.t.Helper()
	s.eventually(what, func() error {
		for p := range s.srv.pairs() {
			if check(p) {
				found = p
				return nil
			}
		}
		return errors.New("not yet")
	})
	return found
}

// put returns a request with a body that h frames.
func (s *sidecar) put(h http1.Head) *downstream.StreamRequest {
	framing := "Transfer-Encoding: chunked"
	if h.Framing == http1.FixedLength {
		framing = fmt.Sprintf("Content-Length: %d", h.Length)
	}
	r := &downstream.StreamRequest{
		Kind: stats.StreamBody, Head: []byte("PUT / HTTP/1.1\r\nHost: app\r\n" + framing + "\r\n\r\n"), Opener: s.srv.worker(),
		Service: "app", Timeout: waitLimit, Minor: 1, Buffer: buffers.Get(0), Chunks: h.Framing == http1.Chunked,
	}
	r.Body.Reset(&h, s.srv.limits())
	return r
}

// mute is a connection to which nothing can be written, although it is not reset.
type mute struct{ socket }

func (mute) Write([]byte) (int, error) { return 0, errors.New("nothing can be written") }

// tallied is a connection that counts the bytes which the sidecar itself reads.
type tallied struct {
	*net.TCPConn
	read int
}

func (c *tallied) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.read += n
	return n, err
}

// TestWithinTheKernel: of a body that needs no other framing the sidecar itself reads nothing, or a first byte if somebody
// waits for that. He is told once.
func TestWithinTheKernel(t *testing.T) {
	const length = 100_000
	a := newApp(t)
	s := newSidecar(t, options{})
	for want := range 2 {
		source := s.dialTo(a.addr)
		from := &tallied{TCPConn: receive(t, a.conns, "the connection of the source")}
		sink := s.dialTo(a.addr)
		to := receive(t, a.conns, "the connection of the sink")
		var body http1.Body
		body.Reset(&http1.Head{Framing: http1.FixedLength, Length: length}, s.srv.limits())
		moves := transfer{proc: s.proc, from: &end{conn: from, tcp: from.TCPConn}, to: &end{conn: to, tcp: to}, body: &body, decoded: buffers.Get(0)}
		begun := make(chan struct{}, length)
		if want == 1 {
			moves.begun = func() { begun <- struct{}{} }
		}
		done := make(chan bodyFault, 1)
		go func() { done <- moves.run() }()
		_, _ = io.WriteString(source, "x")
		wantRead(t, "the sink", sink, "x")
		if n := s.proc.Held(); n < 64<<10 || n > 64<<10+16 {
			t.Errorf("%d bytes count, want little over 64 KiB", n)
		}
		_, _ = source.Write(make([]byte, length-1))
		if n, err := io.CopyN(io.Discard, sink, length-1); err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		if f := receive(t, done, "the end"); f != noFault || from.read != want || len(begun) != want || moves.sent != length {
			t.Errorf("fault %d, %d bytes of %d, %d of them read, the first one told %d times; want %d", f, moves.sent, length, from.read, len(begun), want)
		}
		for _, c := range []net.Conn{source, from, sink, to} {
			c.Close()
		}
	}
}

// garbled is a connection of TLS whose peer sends what is none.
type garbled struct{ *net.TCPConn }

func (garbled) Read([]byte) (int, error) { return 0, errors.New("bad record MAC") }

// TestGarbledClient: a client whose input breaks has left at once, although one that ends its input may wait for the response.
func TestGarbledClient(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	client := s.dialTo(a.addr)
	down := receive(t, a.conns, "the connection")
	p := &pair{srv: s.srv, down: &end{conn: garbled{down}, tcp: down, secure: true}, halfClose: time.Hour}
	p.readDown(func() {})
	receive(t, p.readerDone, "the end of the client to be seen")
	if state, left := p.states(); state != aborted || left != clientLeft {
		t.Errorf("the stream is in state %d, its client in state %d", state, left)
	}
	wantReset(t, "the client", client)
}

// quietEnd is a connection of TLS: the end of its output is not one of TCP.
type quietEnd struct{ socket }

func (quietEnd) CloseWrite() error { return nil }

// TestEndOfResponse: the client sees the end of its response at once, also if it has ended its own side before.
func TestEndOfResponse(t *testing.T) {
	for _, ended := range []bool{false, true} {
		a := newApp(t)
		s := newSidecar(t, options{more: "timeouts: {half_close: 1h}"}, a.addr)
		s.srv.flush = time.Hour
		client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
			down := loop.Socket(socket{nc})
			if ended {
				down = quietEnd{socket{nc}}
			}
			s.srv.Request(down, s.put(http1.Head{Framing: http1.FixedLength, Length: 4}))
		}))
		server := receive(t, a.conns, "the connection")
		_, _ = io.WriteString(client, "body")
		readUntil(t, server, "\r\n\r\nbody")
		if ended {
			_ = client.CloseWrite()
			s.onlyPair("the end of the client's side to be seen", func(p *pair) bool {
				_, client := p.states()
				return client == clientEnded
			})
		}
		_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole")
		if all, err := io.ReadAll(client); !strings.HasSuffix(string(all), "\r\n\r\nwhole") || err != nil {
			t.Errorf("the client got %q, %v", all, err)
		}
		if rest, err := io.ReadAll(server); len(rest) > 0 || err != nil {
			t.Errorf("the application got %q, %v", rest, err)
		}
		server.Close()
		client.Close()
		s.counts.waitIdle()
	}
}

// idleOpener picks no endpoint, like a loop that has stopped.
type idleOpener struct {
	race.Opener
	asked chan struct{}
}

func (o idleOpener) Open(string, race.Picked) { close(o.asked) }

// TestCloseWhilePicking: a Server that closes does not wait for loops that have stopped.
func TestCloseWhilePicking(t *testing.T) {
	s := newSidecar(t, options{})
	asked := make(chan struct{})
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		r := s.put(http1.Head{Framing: http1.Chunked})
		r.Opener = idleOpener{r.Opener, asked}
		s.srv.Request(socket{nc}, r)
	}))
	receive(t, asked, "the stream to ask for an endpoint")
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	if err := s.srv.Close(ctx); err != nil {
		t.Error(err)
	}
	wantReset(t, "the client", client)
	s.counts.waitNoStreams()
}

// TestPipeNotOpenInTime: an endpoint whose connection takes no stream in time does not get it later, but another endpoint does.
func TestPipeNotOpenInTime(t *testing.T) {
	a, b := newApp(t), newApp(t)
	s := startSidecar(t, `
admin: {address: ""}
listeners: [{name: in, address: "127.0.0.1:0", protocol: tcp, service: app}]
services: {app: {discover: static, endpoints: ["127.0.0.1:1"], protocol: http, connect_timeout: 500ms, timeout: 15s}}`, reactor.Options{})
	s.dialBy(func(_ int32, nc socket) (loop.Socket, error) { return nc, nil })
	s.update(endpoint(a.addr), endpoint(b.addr))
	server, socket := s.entry.newPeer()
	client := s.entry.call(&pipeOpener{s.proc.Workers()[0], socket}, grpc)
	server.wantState(loop.PipeReset)
	app := either(t, a, b)
	_, _ = io.WriteString(app, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	client.want(httpstream.Head)
	if got := string(client.Failure()); got != "" {
		t.Errorf("%q", got)
	}
	client.pipe.Close(nil)
	app.Close()
	s.counts.waitIdle()
}

// TestPrefaceFails: a sidecar that does not take a tunnel loses its connection, and another one gets the tunnel.
func TestPrefaceFails(t *testing.T) {
	for _, c := range []struct {
		name string
		mute bool
		then func(nc *net.TCPConn)
	}{
		{"nothing can be sent", true, func(*net.TCPConn) {}},
		{"no answer", false, func(nc *net.TCPConn) { _ = nc.CloseWrite() }},
		{"refused", false, func(nc *net.TCPConn) { _, _ = nc.Write([]byte{byte(link.Overload)}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newApp(t), newApp(t)
			s := newSidecar(t, options{})
			s.dialBy(func(n int32, nc socket) (loop.Socket, error) {
				if n == 1 && c.mute {
					return mute{nc}, nil
				}
				return nc, nil
			})
			s.update(registry.Endpoint{Addr: a.addr, Weight: 1, Protocol: config.ProtocolLink}, registry.Endpoint{Addr: b.addr, Weight: 1, Protocol: config.ProtocolLink})
			client := s.dialTo(s.acceptAddr(waitLimit, link.Stream{Kind: link.StreamOpaque}))
			first := either(t, a, b)
			c.then(first)
			wantReset(t, "the first sidecar", first)
			second := either(t, a, b)
			_, _ = second.Write([]byte{link.StreamTaken})
			wantRead(t, "the client", client, string([]byte{link.StreamTaken}))
			_, _ = io.WriteString(second, "hello")
			wantRead(t, "the client", client, "hello")
			for _, c := range []net.Conn{first, second, client} {
				c.Close()
			}
			s.counts.waitIdle()
		})
	}
}

// TestPrefaceUnanswered: a sidecar that does not say in time whether it takes a tunnel does not get it.
func TestPrefaceUnanswered(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	s.update(registry.Endpoint{Addr: a.addr, Weight: 1, Protocol: config.ProtocolLink})
	client := s.dialTo(s.acceptAddr(500*time.Millisecond, link.Stream{Kind: link.StreamOpaque}))
	server := receive(t, a.conns, "the connection")
	wantReason(t, client, fault.Connect.Reason())
	wantReset(t, "the other sidecar", server)
	client.Close()
	s.counts.waitIdle()
}

// TestAcceptedAfterClose: a client that a listener accepts while its Server closes is reset, and counts no more.
func TestAcceptedAfterClose(t *testing.T) {
	for _, listener := range []string{"", proxyOnLoopback} {
		s := serveApp(t, "127.0.0.1:0", listener, "", "127.0.0.1:1", "")
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		if err := s.srv.Close(ctx); err != nil {
			t.Fatal(err)
		}
		counted, served := 0, make(chan struct{})
		l := &Listener{srv: s.srv, reserve: func(_, _ net.Addr) func() { counted++; return func() { counted-- } }}
		l.Configure(&s.srv.config().Listeners[0])
		client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
			_, _ = io.ReadFull(nc, make([]byte, 1)) // so that no reset comes before dialTo returns
			l.serve(nc, nc)
			close(served)
		}))
		_, _ = io.WriteString(client, "x")
		wantReset(t, "the client", client)
		if receive(t, served, "the client to be served"); counted != 0 {
			t.Errorf("%q: %d connections count", listener, counted)
		}
	}
}

// TestEarlyBytesFail: an endpoint that takes none of the early bytes may still have sent something, which the client gets. Then the
// stream is aborted.
func TestEarlyBytesFail(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	client := s.dialTo(a.addr)
	down := receive(t, a.conns, "the connection of the client")
	up := s.dialTo(a.addr)
	server := receive(t, a.conns, "the connection of the endpoint")
	p := &pair{srv: s.srv, down: &end{conn: down, tcp: down}, up: &end{conn: mute{socket{up}}, tcp: up}}
	s.srv.flush = time.Hour
	moved := make(chan [2]int64, 1)
	go func() {
		in, out := (&relay{p: p}).run(newInput(s.proc, []byte("early")))
		moved <- [2]int64{in, out}
	}()
	_, _ = io.WriteString(server, "bye")
	_ = server.CloseWrite()
	wantRead(t, "the client", client, "bye")
	_ = client.CloseWrite()
	if n := receive(t, moved, "the end"); n != [2]int64{5, 3} || !p.isAborted() {
		t.Errorf("%d bytes have moved; aborted: %t", n, p.isAborted())
	}
	client.Close()
	server.Close()
}

// TestMalformedWhileSought: a request that turns out to be malformed while another endpoint is sought for it does not go there.
func TestMalformedWhileSought(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	dialling, release := make(chan struct{}), make(chan struct{})
	s.dialBy(func(n int32, nc socket) (loop.Socket, error) {
		if n == 2 {
			close(dialling)
			<-release
		}
		return nc, nil
	})
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		r := s.put(http1.Head{Framing: http1.Chunked})
		r.Repeats = 1
		s.srv.Request(socket{nc}, r)
	}))
	_, _ = io.WriteString(client, "5\r\nfirst\r\n")
	server := receive(t, a.conns, "the connection")
	readUntil(t, server, "5\r\nfirst\r\n")
	(&end{conn: server, tcp: server}).reset()
	receive(t, dialling, "another dial")
	_, _ = io.WriteString(client, "malformed\r\n")
	s.onlyPair("the body to end", func(p *pair) bool {
		_, client := p.states()
		return client == clientUploaded
	})
	_, _ = io.WriteString(client, "more")
	s.onlyPair("the rest to be dropped", func(p *pair) bool {
		c := p.down.counters()
		return c.received == uint64(len("5\r\nfirst\r\nmalformed\r\nmore")) && c.unread == 0
	})
	close(release)
	resp, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, "the client", resp, fault.BadRequest.Status, fault.BadRequest.Code)
	wantReset(t, "the other endpoint", receive(t, a.conns, "the other connection"))
	client.Close()
	s.counts.waitIdle()
}

// breakable is a connection to which nothing can be written from some time on.
type breakable struct {
	socket
	broken *atomic.Bool
}

func (c breakable) Write(b []byte) (int, error) {
	if c.broken.Load() {
		return 0, errors.New("nothing can be written")
	}
	return c.socket.Write(b)
}

// TestBrokenUpload: an endpoint that takes no more of a request must respond within its timeout. At the next one the timeout begins
// when the client has sent all.
func TestBrokenUpload(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	var broken atomic.Bool
	s.dialBy(func(n int32, nc socket) (loop.Socket, error) {
		if n == 1 {
			return breakable{nc, &broken}, nil
		}
		return nc, nil
	})
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		r := s.put(http1.Head{Framing: http1.Chunked})
		r.Repeats = 1
		s.srv.Request(socket{nc}, r)
	}))
	awaits := func(want pairState) func(p *pair) bool {
		return func(p *pair) bool {
			state, _ := p.states()
			return state == want
		}
	}
	_, _ = io.WriteString(client, "5\r\nfirst\r\n")
	first := receive(t, a.conns, "the connection")
	readUntil(t, first, "5\r\nfirst\r\n")
	broken.Store(true)
	_, _ = io.WriteString(client, "6\r\nsecond\r\n")
	s.onlyPair("the response to be awaited", awaits(awaitingHead))
	(&end{conn: first, tcp: first}).reset()
	second := receive(t, a.conns, "another connection")
	if got := readUntil(t, second, "6\r\nsecond\r\n"); !strings.HasSuffix(got, "\r\n\r\n5\r\nfirst\r\n6\r\nsecond\r\n") {
		t.Errorf("the other endpoint got %q", got)
	}
	for p := range s.srv.pairs() {
		if state, _ := p.states(); state != opening {
			t.Errorf("the stream is in state %d while the client sends", state)
		}
	}
	_, _ = io.WriteString(client, "0\r\n\r\n")
	readUntil(t, second, "0\r\n\r\n")
	s.onlyPair("the response to be awaited", awaits(awaitingHead))
	_, _ = io.WriteString(second, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	readUntil(t, client, "\r\n\r\nok")
	client.Close()
	second.Close()
	s.counts.waitIdle()
}

// TestDeafClient: a client to which nothing can be written loses its stream, whatever is written first, and so does the endpoint.
func TestDeafClient(t *testing.T) {
	for _, c := range []struct {
		name     string
		kind     stats.StreamKind
		response string // of the endpoint; "" means that the sidecar speaks first
		grpc     string // the code in the access log
	}{
		{"response", stats.StreamBody, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "cancelled"},
		{"interim response", stats.StreamBody, "HTTP/1.1 103 Early Hints\r\n\r\n", ""},
		{"upgrade", stats.StreamWebSocket, upgraded, ""},
		{"tunnel", stats.StreamConnect, "", ""},
		{"answer", stats.StreamBody, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newApp(t)
			s := newSidecar(t, options{more: "access_log: {path: /log}"}, a.addr)
			record := s.srv.worker().StreamRecord("in", "client", "app")
			var client *net.TCPConn
			var server net.Conn
			if c.name == "answer" {
				src, app := s.entry.source(a, http1.Head{Framing: http1.FixedLength, Length: 100}, "early")
				src.Record, server = record, app
				client = s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
					_, _ = io.ReadFull(nc, make([]byte, 1)) // so that no reset comes before dialTo returns
					s.srv.Answer(mute{socket{nc}}, &downstream.StreamAnswer{Head: []byte("head"), Source: src, Opener: s.srv.worker()})
				}))
				_, _ = io.WriteString(client, "x")
			} else {
				client = s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
					_, _ = io.ReadFull(nc, make([]byte, 1)) // likewise
					r := s.put(http1.Head{Framing: http1.FixedLength, Length: 4})
					r.Kind, r.Record, r.GRPC = c.kind, record, c.grpc != ""
					if c.kind == stats.StreamWebSocket {
						r.Protocols = []byte("websocket")
					}
					s.srv.Request(mute{socket{nc}}, r)
				}))
				_, _ = io.WriteString(client, "x")
				server = receive(t, a.conns, "the connection")
				if c.response != "" {
					readUntil(t, server, "\r\n\r\n")
					_, _ = io.WriteString(server, c.response)
				}
			}
			wantReset(t, "the endpoint", server)
			wantReset(t, "the client", client)
			server.Close()
			s.counts.waitIdle()
			if l := s.log.line(0); l.Outcome != "cut" || l.BytesOut != 0 || c.grpc != "" && l.GRPC != c.grpc {
				t.Errorf("%+v", l)
			}
		})
	}
}

// TestCutWhileDialled: a direct stream that gives way while its host is dialled fails by that, and by nothing else.
func TestCutWhileDialled(t *testing.T) {
	for _, original := range []bool{false, true} {
		for _, refused := range []bool{false, true} {
			a := newApp(t)
			s := startSidecar(t, `
admin: {address: ""}
listeners: [{name: out, address: "127.0.0.1:0", protocol: http, unrouted: direct, direct: {allow: [127.0.0.1]}}]
routes: [{match: {host: app}, service: app}]
services: {app: {discover: static, endpoints: ["127.0.0.1:1"], protocol: http}}`, reactor.Options{})
			dialling, release := make(chan struct{}), make(chan struct{})
			s.dialBy(func(_ int32, nc socket) (loop.Socket, error) {
				close(dialling)
				<-release
				if refused {
					nc.Close()
					return nil, errors.New("refused")
				}
				return nc, nil
			})
			to := &downstream.Unrouted{Listener: "out", Authority: a.addr}
			if original {
				to.To = netip.MustParseAddrPort(a.addr)
			}
			client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
				s.srv.Request(socket{nc}, &downstream.StreamRequest{Kind: stats.StreamConnect, Opener: s.srv.worker(), Timeout: waitLimit, Minor: 1, Unrouted: to})
			}))
			receive(t, dialling, "the dial")
			s.onlyPair("the stream", func(p *pair) bool { p.cut(fault.TooManyStreams); return true })
			close(release)
			wantReset(t, "the client", client)
			server := receive(t, a.conns, "the connection")
			_, _ = io.Copy(io.Discard, server) // until it ends
			server.Close()
			s.counts.wantFailure(fault.TooManyStreams.Code)
			s.counts.waitNoStreams()
		}
	}
}

// TestLeastRate: any least rate counts, for a body whose sides do not talk.
func TestLeastRate(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	s.srv.window = 1
	for _, c := range []struct {
		rate        int64
		interactive bool
		want        *fault.Failure
	}{{0, false, nil}, {1, false, fault.BodyTooSlow}, {1, true, nil}} {
		client, up := s.dialTo(a.addr), s.dialTo(a.addr)
		down, server := receive(t, a.conns, "the connection of the client"), receive(t, a.conns, "the connection of the endpoint")
		p := &pair{srv: s.srv, down: &end{conn: down, tcp: down}, up: &end{conn: up, tcp: up}, client: clientUploading}
		p.interactive.Store(c.interactive)
		limit := config.Timeouts{Idle: time.Hour, MinRate: c.rate}
		w := &watch{p: p, limit: &limit, began: time.Now().Add(-time.Hour), change: time.Now(), timer: time.NewTimer(time.Hour)}
		w.check()
		w.check()
		w.stop()
		if got := p.why.Load(); got != c.want {
			t.Errorf("rate %d, interactive %t: %+v", c.rate, c.interactive, got)
		}
		for _, c := range []net.Conn{client, down, up, server} {
			c.Close()
		}
	}
}

// namingOpener notes whom a stream comes from, and gives the endpoint a cookie for it.
type namingOpener struct {
	race.Opener
	from chan shard.Client
}

func (o namingOpener) From(c shard.Client) race.Opener {
	o.from <- c
	return o
}

func (o namingOpener) Open(service string, picked race.Picked) {
	o.Opener.Open(service, func(st *race.Stream, at race.Target, f *fault.Failure) {
		at.Cookies.Set = []byte("endpoint=1")
		picked(st, at, f)
	})
}

// TestAcceptedFrom: failures of a stream from another sidecar are its client's, whom the head names. The response has the cookie
// of the endpoint.
func TestAcceptedFrom(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	from := make(chan shard.Client, 1)
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		s.srv.Accept(socket{nc}, &downstream.StreamAccept{
			Opener: namingOpener{s.srv.worker(), from}, Client: shard.Client{Listener: "in", Addr: "192.0.2.1:1"}, Service: "app", Timeout: waitLimit,
			Stream: link.Stream{Kind: link.StreamHTTP},
		})
	}))
	_, _ = io.WriteString(client, "POST /a HTTP/1.1\r\nHost: app\r\nX-Forwarded-For: 198.51.100.1\r\nX-Remora-Forged: 1\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n")
	server := receive(t, a.conns, "the connection")
	want := shard.Client{Listener: "in", Addr: "192.0.2.1:1", GRPC: true, Behind: netip.MustParseAddr("198.51.100.1")}
	if got := receive(t, from, "the client to be named"); got.Listener != want.Listener || got.Addr != want.Addr || got.GRPC != want.GRPC || got.Behind != want.Behind {
		t.Errorf("the stream is from %+v, want %+v", got, want)
	}
	if got := readUntil(t, server, "\r\n\r\n"); strings.Contains(got, "Forged") {
		t.Errorf("the application got a header of ours: %q", got)
	}
	s.onlyPair("both sides of a call to be free to pause", func(p *pair) bool { return p.interactive.Load() })
	_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Header.Get("Set-Cookie"); got != "endpoint=1" {
		t.Errorf("the response has the cookie %q", got)
	}
	client.Close()
	server.Close()
	s.counts.waitIdle()
}

// TestIncompleteUpload: a client that has not sent all of its request gets the whole response, however late it reads, and the endpoint
// is told that the request is not whole.
func TestIncompleteUpload(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	s.srv.flush = time.Millisecond
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		s.srv.Request(socket{nc}, s.put(http1.Head{Framing: http1.FixedLength, Length: 100}))
	}))
	_, _ = io.WriteString(client, "part")
	server := receive(t, a.conns, "the connection")
	readUntil(t, server, "\r\n\r\npart")
	_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole")
	wantReset(t, "the endpoint", server)
	s.counts.waitIdle()
	if all, err := io.ReadAll(client); !strings.HasSuffix(string(all), "\r\n\r\nwhole") || err != nil {
		t.Errorf("the client got %q, %v", all, err)
	}
	client.Close()
	server.Close()
}

// slowBody is a connection to which a body is written only after release.
type slowBody struct {
	socket
	release chan struct{}
}

func (c slowBody) Write(b []byte) (int, error) {
	if string(b) == "whole" {
		<-c.release
	}
	return c.socket.Write(b)
}

// TestResponseBeforeBody: an endpoint that has responded before it has got the body is told that the request is not whole, although
// all of that has come.
func TestResponseBeforeBody(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	release := make(chan struct{})
	s.dialBy(func(_ int32, nc socket) (loop.Socket, error) { return slowBody{nc, release}, nil })
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		r := s.put(http1.Head{Framing: http1.FixedLength, Length: 5})
		if _, _, err := r.Body.Decode([]byte("whole"), r.Buffer); err != nil {
			t.Error(err)
		}
		s.srv.Request(socket{nc}, r)
	}))
	server := receive(t, a.conns, "the connection")
	readUntil(t, server, "\r\n\r\n")
	_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	readUntil(t, client, "\r\n\r\nok")
	wantReset(t, "the endpoint", server)
	close(release)
	client.Close()
	server.Close()
	s.counts.waitIdle()
}

// TestRefusedBySidecar: a sidecar that refuses a request loses its connection, and another one gets the request.
func TestRefusedBySidecar(t *testing.T) {
	a, b := newApp(t), newApp(t)
	s := newSidecar(t, options{})
	s.update(registry.Endpoint{Addr: a.addr, Weight: 1, Protocol: config.ProtocolLink}, registry.Endpoint{Addr: b.addr, Weight: 1, Protocol: config.ProtocolLink})
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		s.srv.Request(socket{nc}, s.put(http1.Head{Framing: http1.FixedLength, Length: 4}))
	}))
	_, _ = io.WriteString(client, "body")
	first := either(t, a, b)
	readUntil(t, first, "\r\n\r\nbody")
	_, _ = io.WriteString(first, "HTTP/1.1 503 Unavailable\r\nX-Remora-Error: draining\r\nContent-Length: 0\r\n\r\n")
	wantReset(t, "the first sidecar", first)
	second := either(t, a, b)
	readUntil(t, second, "\r\n\r\nbody")
	_, _ = io.WriteString(second, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	readUntil(t, client, "\r\n\r\nok")
	for _, c := range []net.Conn{first, second, client} {
		c.Close()
	}
	s.counts.waitIdle()
}

// TestNoResponseInTime: an endpoint must respond within the timeout once it has got the whole request, or takes no more of it.
func TestNoResponseInTime(t *testing.T) {
	for _, breaks := range []bool{false, true} {
		a := newApp(t)
		s := newSidecar(t, options{}, a.addr)
		var broken atomic.Bool
		s.dialBy(func(_ int32, nc socket) (loop.Socket, error) { return breakable{nc, &broken}, nil })
		client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
			r := s.put(http1.Head{Framing: http1.Chunked})
			r.Timeout = 500 * time.Millisecond
			s.srv.Request(socket{nc}, r)
		}))
		server := receive(t, a.conns, "the connection")
		const size = maxKept + 100 // no other endpoint can get it
		_, _ = client.Write(http1.AppendChunk(nil, make([]byte, size)))
		readUntil(t, server, "\r\n\r\n")
		for got := 0; got < size; {
			n, err := server.Read(make([]byte, size))
			if got += n; err != nil {
				t.Fatal(err)
			}
		}
		broken.Store(breaks)
		if breaks {
			_, _ = io.WriteString(client, "4\r\nmore\r\n")
		} else {
			_, _ = io.WriteString(client, "0\r\n\r\n")
		}
		resp, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, "the client", resp, fault.Deadline.Status, fault.Deadline.Code)
		client.Close()
		server.Close()
		s.counts.waitIdle()
	}
}

// TestIdleExactly: a stream is idle when it has made no progress for exactly timeouts.idle. One without an endpoint is not.
func TestIdleExactly(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	nc := s.dialTo(a.addr)
	other := receive(t, a.conns, "the connection")
	began := time.Now()
	for _, c := range []struct {
		up    *end
		moved uint64
		state pairState
		after time.Duration
		want  bool
	}{
		{&end{conn: nc, tcp: nc}, 0, responding, time.Hour, true},
		{&end{conn: nc, tcp: nc}, 0, responding, time.Hour - 1, false},
		{&end{conn: nc, tcp: nc}, 1, responding, time.Hour, false},
		{&end{conn: nc, tcp: nc}, 0, awaitingHead, time.Hour, false},
		{nil, 0, responding, time.Hour, false},
	} {
		p := &pair{srv: s.srv, down: &end{conn: other, tcp: other}, up: c.up, state: c.state}
		w := &watch{p: p, limit: &config.Timeouts{Idle: time.Hour}, change: began, moved: p.moved() + c.moved}
		if got := w.idle(began.Add(c.after)); got != c.want {
			t.Errorf("%+v: idle %t", c, got)
		}
	}
	nc.Close()
	other.Close()
}

// lastBytes is a connection that says with its last bytes that they are, as TLS may.
type lastBytes struct {
	*net.TCPConn
	n int
}

func (c lastBytes) Read([]byte) (int, error) { return c.n, io.EOF }

// TestLastBytes: bytes count although the input ends with them.
func TestLastBytes(t *testing.T) {
	s := newSidecar(t, options{})
	for n, want := range []error{io.EOF, nil, nil} {
		in := newInput(s.proc, []byte("head"))
		if err := in.more(&end{conn: lastBytes{n: n}}); err != want || len(in.b) != len("head")+n {
			t.Errorf("%d bytes and the end: %v, %d bytes are there", n, err, len(in.b))
		}
		in.free()
	}
}

// bounded is a connection that tells its deadlines.
type bounded struct {
	socket
	read, write *atomic.Pointer[time.Time]
}

func newBounded(nc socket) bounded {
	return bounded{nc, new(atomic.Pointer[time.Time]), new(atomic.Pointer[time.Time])}
}

func (c bounded) SetDeadline(at time.Time) error {
	c.read.Store(&at)
	c.write.Store(&at)
	return c.socket.SetDeadline(at)
}

func (c bounded) SetReadDeadline(at time.Time) error {
	c.read.Store(&at)
	return c.socket.SetReadDeadline(at)
}

func (c bounded) SetWriteDeadline(at time.Time) error {
	c.write.Store(&at)
	return c.socket.SetWriteDeadline(at)
}

// TestNoDeadlineOfBody: the deadlines of heads do not hold for what follows them.
func TestNoDeadlineOfBody(t *testing.T) {
	const interim = "HTTP/1.1 103 Early Hints\r\n\r\n"
	for name, c := range map[string]struct{ request, interim, response string }{
		"body":          {"PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: 4\r\n\r\nbody", interim, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"},
		"upgrade":       {upgradeHead + "body", interim, upgraded},
		"tunnel":        {"", "", ""},
		"other sidecar": {"PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: 4\r\n\r\nbody", interim, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t)
			s := newSidecar(t, options{}, a.addr)
			if name == "other sidecar" {
				s.update(registry.Endpoint{Addr: a.addr, Weight: 1, Protocol: config.ProtocolLink})
			}
			ends := make(chan bounded, 2)
			kept := func(nc socket) loop.Socket {
				b := newBounded(nc)
				ends <- b
				return b
			}
			s.dialBy(func(_ int32, nc socket) (loop.Socket, error) { return kept(nc), nil })
			kind := link.StreamHTTP
			if c.request == "" {
				kind = link.StreamOpaque
			}
			client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
				s.srv.Accept(kept(socket{nc}), &downstream.StreamAccept{Opener: s.srv.worker(), Service: "app", Timeout: waitLimit, Stream: link.Stream{Kind: kind}})
			}))
			_, _ = io.WriteString(client, c.request)
			server := receive(t, a.conns, "the connection")
			if c.request != "" {
				readUntil(t, server, "body")
				_, _ = io.WriteString(server, c.interim)
				readUntil(t, client, "\r\n\r\n")
				_, _ = io.WriteString(server, c.response)
				readUntil(t, client, "\r\n\r\n")
			} else {
				wantRead(t, "the client", client, string([]byte{link.StreamTaken}))
			}
			_, _ = io.WriteString(server, "x")
			wantRead(t, "the client", client, "x")
			for range 2 {
				b := receive(t, ends, "an end")
				for what, at := range map[string]*time.Time{"reads": b.read.Load(), "writes": b.write.Load()} {
					if at != nil && !at.IsZero() {
						t.Errorf("%s at %s have a deadline", what, b.LocalAddr())
					}
				}
			}
			client.Close()
			server.Close()
			s.counts.waitIdle()
		})
	}
}

// TestFailedCallLeft: a gRPC call that has failed has its own code, although its caller leaves as soon as it knows.
func TestFailedCallLeft(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{more: "access_log: {path: /log}"}, a.addr)
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		r := s.put(http1.Head{Framing: http1.FixedLength, Length: 4})
		r.GRPC, r.Record = true, s.srv.worker().StreamRecord("in", "client", "app")
		s.srv.Request(socket{nc}, r)
	}))
	_, _ = io.WriteString(client, "body")
	server := receive(t, a.conns, "the connection")
	readUntil(t, server, "\r\n\r\nbody")
	(&end{conn: server, tcp: server}).reset()
	_, _ = io.Copy(io.Discard, client)
	client.Close()
	s.counts.waitIdle()
	s.counts.wantFailure(fault.Reset.Code)
	if l := s.log.line(0); l.GRPC != "unavailable" || l.Error != fault.Reset.Code {
		t.Errorf("%+v", l)
	}
}

// TestFetchDeadline: a process that fetches must send its token soon. It may then take any time.
func TestFetchDeadline(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	src, server := s.entry.source(a, http1.Head{Framing: http1.UntilClose}, "early")
	token, ok := s.srv.Park(src, shard.Client{})
	if !ok {
		t.Fatal("not parked")
	}
	began, ends := time.Now(), make(chan bounded, 1)
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		b := newBounded(socket{nc})
		ends <- b
		s.srv.parking.serveFetch(&pair{srv: s.srv, down: &end{conn: b, tcp: nc}})
	}))
	down := receive(t, ends, "the connection")
	s.eventually("the token to have a deadline", func() error {
		if at := down.read.Load(); at == nil || at.Before(began) {
			return errors.New("none")
		}
		return nil
	})
	_, _ = client.Write(token[:])
	readUntil(t, client, "early\r\n")
	if at := down.read.Load(); !at.IsZero() {
		t.Errorf("the response has the deadline %s", at)
	}
	client.Close()
	server.Close()
	s.counts.waitIdle()
}

// TestCountersOfClosed: an end that is closed counts nothing, and its connection is over.
func TestCountersOfClosed(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	nc := s.dialTo(a.addr)
	other := receive(t, a.conns, "the connection")
	_, _ = io.WriteString(nc, "out")
	_, _ = io.WriteString(other, "in")
	wantRead(t, "the end", nc, "in")
	e := &end{conn: nc, tcp: nc}
	nc.Close()
	if c := e.counters(); c != (counters{}) || e.moved() != 0 || e.unsent() != 0 || !e.isReset() {
		t.Errorf("%+v, %d bytes have moved, %d are not sent, over: %t", c, e.moved(), e.unsent(), e.isReset())
	}
	if err := e.awaitGone(); err == nil {
		t.Error("its peer is awaited")
	}
	other.Close()
}

// TestEndedWithoutReading: a client that has ended its side, and so counts as gone, does not hold its stream by not reading.
func TestEndedWithoutReading(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		s.srv.Request(socket{nc}, s.put(http1.Head{Framing: http1.FixedLength, Length: 4}))
	}))
	_, _ = io.WriteString(client, "body")
	server := receive(t, a.conns, "the connection")
	readUntil(t, server, "\r\n\r\nbody")
	const size = 1 << 30
	_, _ = fmt.Fprintf(server, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
	readUntil(t, client, "\r\n\r\n")
	if stall(t, server, size) == size {
		t.Fatal("all is sent")
	}
	_ = client.CloseWrite()
	wantReset(t, "the application", server)
	client.Close()
	server.Close()
	s.counts.waitIdle()
}

// TestOneEarlyByte: a single byte that was read early is passed on, too.
func TestOneEarlyByte(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	client := s.dialTo(s.entry.connectAddr("x"))
	server := receive(t, a.conns, "the connection")
	wantRead(t, "the server", server, "x")
	client.Close()
	server.Close()
	s.counts.waitIdle()
}

// TestProxyHeaderDeadline: the deadline of the header of the PROXY protocol does not hold for the stream.
func TestProxyHeaderDeadline(t *testing.T) {
	a := newApp(t)
	s := serveApp(t, "127.0.0.1:0", proxyOnLoopback, "", a.addr, "")
	ends := make(chan bounded, 1)
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		b := newBounded(socket{nc})
		ends <- b
		s.ln.readHeader(&end{conn: b, tcp: nc}, "127.0.0.1:1", func() {})
	}))
	down := receive(t, ends, "the connection of the proxy")
	s.eventually("the header to have a deadline", func() error {
		if at := down.read.Load(); at == nil || at.IsZero() {
			return errors.New("none")
		}
		return nil
	})
	_, _ = io.WriteString(client, "PROXY TCP4 192.0.2.1 198.51.100.2 1 2\r\nhello")
	server := receive(t, a.conns, "the connection")
	wantRead(t, "the server", server, "hello")
	if at := down.read.Load(); at == nil || !at.IsZero() {
		t.Errorf("the deadline is %v", at)
	}
	client.Close()
	server.Close()
	s.counts.waitIdle()
}

// TestRequestMemory: all memory of a request counts from the start.
func TestRequestMemory(t *testing.T) {
	s := newSidecar(t, options{})
	r := s.put(http1.Head{Framing: http1.Chunked})
	r.Head, r.Rest = make([]byte, 10), make([]byte, 100)
	r.Buffer = &bytebufferpool.ByteBuffer{B: make([]byte, 100_000)}
	x := newRequestStream(&pair{srv: s.srv}, r)
	if got, want := s.proc.Held(), int64(10+100+protocol.Held(r.Buffer)); got != want || want < 100_000 {
		t.Errorf("%d bytes count, want %d", got, want)
	}
	for range 2 {
		x.release()
		x.releaseHead()
	}
	s.counts.wantNoMemory()
}

// polite is a connection of TLS, which says that it closes.
type polite struct{ *net.TCPConn }

func (c polite) Close() error {
	_, _ = io.WriteString(c.TCPConn, "close_notify")
	return c.TCPConn.Close()
}

// TestResetSaysNothing: the peer of an end that is reset can't take what it got for everything.
func TestResetSaysNothing(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	nc := s.dialTo(a.addr)
	peer := receive(t, a.conns, "the connection")
	(&end{conn: polite{nc}, tcp: nc, secure: true}).reset()
	if b, err := io.ReadAll(peer); len(b) > 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer got %q, %v", b, err)
	}
	peer.Close()
}
