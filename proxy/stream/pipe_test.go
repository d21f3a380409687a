package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux/httpstream"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// peer is at the loop's end of a pipe: the test is the loop.
type peer struct {
	t                 *testing.T
	pipe              loop.Pipe
	changed           chan struct{}
	httpstream.Reader // what the goroutine writes
	to                httpstream.Writer
}

// newPeer returns both ends of a pipe.
func (e *entry) newPeer() (*peer, loop.Socket) {
	p := &peer{t: e.t, changed: make(chan struct{}, 1)}
	var socket loop.Socket
	p.pipe, socket = e.srv.NewPipe(e.loop, "192.0.2.1:1234", func() {
		select {
		case p.changed <- struct{}{}:
		default:
		}
	})
	e.t.Cleanup(func() { p.pipe.Close(nil) })
	return p, socket
}

// next returns the next event that is not Pending.
func (p *peer) next() httpstream.Event {
	p.t.Helper()
	for {
		if e := p.Next(); e != httpstream.Pending {
			return e
		}
		receive(p.t, p.changed, "output of a pipe")
	}
}

func (p *peer) want(e httpstream.Event) {
	p.t.Helper()
	if got := p.next(); got != e {
		p.t.Fatalf("event %d, want %d; the response has the status %d %s", got, e, p.Response.Status, p.Failure())
	}
}

// wantBody checks that the next pieces of the body are want.
func (p *peer) wantBody(want string) {
	p.t.Helper()
	for got := ""; got != want; {
		p.want(httpstream.Piece)
		got += string(p.Piece())
		p.Reader.Consume(len(p.Piece()))
		if len(got) > len(want) {
			p.t.Fatalf("the body has %q, want %q", got, want)
		}
	}
}

func (p *peer) wantState(want loop.PipeState) {
	p.t.Helper()
	for p.pipe.State() != want {
		receive(p.t, p.changed, fmt.Sprint("a pipe in state ", p.pipe.State(), " to be in state ", want))
	}
}

var grpc = []protocol.Header{{Name: []byte("Content-Type"), Value: []byte("application/grpc")}}

// call begins a request with a body of unknown length, whose client has a pipe.
func (e *entry) call(opener race.Opener, headers []protocol.Header) *peer {
	return e.callRepeated(opener, headers, 0)
}

// callRepeated is call for a request that may be sent again so often.
func (e *entry) callRepeated(opener race.Opener, headers []protocol.Header, repeats int) *peer {
	p, socket := e.newPeer()
	h := http1.Head{Framing: http1.Chunked}
	req := protocol.Request{Method: []byte("POST"), Path: []byte("/a"), Authority: []byte("app"), Headers: headers}
	r := &downstream.StreamRequest{
		Kind: stats.StreamBody, Opener: opener, Service: "app", Timeout: waitLimit, Minor: 1, Chunks: true,
		Repeats: repeats, Head: http1.AppendStreamRequest(nil, &req, &h), Buffer: buffers.Get(0), Interactive: protocol.Interactive(headers),
	}
	r.Body.Reset(&h, e.srv.limits())
	p.Reader.InitResponse(p.pipe, e.srv.limits(), false)
	p.to.Init(p.pipe, true)
	e.srv.Request(socket, r)
	return p
}

// TestPipeConversation: both sides of a call talk in turn. Each piece arrives at once, though the
// request has not ended, and the trailers of both arrive, also over links between sidecars.
func TestPipeConversation(t *testing.T) {
	a := newApp(t)
	test := func(t *testing.T, c *chain) {
		s := c.nodes[0]
		client := s.entry.call(s.proc.Workers()[0], grpc)
		server := receive(t, a.conns, "the connection")
		readUntil(t, server, "\r\n\r\n")
		_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
		client.want(httpstream.Head)
		client.wantBody("hello")
		for range 3 {
			client.to.Data([]byte("ping"))
			readUntil(t, server, "4\r\nping\r\n")
			_, _ = io.WriteString(server, "4\r\npong\r\n")
			client.wantBody("pong")
		}
		client.to.End([]protocol.Header{{Name: []byte("sum"), Value: []byte("1")}})
		readUntil(t, server, "0\r\nsum: 1\r\n\r\n")
		_, _ = io.WriteString(server, "0\r\ngrpc-status: 0\r\n\r\n")
		client.want(httpstream.End)
		if got := protocol.Find(client.Trailers(), "grpc-status"); string(got) != "0" {
			t.Errorf("the trailers are %q", client.Trailers())
		}
		client.wantState(loop.PipeClosed)
		if n := client.to.Taken(); n != 12 {
			t.Errorf("%d bytes were taken", n)
		}
		if rest, err := io.ReadAll(server); len(rest) > 0 || err != nil {
			t.Errorf("the application read %q, %v", rest, err)
		}
		server.Close()
		s.eventually("the stream to be counted", func() error {
			if sum, _ := s.counts.totals(); sum.StreamBytesIn == 0 || sum.StreamBytesOut == 0 {
				return fmt.Errorf("%d bytes in, %d out", sum.StreamBytesIn, sum.StreamBytesOut)
			}
			return nil
		})
	}
	linked(t, chainOptions{}, test, a.addr)
	linked(t, chainOptions{sidecars: 1}, test, a.addr)
}

