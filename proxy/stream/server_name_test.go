package stream

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/reactor/hello"
)

// startRouted starts a sidecar whose tcp listener leads to the service app by the server name web.test, and opens the listener.
func startRouted(t *testing.T, more string, endpoints ...string) *sidecar {
	t.Helper()
	s := startSidecar(t, `
admin: {address: ""}
access_log: {path: "-"}
listeners: [{name: in, address: "127.0.0.1:0", protocol: tcp}]
routes: [{match: {sni: first.test}, service: other}, {match: {sni: web.test}, service: app}]
services:
  app: {discover: static, endpoints: ["127.0.0.1:1"], protocol: tcp, connect_timeout: 15s}
  other: {discover: static, endpoints: ["127.0.0.1:1"], protocol: tcp}
`+cmp.Or(more, "timeouts: {header: 5m}"), reactor.Options{})
	if len(endpoints) > 0 {
		s.update(endpoint(endpoints[0]))
	}
	s.open()
	return s
}

// clientHello returns the record with which a client of TLS asks for a server.
func clientHello(t *testing.T, name string) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	go func() { _ = tls.Client(client, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake() }()
	head := must.Read(t, server, 5)
	return append(head, must.Read(t, server, int(head[3])<<8|int(head[4]))...)
}

// TestServerName: a connection goes to the service of the route with its server name, with all bytes, in whatever pieces they
// come.
func TestServerName(t *testing.T) {
	a := newApp(t)
	s := startRouted(t, "", a.addr)
	says := append(clientHello(t, "web.test"), "more"...)
	for n, piece := range []int{len(says), len(says) - 4, 100, 1} {
		client := s.dial()
		for rest := says; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
			must.Write(t, client, rest[:min(piece, len(rest))])
		}
		_ = client.CloseWrite()
		server := receive(t, a.conns, "the connection")
		if b, err := io.ReadAll(server); !bytes.Equal(b, says) || err != nil {
			t.Errorf("pieces of %d: the application got %d bytes of %d, %v", piece, len(b), len(says), err)
		}
		must.Write(t, server, "back")
		server.Close()
		wantRead(t, "the client", client, "back")
		client.Close()
		if l := s.log.line(n); l.Listener != "in" || l.Service != "app" || l.Endpoint != a.addr || l.Error != "" || l.BytesIn != len(says) || l.BytesOut != 4 {
			t.Errorf("the access line is %+v", l)
		}
	}
	s.counts.waitIdle()
}

// TestServerNameRefused: a client learns by an alert that no route takes its server name, or that it has sent no ClientHello. Each is
// counted and logged once, and a health check is not.
func TestServerNameRefused(t *testing.T) {
	for name, c := range map[string]struct {
		says, more string
		held       int    // bytes, by others
		heard      string // "" means a reset, if there is a code
		code       string // "" means that nothing is counted
	}{
		"another name":     {says: string(clientHello(t, "other.test")), heard: string(hello.Alert(hello.UnrecognizedName)), code: "no-route"},
		"no name":          {says: string(clientHello(t, "")), heard: string(hello.Alert(hello.UnrecognizedName)), code: "no-route"},
		"HTTP":             {says: "GET / HTTP/1.1\r\n\r\n", code: "bad-client-hello"},
		"another message":  {says: "\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", heard: string(hello.Alert(10)), code: "bad-client-hello"},
		"a part":           {says: "\x16\x03\x01", more: "timeouts: {header: 50ms}", code: "bad-client-hello"},
		"silence":          {more: "timeouts: {header: 50ms}", code: "bad-client-hello"},
		"short of memory":  {held: 1 << 40, code: "overloaded"},
		"an early end":     {},
		"a name, in parts": {says: string(clientHello(t, "other.test")[:200]), more: "timeouts: {header: 50ms}", code: "bad-client-hello"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startRouted(t, c.more)
			s.proc.Charge(c.held)
			if c.heard == "" && c.code != "" {
				s.wantResetAfter("127.0.0.1", c.says)
			} else {
				client := s.dial()
				must.Write(t, client, c.says)
				if c.code == "" {
					_ = client.CloseWrite()
				}
				if b, err := io.ReadAll(client); string(b) != c.heard || err != nil {
					t.Errorf("the client read %q, %v, want %q", b, err, c.heard)
				}
				client.Close()
			}
			s.counts.waitIdle()
			s.proc.Charge(-c.held)
			if c.code == "" {
				if _, failures := s.counts.totals(); len(failures) > 0 {
					t.Errorf("failures %v", failures)
				}
				return
			}
			s.counts.wantFailure(c.code)
			if l := s.log.line(0); l.Listener != "in" || l.Service != "" || l.Error != c.code {
				t.Errorf("the access line is %+v", l)
			}
			if text := must.ReadFile(t, s.log.path); bytes.Count(text, []byte("\n")) != 1 {
				t.Errorf("more than one access line: %s", text)
			}
		})
	}
}

// faultyListener fails to accept at first.
type faultyListener struct {
	*net.TCPListener
	failures int
}

func (l *faultyListener) Accept() (net.Conn, error) {
	if l.failures--; l.failures >= 0 {
		return nil, &net.OpError{Op: "accept", Err: errors.New("too many open files")}
	}
	return l.TCPListener.Accept()
}

// TestAcceptFails: a listener goes on after failures to accept, and closes.
func TestAcceptFails(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	ln := &faultyListener{TCPListener: must.Listen(t).(*net.TCPListener), failures: 3}
	l, err := s.srv.Serve(ln, &s.proc.Config().Listeners[0])
	if err != nil {
		t.Fatal(err)
	}
	client := s.dialTo(l.Addr().String())
	server := receive(t, a.conns, "the application to get the connection")
	client.Close()
	server.Close()
	s.counts.waitIdle()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := ln.TCPListener.SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the socket is open: %v", err)
	}
}
