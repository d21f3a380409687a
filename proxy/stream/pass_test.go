package stream

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// redirected returns both ends of a connection of a client that was redirected to a
// listener.
func redirected(t *testing.T) (client *net.TCPConn, here socket) {
	t.Helper()
	listener := newApp(t)
	client, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(listener.addr)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	_ = client.SetDeadline(time.Now().Add(waitLimit))
	here = socket{receive(t, listener.conns, "the connection")}
	t.Cleanup(func() { here.Close() })
	return client, here
}

// TestPass: bytes read early are sent first, and either side may send first. When one
// side closes its direction, the other direction continues.
func TestPass(t *testing.T) {
	s := newSidecar(t, options{})
	app := newApp(t)
	client, here := redirected(t)
	s.srv.Pass("in", here, netip.MustParseAddrPort(app.addr), []byte("early "))
	server := receive(t, app.conns, "the original destination to get the connection")
	_, _ = io.WriteString(server, "220 ready\r\n")
	wantRead(t, "the client", client, "220 ready\r\n")
	_, _ = io.WriteString(client, "and late")
	_ = client.CloseWrite()
	if got, err := io.ReadAll(server); string(got) != "early and late" || err != nil {
		t.Errorf("the server read %q, %v", got, err)
	}
	_, _ = io.WriteString(server, "221 bye\r\n")
	server.Close()
	if got, err := io.ReadAll(client); string(got) != "221 bye\r\n" || err != nil {
		t.Errorf("the client read %q, %v", got, err)
	}
	s.counts.waitIdle()
	if n, failures := s.counts.passes(); n != 1 || len(failures) != 0 {
		t.Errorf("%d passed, failures %v", n, failures)
	}
}

// TestPassRefused: if the original destination refuses the connection, the client is
// reset.
func TestPassRefused(t *testing.T) {
	s := newSidecar(t, options{})
	client, here := redirected(t)
	s.srv.Pass("in", here, netip.MustParseAddrPort(refusingAddr(t)), []byte("hello"))
	wantReset(t, "the client of a server that is not there", client)
	s.counts.wantFailure("upstream-connect")
	s.counts.waitIdle()
}

// TestPassLoop: the sidecar's own connection to an original destination, if the kernel
// redirects it to the sidecar too, is refused, and the client is reset.
func TestPassLoop(t *testing.T) {
	s := newSidecar(t, options{})
	app := newApp(t)
	to := netip.MustParseAddrPort(app.addr)
	client, here := redirected(t)
	s.srv.Pass("in", here, to, []byte("hello"))
	again := receive(t, app.conns, "the first connection")
	wantRead(t, "the first destination", again, "hello") // so it is in hops
	s.srv.Pass("in", socket{again}, to, []byte("hello"))
	wantReset(t, "the client", client)
	if n := len(app.conns); n != 0 {
		t.Errorf("%d connections more", n)
	}
	s.counts.wantFailure("loop-detected")
	s.counts.waitIdle()

	// The addresses may be used again once the connection has ended.
	if s.srv.hops.has(hop{addrPort(again.RemoteAddr()), to}) {
		t.Error("the connection is still in hops")
	}
}

// guardedRoutes is a configuration with rules.
const guardedRoutes = `routes: [{match: {host: admin}, service: app, allow: {rules: [{path: [/open]}]}}]`

// TestPassGuarded: while routes have rules, an HTTP request that comes later than the sidecar waits for one
// does not pass unread, whoever has spoken first. All else does.
func TestPassGuarded(t *testing.T) {
	s := newSidecar(t, options{more: guardedRoutes})
	refused := 0
	for _, c := range []struct {
		first, says string
		passes      bool
	}{
		{"", "EHLO a\r\n", true},
		{"", "\x16\x03\x01", true},
		{"", "get key\r\n", true},
		{"PI", "NG\r\n", true},
		{"*1\r\n", "DELETE /secret HTTP/1.1\r\n", true}, // which no HTTP server takes
		{"", "DELETE /secret HTTP/1.1\r\nHost: admin\r\n\r\n", false},
		{"DELETE /sec", "ret HTTP/1.1\r\nHost: admin\r\n\r\n", false},
		{"\r\n", "DELETE  /secret HTTP/1.1\r\nHost: admin\r\n\r\n", false},
		{"", "DELETE\f/secret\fHTTP/1.1\r\nHost: admin\r\n\r\n", false},
		{"", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false},
	} {
		app := newApp(t)
		client, here := redirected(t)
		s.srv.Pass("in", here, netip.MustParseAddrPort(app.addr), []byte(c.first))
		server := receive(t, app.conns, "the original destination to get the connection")
		_, _ = io.WriteString(server, "220 ready\r\n")
		wantRead(t, "the client", client, "220 ready\r\n")
		_, _ = io.WriteString(client, c.says)
		if c.passes {
			wantRead(t, "the server", server, c.first+c.says)
			client.Close()
			server.Close()
			continue
		}
		refused++
		if got, err := io.ReadAll(server); len(got) > 0 || err == nil {
			t.Errorf("%q: the server read %q, %v", c.first+c.says, got, err)
		}
		wantReset(t, "the client", client)
	}
	s.counts.waitIdle()
	s.eventually("the refusals", func() error {
		if _, failures := s.counts.passes(); failures["not-allowed"] != uint64(refused) {
			return fmt.Errorf("%v", failures)
		}
		return nil
	})
}

// TestOriginalDestination: a request of a redirected connection that no route takes goes on by itself: what
// follows it stays here.
func TestOriginalDestination(t *testing.T) {
	s := newSidecar(t, options{})
	app := newApp(t)
	to := netip.MustParseAddrPort(app.addr)
	client, here := redirected(t)
	r := &downstream.StreamRequest{
		Kind: stats.StreamBody, Opener: s.srv.worker(), Timeout: waitLimit, Minor: 1, Head: []byte("GET /a HTTP/1.1\r\nHost: other\r\n\r\n"),
		Unrouted: &downstream.Unrouted{Authority: "no.such.host.invalid", To: to}, Buffer: buffers.Get(0),
		Rest: []byte("DELETE /secret HTTP/1.1\r\nHost: admin\r\n\r\n"),
	}
	r.Body.Reset(&http1.Head{}, s.srv.limits())
	head := string(r.Head)
	s.srv.Request(here, r)
	server := receive(t, app.conns, "the original destination to get the connection")
	wantRead(t, "the server", server, head)
	_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	if got, err := io.ReadAll(client); !strings.HasPrefix(string(got), "HTTP/1.1 200 ") || strings.Count(string(got), "HTTP/1.1 ") != 1 || err != nil {
		t.Errorf("the client read %q, %v", got, err)
	}
	if got, err := io.ReadAll(server); len(got) > 0 || err != nil {
		t.Errorf("the server read on: %q, %v", got, err)
	}
	s.counts.waitIdle()
}

// TestPassClose: Close resets redirected connections, and later ones are reset at once.
func TestPassClose(t *testing.T) {
	s := newSidecar(t, options{})
	app := newApp(t)
	client, here := redirected(t)
	s.srv.Pass("in", here, netip.MustParseAddrPort(app.addr), nil)
	receive(t, app.conns, "the connection")
	if err := s.srv.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantReset(t, "the client", client)
	client, here = redirected(t)
	s.srv.Pass("in", here, netip.MustParseAddrPort(app.addr), nil)
	wantReset(t, "a client that comes too late", client)
}
