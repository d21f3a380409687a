package stream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/fair/share"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/registry"
)

// acceptAddr returns an address whose connections are streams from another sidecar.
func (s *sidecar) acceptAddr(timeout time.Duration, st link.Stream) string {
	return acceptEach(s.t, func(nc *net.TCPConn) {
		s.srv.Accept(socket{nc}, &downstream.StreamAccept{Opener: s.srv.worker(), Service: "app", Timeout: timeout, Stream: st})
	})
}

// upgradeHead is a request to upgrade with a body of four bytes.
const upgradeHead = "GET /chat HTTP/1.1\r\nHost: app\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 4\r\n\r\n"

// TestAcceptRefuses: another sidecar that sends no request, or only a part in time, gets a response that says so.
func TestAcceptRefuses(t *testing.T) {
	a := newApp(t)
	for _, c := range []struct {
		name, more, says string
		ends, full       bool
		want             *fault.Failure
	}{
		{name: "late head", more: "timeouts: {header: 50ms}", says: "GET / HT", want: fault.SlowHead},
		{name: "cut head", says: "GET / HT", ends: true, want: fault.BadRequest},
		{name: "no request", says: "SSH-2.0\r\n\r\n", want: fault.BadRequest},
		{name: "late body", more: "timeouts: {body: 50ms}", says: upgradeHead + "bo", want: fault.SlowBody},
		{name: "cut body", says: upgradeHead + "bo", ends: true, want: fault.BadRequest},
		{name: "no memory for the body", says: upgradeHead + "bo", full: true, want: fault.Overloaded},
		{name: "no memory for the request", says: upgradeHead + "body", full: true, want: fault.Overloaded},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSidecar(t, options{more: c.more + "\naccess_log: {path: /log}"}, a.addr)
			if c.full {
				limit := int(s.srv.config().Limits.Buffered)
				s.proc.Charge(limit)
				defer s.proc.Charge(-limit)
			}
			client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
				s.srv.Accept(socket{nc}, &downstream.StreamAccept{
					Opener: s.srv.worker(), Service: "app", Timeout: waitLimit, Stream: link.Stream{Kind: link.StreamHTTP},
					Record: s.srv.worker().StreamRecord("in", "client", "app"),
				})
			}))
			_, _ = io.WriteString(client, c.says)
			if c.ends {
				_ = client.CloseWrite()
			}
			resp, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil {
				t.Fatal(err)
			}
			wantError(t, "the sidecar", resp, c.want.Status, c.want.Code)
			client.Close()
			s.counts.wantFailure(c.want.Code)
			s.counts.waitNoStreams()
			if l := s.log.line(0); l.Error != c.want.Code || l.Outcome == "cut" {
				t.Errorf("%+v", l)
			}
			if len(a.conns) > 0 {
				t.Error("the application got a connection")
			}
		})
	}
}

// countedSocket is a Socket that tells the test how much its first read has read.
type countedSocket struct {
	socket
	read chan<- int
}

func (s countedSocket) Read(b []byte) (int, error) {
	n, err := s.socket.Read(b)
	select {
	case s.read <- n:
	default: // a later read
	}
	return n, err
}

// TestAcceptUpgrade: an upgrade with a body reaches the application whole, in whatever pieces it comes, and the bytes behind it
// follow the response.
func TestAcceptUpgrade(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	for _, cut := range []int{1, len(upgradeHead), len(upgradeHead) + 1, len(upgradeHead) + 4, len(upgradeHead) + 6} {
		read := make(chan int, 1)
		client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
			s.srv.Accept(countedSocket{socket{nc}, read}, &downstream.StreamAccept{
				Opener: s.srv.worker(), Service: "app", Timeout: waitLimit, Stream: link.Stream{Kind: link.StreamHTTP},
			})
		}))
		all := upgradeHead + "bodyearly"
		_, _ = io.WriteString(client, all[:cut])
		if n := receive(t, read, "the first piece to be read"); n != cut {
			t.Fatalf("the first %d bytes are read, want %d", n, cut)
		}
		_, _ = io.WriteString(client, all[cut:])
		server := receive(t, a.conns, "the connection")
		from := bufio.NewReader(server)
		req, err := http.ReadRequest(from)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(req.Body); string(body) != "body" || err != nil || req.Header.Get("Upgrade") != "websocket" {
			t.Errorf("cut at %d: the application got %q, %v, %v", cut, body, err, req.Header)
		}
		_, _ = io.WriteString(server, "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\nDate: x\r\n\r\n")
		early := make([]byte, 5)
		if _, err := io.ReadFull(from, early); string(early) != "early" || err != nil {
			t.Errorf("cut at %d: behind the request came %q, %v", cut, early, err)
		}
		client.Close()
		server.Close()
		s.counts.waitIdle()
	}
}

