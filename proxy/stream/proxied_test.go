package stream

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxyproto"
	"github.com/remora-proxy/remora/proxy/reactor"
)

// serveApp starts a sidecar whose tcp listener and whose service app have these further keys, and
// opens the listener at addr. idle is timeouts.idle; empty means the default.
func serveApp(t *testing.T, addr, listener, service, to, idle string) *sidecar {
	t.Helper()
	s := startSidecar(t, fmt.Sprintf(`
admin: {address: ""}
access_log: {path: "-"}
listeners: [{name: in, address: %q, protocol: tcp, service: app, %s}]
timeouts: {idle: %s}
services: {app: {discover: static, endpoints: ["127.0.0.1:1"], protocol: tcp, connect_timeout: 15s, %s}}`, addr, listener, cmp.Or(idle, "5m"), service),
		reactor.Options{})
	s.update(endpoint(to))
	ln, err := reactor.Bind(addr)
	if err != nil {
		t.Fatal(err)
	}
	if s.ln, err = s.srv.Serve(ln, &s.srv.config().Listeners[0]); err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	return s
}

const proxyOnLoopback = "proxy_protocol: {trust: [127.0.0.1]}"

// TestProxyProtocol: a stream is its client's, whom a proxy names, and the endpoint is told.
func TestProxyProtocol(t *testing.T) {
	h := proxyproto.Header{Source: netip.MustParseAddrPort("192.0.2.1:56324"), Destination: netip.MustParseAddrPort("198.51.100.2:443")}
	for _, c := range []struct {
		listener, service string
		sent, got         string
		client            string // empty means the proxy
	}{
		{proxyOnLoopback, "", string(proxyproto.Append(nil, 1, h)), "", "192.0.2.1:56324"},
		{proxyOnLoopback, "proxy_protocol: v1", string(proxyproto.Append(nil, 2, h)), string(proxyproto.Append(nil, 1, h)), "192.0.2.1:56324"},
		{proxyOnLoopback, "proxy_protocol: v2", string(proxyproto.Append(nil, 1, h)), string(proxyproto.Append(nil, 2, h)), "192.0.2.1:56324"},
		{proxyOnLoopback, "", "PROXY UNKNOWN\r\n", "", ""},
		{"", "proxy_protocol: v1", "", "PROXY TCP4 127.0.0.1 127.0.0.1 CLIENT SERVER\r\n", ""},
	} {
		a := newApp(t)
		s := serveApp(t, "127.0.0.1:0", c.listener, c.service, a.addr, "")
		nc := s.dial()
		if _, err := io.WriteString(nc, c.sent+"hello"); err != nil {
			t.Fatal(err)
		}
		if err := nc.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		server := receive(t, a.conns, "the connection")
		local, remote := nc.LocalAddr().(*net.TCPAddr), nc.RemoteAddr().(*net.TCPAddr)
		want := strings.NewReplacer("CLIENT", fmt.Sprint(local.Port), "SERVER", fmt.Sprint(remote.Port)).Replace(c.got) + "hello"
		if b, err := io.ReadAll(server); string(b) != want || err != nil {
			t.Errorf("%q became %q, %v; want %q", c.sent, b, err, want)
		}
		server.Close()
		if c.client == "" {
			c.client = local.String()
		}
		if got := s.log.line(0).Client; got != c.client {
			t.Errorf("the client is %s, want %s", got, c.client)
		}
		s.counts.waitIdle()
	}
}

// TestProxyProtocolRefused: other peers and other bytes are reset and counted; nothing at all is not.
func TestProxyProtocolRefused(t *testing.T) {
	a := newApp(t)
	s := serveApp(t, "127.0.0.1:0", proxyOnLoopback, "", a.addr, "")
	counted := func(n uint64) {
		t.Helper()
		s.eventually("the refusal to be counted", func() error {
			if _, failures := s.counts.totals(); failures["bad-proxy-header"] != n {
				return fmt.Errorf("%v", failures)
			}
			return nil
		})
	}
	s.wantRefusedFrom("127.0.0.2")
	counted(1)
	nc := s.dial()
	if _, err := io.WriteString(nc, "\x16\x03\x01"); err != nil {
		t.Fatal(err)
	}
	wantReset(t, "a client of TLS", nc)
	counted(2)
	nc = s.dial()
	if err := nc.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	wantReset(t, "a health check", nc)
	s.counts.waitIdle()
	counted(2)
}

// TestUnixStreams: streams between Unix sockets carry all bytes and half-closes, are counted, and
// have no address.
func TestUnixStreams(t *testing.T) {
	dir := t.TempDir()
	app, err := net.Listen("unix", filepath.Join(dir, "app"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { app.Close() })
	s := serveApp(t, "unix:"+filepath.Join(dir, "in"), "", "proxy_protocol: v1", "unix:"+app.Addr().String(), "")
	want := make([]byte, 3<<20)
	_, _ = rand.Read(want)
	nc, err := net.Dial("unix", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(waitLimit))
	go func() {
		_, _ = nc.Write(want)
		_ = nc.(*net.UnixConn).CloseWrite()
	}()
	server, err := app.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	_ = server.SetDeadline(time.Now().Add(waitLimit))
	got, err := io.ReadAll(server)
	if text, ok := bytes.CutPrefix(got, []byte("PROXY UNKNOWN\r\n")); !ok || !bytes.Equal(text, want) || err != nil {
		t.Errorf("%d of %d bytes, %v", len(text), len(want), err)
	}
	if moved := s.counts.moved(); moved < uint64(2*len(want)) {
		t.Errorf("%d bytes have moved", moved)
	}
	go func() { _, _ = server.Write(want); server.Close() }()
	if got, err := io.ReadAll(nc); !bytes.Equal(got, want) || err != nil {
		t.Errorf("%d of %d bytes came back, %v", len(got), len(want), err)
	}
	l := s.log.line(0)
	if l.Client != loop.UnixPeer || l.BytesIn != len(want) || l.BytesOut != len(want) || l.Outcome != "closed" {
		t.Errorf("the access log has %+v", l)
	}
	s.counts.waitIdle()
}

// TestUnixIdle: a stream between Unix sockets that moves nothing ends.
func TestUnixIdle(t *testing.T) {
	dir := t.TempDir()
	app, err := net.Listen("unix", filepath.Join(dir, "app"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { app.Close() })
	s := serveApp(t, "unix:"+filepath.Join(dir, "in"), "", "", "unix:"+app.Addr().String(), "50ms")
	nc, err := net.Dial("unix", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	server, err := app.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, c := range []net.Conn{nc, server} {
		_ = c.SetDeadline(time.Now().Add(waitLimit))
		if n, err := c.Read(make([]byte, 1)); n > 0 || err != io.EOF {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
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
