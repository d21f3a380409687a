package stream

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// handedOver are the ways in which a Server gets a client, besides its own listeners. An answer comes from src.
func handedOver(s *sidecar, src func() *downstream.StreamAnswer) map[string]func(client loop.Socket) {
	request := func(kind stats.StreamKind) func(loop.Socket) {
		return func(client loop.Socket) {
			s.srv.Request(client, &downstream.StreamRequest{
				Kind: kind, Opener: s.srv.worker(), Service: "app", Timeout: waitLimit, Minor: 1, Head: []byte("GET / HTTP/1.1\r\n\r\n"), Rest: []byte("rest"),
			})
		}
	}
	accept := func(kind link.StreamKind) func(loop.Socket) {
		return func(client loop.Socket) {
			s.srv.Accept(client, &downstream.StreamAccept{Opener: s.srv.worker(), Service: "app", Timeout: waitLimit, Stream: link.Stream{Kind: kind}})
		}
	}
	return map[string]func(client loop.Socket){
		"request": request(stats.StreamBody), "upgrade": request(stats.StreamWebSocket), "CONNECT": request(stats.StreamConnect),
		"answer": func(client loop.Socket) { s.srv.Answer(client, src()) },
		"HTTP":   accept(link.StreamHTTP), "opaque": accept(link.StreamOpaque), "fetch": accept(link.StreamAnswer),
	}
}

// answerOf returns what makes an answer of a response of the application, and how to check that its connection has ended.
func answerOf(t *testing.T, s *sidecar, a *app) (src func() *downstream.StreamAnswer, checkEnded func()) {
	t.Helper()
	source, server := s.entry.source(a, http1.Head{Framing: http1.FixedLength, Length: 100}, "early")
	return func() *downstream.StreamAnswer {
			return &downstream.StreamAnswer{Head: []byte("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"), Source: source, Opener: s.srv.worker()}
		}, func() {
			t.Helper()
			_, _ = io.Copy(io.Discard, server) // until it ends
			server.Close()
		}
}

// TestAfterClose: a Server that is closed resets all clients that it is still given, and keeps nothing of them.
func TestAfterClose(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	src, checkEnded := answerOf(t, s, a)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	if err := s.srv.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for name, give := range handedOver(s, src) {
		client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
			_, _ = io.ReadFull(nc, make([]byte, 1)) // so that no reset comes before dialTo returns
			give(socket{nc})
		}))
		_, _ = io.WriteString(client, "x")
		wantReset(t, name, client)
	}
	checkEnded()
	s.counts.waitNoStreams()
	if taken, _ := s.srv.Places(); taken != 0 || s.srv.headPlaces.Taken() != 0 {
		t.Errorf("%d places are taken, and %d without a head", taken, s.srv.headPlaces.Taken())
	}
}

// noEnd is a Socket that is no connection of the system.
type noEnd struct {
	loop.Socket
	closed int
}

func (s *noEnd) Close() error { s.closed++; return nil }

// noOutput is a connection whose output can't end.
type noOutput struct{ *noEnd }

func (noOutput) NetConn() net.Conn { return new(net.TCPConn) }

// noSystem is a connection that is none of the system, and so has no counters.
type noSystem struct{ *noEnd }

func (noSystem) CloseWrite() error { return nil }

// TestOtherSocket: a Server closes a Socket on which it can't carry a stream, and the response for it.
func TestOtherSocket(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	for _, other := range []loop.Socket{noOutput{}, noSystem{}} {
		if endOf(other) != nil {
			t.Errorf("%T can carry a stream", other)
		}
	}
	src, checkEnded := answerOf(t, s, a)
	for name, give := range handedOver(s, src) {
		client := &noEnd{}
		if give(client); client.closed != 1 {
			t.Errorf("%s: closed %d times", name, client.closed)
		}
	}
	checkEnded()
	s.counts.waitNoStreams()
}

// TestProxyProtocolLimits: connections count as those of a proxy until the header is there, and then as their client's.
func TestProxyProtocolLimits(t *testing.T) {
	const client, other = "PROXY TCP4 192.0.2.1 198.51.100.2 1 2\r\n", "PROXY TCP4 192.0.2.2 198.51.100.2 1 2\r\n"
	a := newApp(t)
	s := serveApp(t, "127.0.0.1:0", "connections: 1, "+proxyOnLoopback, "", a.addr, "5m, header: 5m")
	first := s.dial()
	_, _ = io.WriteString(first, client)
	server := receive(t, a.conns, "the connection")
	s.wantRefused() // before a header
	first.Close()
	server.Close()
	s.counts.waitIdle()

	waits := s.dial()
	s.eventually("the first to count", func() error {
		if s.counts.reactor.Stats().Inbound != 1 {
			return io.ErrNoProgress
		}
		return nil
	})
	s.wantRefused()
	_, _ = io.WriteString(waits, other)
	server = receive(t, a.conns, "the connection")
	waits.Close()
	server.Close()
	s.counts.waitIdle()
}

// TestProxyProtocolSources: a source that has its connections through proxies gets no more through them.
func TestProxyProtocolSources(t *testing.T) {
	a := newApp(t)
	s := startSidecar(t, `
admin: {address: ""}
listeners: [{name: in, address: "127.0.0.1:0", protocol: tcp, service: app, `+proxyOnLoopback+`}]
timeouts: {idle: 5m, header: 5m}
services: {app: {discover: static, endpoints: ["127.0.0.1:1"], protocol: tcp, connect_timeout: 15s}}`, reactor.Options{MaxPerSource: 1})
	s.update(endpoint(a.addr))
	s.open()
	open := func(client string) *net.TCPConn {
		nc := s.dial()
		_, _ = io.WriteString(nc, "PROXY TCP4 "+client+" 198.51.100.2 1 2\r\n")
		return nc
	}
	first := open("192.0.2.1")
	server := receive(t, a.conns, "the connection of the first client")
	wantReset(t, "the second connection of a client", open("192.0.2.1"))
	other := open("192.0.2.2")
	receive(t, a.conns, "the connection of another client").Close()
	other.Close()
	first.Close()
	server.Close()
	s.counts.waitIdle()
	if st := s.reactor.Stats(); st.RefusedSource != 1 {
		t.Errorf("%+v", st)
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