// TestAcceptTimeLeft: an application that reads the header of the timeout, or has got one from its client, is told of the
// time left.
func TestAcceptTimeLeft(t *testing.T) {
	const timeout = time.Hour
	for _, c := range []struct {
		service, header string
		want            bool
	}{{"", "", false}, {"", "X-Remora-Timeout-Ms: 9999999\r\n", true}, {", timeout_header: true", "", true}} {
		a := newApp(t)
		s := startSidecar(t, `
admin: {address: ""}
listeners: [{name: in, address: "127.0.0.1:0", protocol: tcp, service: app}]
services: {app: {discover: static, endpoints: ["127.0.0.1:1"], protocol: http`+c.service+`}}`, reactor.Options{})
		s.update(endpoint(a.addr))
		client := s.dialTo(s.acceptAddr(timeout, link.Stream{Kind: link.StreamHTTP}))
		_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: app\r\n"+c.header+"\r\n")
		server := receive(t, a.conns, "the connection")
		req, err := http.ReadRequest(bufio.NewReader(server))
		if err != nil {
			t.Fatal(err)
		}
		got := req.Header.Get("X-Remora-Timeout-Ms")
		if left, _ := strconv.Atoi(got); (got != "") != c.want || c.want && (left <= 0 || left > int(timeout.Milliseconds())) {
			t.Errorf("%q with %q: the time left is %q", c.service, c.header, got)
		}
		server.Close()
		client.Close()
		s.counts.waitIdle()
	}
}

// wantReason checks that a peer gets nothing but the reason of a failure.
func wantReason(t *testing.T, nc net.Conn, want link.Reason) {
	t.Helper()
	if b, err := io.ReadAll(nc); len(b) != 1 || link.Reason(b[0]) != want || err != nil {
		t.Errorf("got %q, %v; want reason %d", b, err, want)
	}
}

// TestFetchRefused: a response that can't be fetched is refused with a reason, by this process and for the next one.
func TestFetchRefused(t *testing.T) {
	s := newSidecar(t, options{more: "limits: {streams: 1}"})
	parking, err := s.srv.Parking()
	if err != nil {
		t.Fatal(err)
	}
	fetch := s.acceptAddr(waitLimit, link.Stream{Kind: link.StreamAnswer, Token: link.Token{1}})
	ask := func(addr string) net.Conn {
		nc := s.dialTo(addr)
		if addr == parking {
			_, _ = nc.Write(make([]byte, len(link.Token{})))
		}
		return nc
	}
	for _, addr := range []string{fetch, parking} {
		wantReason(t, ask(addr), link.DeadlinePassed) // nothing is parked under the token
		s.counts.waitNoStreams()
	}
	s.srv.parking.mu.Lock()
	s.srv.parking.previous = refusingAddr(t)
	s.srv.parking.mu.Unlock()
	wantReason(t, ask(fetch), link.DeadlinePassed)
	s.counts.waitNoStreams()

	place := s.srv.places.Take(share.Source{}, func() { t.Error("evicted") })
	for n, addr := range []string{fetch, parking} {
		wantReason(t, ask(addr), link.Overload)
		s.eventually("the failure to be counted", func() error {
			if _, failures := s.counts.totals(); failures["too-many-streams"] != uint64(n+1) {
				return errors.New("not yet")
			}
			return nil
		})
	}
	place.Release()

	cut := s.dialTo(parking)
	_, _ = cut.Write(make([]byte, len(link.Token{})-1))
	_ = cut.CloseWrite()
	wantReset(t, "a process that sends a part of a token", cut)
	s.counts.waitNoStreams()
}