// TestParkedTrailers: a response that turns out to be a stream keeps its trailers over a link.
func TestParkedTrailers(t *testing.T) {
	a := newApp(t)
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		client := c.dial()
		_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: app\r\n\r\n")
		server := receive(t, a.conns, "the connection")
		_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
		readUntil(t, client, "hello\r\n")
		_, _ = io.WriteString(server, "0\r\ngrpc-status: 5\r\n\r\n")
		if rest, err := io.ReadAll(client); string(rest) != "0\r\ngrpc-status: 5\r\n\r\n" || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
		client.Close()
		server.Close()
	}, a.addr)
}

// TestPipeResponseFirst: a client gets the whole of a response that does not wait for the end of
// its request, and the rest of that is not sent.
func TestPipeResponseFirst(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	client := s.entry.call(s.proc.Workers()[0], grpc)
	server := receive(t, a.conns, "the connection")
	readUntil(t, server, "\r\n\r\n")
	_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
	client.want(httpstream.Head)
	client.wantBody("hello")
	client.want(httpstream.End)
	client.wantState(loop.PipeClosed)
	wantReset(t, "the application", server)
	s.counts.waitIdle()
}

// TestPipeClientGivesUp: a client that resets its stream disconnects the application at once,
// whatever the stream waits for.
func TestPipeClientGivesUp(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	for name, wait := range map[string]func(client *peer, server net.Conn){
		"for the response": func(*peer, net.Conn) {},
		"for the request": func(client *peer, server net.Conn) {
			_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
			client.want(httpstream.Head)
			client.wantBody("hello")
		},
		"for the application": func(client *peer, _ net.Conn) {
			client.to.Data(make([]byte, 16<<20)) // more than the kernel takes
			client.to.Taken()
		},
		"for the client": func(client *peer, server net.Conn) {
			_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
			client.want(httpstream.Head)
			stall(t, server, 16<<20)
		},
	} {
		client := s.entry.call(s.proc.Workers()[0], grpc)
		server := receive(t, a.conns, "the connection")
		readUntil(t, server, "\r\n\r\n")
		wait(client, server)
		client.pipe.Close(nil)
		if _, err := io.Copy(io.Discard, server); err == nil {
			t.Errorf("%s: the application read an end of file", name)
		}
		server.Close()
		s.counts.waitIdle()
	}
}

// TestPipeFailure: a client learns by a response why its request could not be served.
func TestPipeFailure(t *testing.T) {
	s := newSidecar(t, options{}, refusingAddr(t))
	client := s.entry.call(s.proc.Workers()[0], grpc)
	client.want(httpstream.Head)
	if got := string(client.Failure()); got != fault.Connect.Code || client.Response.Status != fault.Connect.Status {
		t.Errorf("status %d %s", client.Response.Status, got)
	}
	for client.next() == httpstream.Piece {
		client.Reader.Consume(len(client.Piece()))
	}
	client.want(httpstream.End)
	client.wantState(loop.PipeClosed)
	s.counts.waitIdle()
}

// TestPipeSlowClient: a response that its client does not take ends in a reset.
func TestPipeSlowClient(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{more: "timeouts: {write: 10ms}"}, a.addr)
	client := s.entry.call(s.proc.Workers()[0], grpc)
	server := receive(t, a.conns, "the connection")
	readUntil(t, server, "\r\n\r\n")
	_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
	client.wantState(loop.PipeReset)
	client.want(httpstream.Broken)
	server.Close()
	s.counts.waitIdle()
}

// TestPipePace: a conversation may pause for longer than a body of other messages.
func TestPipePace(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	s.srv.window = 20 * time.Millisecond
	talk := s.entry.call(s.proc.Workers()[0], grpc)
	first := receive(t, a.conns, "the connection")
	readUntil(t, first, "\r\n\r\n")
	upload := s.entry.call(s.proc.Workers()[0], nil)
	second := receive(t, a.conns, "the connection")
	upload.want(httpstream.Head)
	if got := string(upload.Failure()); got != fault.BodyTooSlow.Code {
		t.Errorf("an upload without bytes ends with %q", got)
	}
	talk.to.Data([]byte("ping"))
	readUntil(t, first, "4\r\nping\r\n")
	first.Close()
	second.Close()
}

// pipeOpener leads streams to a pipe in place of the first endpoint that is picked.
type pipeOpener struct {
	race.Opener
	socket loop.Socket
}

func (o *pipeOpener) Open(service string, picked race.Picked) {
	o.Opener.Open(service, func(st *race.Stream, at race.Target, f *fault.Failure) {
		at.Socket = o.socket
		picked(st, at, f)
	})
}

// TestPipeEndpoint: a request reaches an endpoint by a pipe once that is open, and its response
// comes back, each with its trailers.
func TestPipeEndpoint(t *testing.T) {
	s := newSidecar(t, options{more: "via: on"}, "127.0.0.1:1")
	server, socket := s.entry.newPeer()
	server.InitRequest(server.pipe, s.srv.limits())
	server.to.InitResponse(server.pipe)
	client := s.entry.call(&pipeOpener{s.proc.Workers()[0], socket}, grpc)
	client.to.Data([]byte("ping"))
	server.pipe.Open()
	server.want(httpstream.Head)
	if server.Length != -1 || string(server.Request.Path) != "/a" {
		t.Errorf("%s of length %d", server.Request.Path, server.Length)
	}
	server.wantBody("ping")
	if !server.to.Response(&protocol.Response{Status: 200, DeclaredLength: -1, Headers: grpc}, false, false) {
		t.Fatal("the response is refused")
	}
	server.to.Data([]byte("pong"))
	client.want(httpstream.Head)
	if got := protocol.Find(client.Response.Headers, "via"); string(got) != "2.0 remora" {
		t.Errorf("the response came by %q", got)
	}
	client.wantBody("pong")
	client.to.End([]protocol.Header{{Name: []byte("sum"), Value: []byte("1")}})
	server.want(httpstream.End)
	server.to.End([]protocol.Header{{Name: []byte("grpc-status"), Value: []byte("0")}})
	client.want(httpstream.End)
	if in, out := server.Trailers(), client.Trailers(); len(in) != 1 || string(in[0].Value) != "1" || len(out) != 1 || string(out[0].Value) != "0" {
		t.Errorf("the trailers are %q and %q", in, out)
	}
	client.wantState(loop.PipeClosed)
	server.wantState(loop.PipeClosed)
	server.pipe.Close(nil)
	s.counts.waitIdle()
}

// TestPipeEndpointFails: an endpoint that can't be reached by its pipe is one that can't be
// dialled, and one that resets a stream fails it.
func TestPipeEndpointFails(t *testing.T) {
	a, b := newApp(t), newApp(t)
	for _, c := range []struct {
		name      string
		endpoints []string
		fail      func(server *peer)
		want      string // of the failure; "" means that another endpoint serves
	}{
		{"no connection", []string{a.addr, b.addr}, func(p *peer) { p.pipe.Close(errors.New("refused")) }, ""},
		{"alone", []string{"127.0.0.1:1"}, func(p *peer) { p.pipe.Close(errors.New("refused")) }, fault.Connect.Code},
		{"too many dials", []string{"127.0.0.1:1"}, func(p *peer) { p.pipe.Close(loop.ErrDialQueue) }, fault.DialLimit.Code},
		{"reset", []string{"127.0.0.1:1"}, func(p *peer) { p.pipe.Open(); p.want(httpstream.Head); p.pipe.Close(nil) }, fault.Reset.Code},
		{"down", []string{"127.0.0.1:1"}, func(p *peer) { p.wantState(loop.PipeReset) }, fault.EndpointDown.Code},
	} {
		s := newSidecar(t, options{}, c.endpoints...)
		if c.want == fault.EndpointDown.Code {
			s.srv.SetDown("app", c.endpoints)
		}
		server, socket := s.entry.newPeer()
		server.InitRequest(server.pipe, s.srv.limits())
		client := s.entry.call(&pipeOpener{s.proc.Workers()[0], socket}, grpc)
		c.fail(server)
		if c.want == "" {
			app := either(t, a, b)
			_, _ = io.WriteString(app, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			app.Close()
		}
		client.want(httpstream.Head)
		if got := string(client.Failure()); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		client.pipe.Close(nil)
		s.counts.waitIdle()
	}
}

// either returns the first connection of two applications.
func either(t *testing.T, a, b *app) *net.TCPConn {
	t.Helper()
	select {
	case c := <-a.conns:
		return c
	case c := <-b.conns:
		return c
	case <-time.After(waitLimit):
		t.Fatal("no application got the connection")
		return nil
	}
}

// TestPipeTunnel: a pipe to an endpoint takes no opaque bytes.
func TestPipeTunnel(t *testing.T) {
	s := newSidecar(t, options{}, "127.0.0.1:1")
	server, socket := s.entry.newPeer()
	client, down := s.entry.newPeer()
	client.Reader.InitResponse(client.pipe, s.srv.limits(), false)
	s.srv.Request(down, &downstream.StreamRequest{
		Kind: stats.StreamConnect, Opener: &pipeOpener{s.proc.Workers()[0], socket}, Service: "app", Timeout: waitLimit, Minor: 1,
	})
	client.want(httpstream.Head)
	if got := string(client.Failure()); got != fault.Unsupported.Code {
		t.Errorf("failure %q", got)
	}
	server.wantState(loop.PipeReset)
	client.pipe.Close(nil)
	s.counts.waitIdle()
}

// TestPipeServerClosed: the end of the process resets the streams of pipes.
func TestPipeServerClosed(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	client := s.entry.call(s.proc.Workers()[0], grpc)
	server := receive(t, a.conns, "the connection")
	readUntil(t, server, "\r\n\r\n")
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := s.srv.Close(ctx); err != nil {
		t.Error(err)
	}
	client.wantState(loop.PipeReset)
	wantReset(t, "the application", server)
}