// TestFetchesWaiting: at most maxFetches connections that send no token stay open.
func TestFetchesWaiting(t *testing.T) {
	s := newSidecar(t, options{})
	parking, err := s.srv.Parking()
	if err != nil {
		t.Fatal(err)
	}
	waiting := make([]*net.TCPConn, maxFetches)
	for i := range waiting {
		waiting[i] = s.dialTo(parking)
	}
	s.wantRefused()
	waiting[0].Close()
	s.eventually("a place", func() error {
		nc, err := net.Dial("tcp", parking)
		if err != nil {
			return err
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(waitLimit))
		if _, err := nc.Write(make([]byte, len(link.Token{}))); err != nil {
			return err
		}
		_, err = io.ReadFull(nc, make([]byte, 1))
		return err
	})
}

// TestParkingClosed: a Server that is closed parks nothing.
func TestParkingClosed(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	src, server := s.entry.source(a, http1.Head{Framing: http1.UntilClose}, "x")
	if err := s.srv.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if token, ok := s.srv.Park(src, shard.Client{}); ok || token != (link.Token{}) || s.srv.Parked() != 0 {
		t.Errorf("parked under %x", token)
	}
	if addr, err := s.srv.Parking(); addr != "" || !errors.Is(err, ErrClosed) {
		t.Errorf("parking at %q, %v", addr, err)
	}
	src.Close()
	server.Close()
}

// TestCloseWaits: Close returns with the end of its context while a stream does not end, and without an error later.
func TestCloseWaits(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	dialled, release := make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	o := s.srv.opt
	o.Dial = func(context.Context, string, string, string, []byte) (loop.Socket, error) {
		close(dialled)
		<-release
		for range 10_000 { // a Close that does not wait ends first
			runtime.Gosched()
		}
		ended.Store(true)
		return nil, os.ErrDeadlineExceeded
	}
	srv := New(o)
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		srv.Accept(socket{nc}, &downstream.StreamAccept{Opener: srv.worker(), Service: "app", Timeout: waitLimit, Stream: link.Stream{Kind: link.StreamOpaque}})
	}))
	receive(t, dialled, "the dial")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := srv.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("while a dial does not end: %v", err)
	}
	wantReset(t, "the client", client)
	close(release)
	if err := srv.Close(t.Context()); err != nil || !ended.Load() {
		t.Errorf("the dial has ended: %t; %v", ended.Load(), err)
	}
	s.counts.waitNoStreams()
}

// TestAnswerOfDownEndpoint: a response whose endpoint has gone down since is not passed on.
func TestAnswerOfDownEndpoint(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	for _, service := range []string{"another", "app"} {
		src, server := s.entry.source(a, http1.Head{Framing: http1.FixedLength, Length: 5}, "early")
		src.Service, src.Addr = "app", a.addr
		s.srv.SetDown(service, []string{a.addr})
		client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
			s.srv.Answer(socket{nc}, &downstream.StreamAnswer{Opener: s.srv.worker(), Head: []byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), Source: src})
		}))
		resp, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatal(err)
		}
		if down := fault.EndpointDown; service == "app" {
			wantError(t, "the client", resp, down.Status, down.Code)
		} else if body, err := io.ReadAll(resp.Body); string(body) != "early" || err != nil {
			t.Errorf("of an endpoint that is up: %q, %v", body, err)
		}
		client.Close()
		server.Close()
		s.counts.waitIdle()
	}
}

// encrypted is a socket whose bytes pass through memory of the sidecar, as those of TLS do.
type encrypted struct{ socket }

func (encrypted) Secure() bool { return true }

// TestTunnelMemory: once limits.buffered is reached, tunnels are refused that hold bytes, and others are not.
func TestTunnelMemory(t *testing.T) {
	for _, c := range []struct{ secure, full, refused bool }{{false, false, false}, {false, true, false}, {true, false, false}, {true, true, true}} {
		a := newApp(t)
		s := newSidecar(t, options{}, a.addr)
		limit := 0
		if c.full {
			limit = int(s.srv.config().Limits.Buffered)
		}
		s.proc.Charge(limit)
		client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
			down := loop.Socket(socket{nc})
			if c.secure {
				down = encrypted{socket{nc}}
			}
			s.srv.Accept(down, &downstream.StreamAccept{
				Opener: s.srv.worker(), Service: "app", Timeout: waitLimit, Stream: link.Stream{Kind: link.StreamOpaque}, Rest: []byte("early"),
			})
		}))
		if c.refused {
			wantReason(t, client, link.Overload)
			s.counts.wantFailure(fault.Overloaded.Code)
		} else {
			wantRead(t, "the client", client, string([]byte{link.StreamTaken}))
			server := receive(t, a.conns, "the connection")
			_, _ = io.WriteString(client, "late")
			wantRead(t, "the server", server, "earlylate")
			server.Close()
		}
		client.Close()
		s.counts.waitIdle()
		s.proc.Charge(-limit)
	}
}

// TestWorkersInTurn: streams are shared out to the loops one after another.
func TestWorkersInTurn(t *testing.T) {
	s := newSidecar(t, options{})
	all := s.proc.Workers()
	first := slices.Index(all, s.srv.worker())
	for n := range 2 * len(all) {
		if got, want := s.srv.worker(), all[(first+1+n)%len(all)]; got != want {
			t.Errorf("stream %d is not for the next loop", n+2)
		}
	}
}

// TestNameOfEndpoint: an endpoint must prove the host of the request if its service says so, and the request has one.
func TestNameOfEndpoint(t *testing.T) {
	at := race.Target{Addr: "192.0.2.1:443", Host: "endpoint.test"}
	for _, c := range []struct{ server, host, want string }{
		{"", "request.test", "endpoint.test"}, {"fixed.test", "request.test", "fixed.test"},
		{config.SNIHost, "request.test", "request.test"}, {config.SNIHost, "", "endpoint.test"},
	} {
		tls := &config.ServiceTLS{SNI: c.server}
		if got := (&endpointQuery{host: c.host}).serverName(tls, at); got != c.want {
			t.Errorf("%q for %q: %q, want %q", c.server, c.host, got, c.want)
		}
	}
}

// TestPrefaceFails: a sidecar that does not take a tunnel loses its connection, and another one gets the tunnel.
func TestPrefaceFails(t *testing.T) {
	for _, c := range []struct {
		name       string
		unwritable bool
		then       func(nc *net.TCPConn)
	}{
		{"nothing can be sent", true, func(*net.TCPConn) {}},
		{"no answer", false, func(nc *net.TCPConn) { _ = nc.CloseWrite() }},
		{"refused", false, func(nc *net.TCPConn) { _, _ = nc.Write([]byte{byte(link.Overload)}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newApp(t), newApp(t)
			s := newSidecar(t, options{})
			taken := make(chan struct{}) // the test has the first connection
			s.dialBy(func(n int32, nc socket) (loop.Socket, error) {
				if <-taken; n == 1 && c.unwritable {
					return unwritable{nc}, nil
				}
				return nc, nil
			})
			s.update(registry.Endpoint{Addr: a.addr, Weight: 1, Protocol: config.ProtocolLink}, registry.Endpoint{Addr: b.addr, Weight: 1, Protocol: config.ProtocolLink})
			client := s.dialTo(s.acceptAddr(waitLimit, link.Stream{Kind: link.StreamOpaque}))
			first := either(t, a, b)
			close(taken)
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

// TestAcceptedFrom: a stream from another sidecar counts for the client that its head names. The response has the cookie of the
// endpoint.
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
