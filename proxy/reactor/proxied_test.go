package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxyproto"
)

const header = "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n"

// refusedProxy is the arguments of Proxies.Refused.
type refusedProxy struct {
	remote string
	err    error
}

// proxied starts a listener behind proxies on 127.0.0.1, and returns the channels of what it accepts
// and refuses.
func proxied(t *testing.T, o Options, lo ListenOptions, wait time.Duration) (e *Reactor, addr string, remotes chan string, refused chan refusedProxy) {
	t.Helper()
	e = start(t, o)
	remotes, refused = make(chan string, 8), make(chan refusedProxy, 8)
	lo.Proxies = &Proxies{
		Trusts:  func(peer netip.Addr) bool { return peer == netip.MustParseAddr("127.0.0.1") },
		Wait:    func() time.Duration { return wait },
		Refused: func(remote string, err error) { refused <- refusedProxy{remote, err} },
	}
	l, err := e.Listen("127.0.0.1:0", lo, func(_ loop.Loop, remote string) loop.Receiver {
		remotes <- remote
		return echo()
	})
	if err != nil {
		t.Fatal(err)
	}
	return e, l.Addr().String(), remotes, refused
}

// TestProxied: the client of the header is the peer, and the bytes behind it reach the stream.
func TestProxied(t *testing.T) {
	_, addr, remotes, _ := proxied(t, Options{}, ListenOptions{}, waitLimit)
	for _, c := range []struct{ header, want string }{
		{header, "192.0.2.1:56324"},
		{"PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n", "[2001:db8::1]:56324"},
		{string(proxyproto.Append(nil, 2, proxyproto.Header{
			Source: netip.MustParseAddrPort("192.0.2.9:1"), Destination: netip.MustParseAddrPort("192.0.2.8:2"),
		})), "192.0.2.9:1"},
		{"PROXY UNKNOWN\r\n", ""},
	} {
		nc := dial(t, addr)
		must.Write(t, nc, c.header+"a")
		if got := ask(t, nc, "b"); got != "a" {
			t.Errorf("%q follows the header", got)
		}
		if c.want == "" {
			c.want = nc.LocalAddr().String()
		}
		if got := recv(t, remotes, "the peer"); got != c.want {
			t.Errorf("the peer is %s, want %s", got, c.want)
		}
	}
}

// TestProxiedHealthCheck: a proxy that connects and closes without a byte is no failure, and a wrong header is.
func TestProxiedHealthCheck(t *testing.T) {
	e, addr, _, refused := proxied(t, Options{}, ListenOptions{}, waitLimit)
	for _, says := range []string{"", "GET / HTTP/1.1\r\n\r\n"} {
		c := dial(t, addr)
		must.Write(t, c, says)
		_ = c.CloseWrite() // the second may be closed already
		ends(t, c)
	}
	recv(t, refused, "the failure of the second")
	e.wantReserved(t, 0, 0)
	if len(refused) > 0 {
		t.Errorf("the health check is a failure: %v", <-refused)
	}
}

// TestProxiedTLS: the header comes before the handshake.
func TestProxiedTLS(t *testing.T) {
	identity := NewIdentity(t)
	_, addr, remotes, _ := proxied(t, Options{}, ListenOptions{TLS: identity.Server}, waitLimit)
	nc := dial(t, addr)
	must.Write(t, nc, header)
	over := tls.Client(nc, identity.Client())
	if got := ask(t, over, "hello"); got != "hello" {
		t.Errorf("got %q", got)
	}
	if got := recv(t, remotes, "the peer"); got != "192.0.2.1:56324" {
		t.Errorf("the peer is %s", got)
	}
}

// TestProxiedLimit: above the limit of a listener a connection gets Overload, whether its first bytes are those of a proxy or
// of a client.
func TestProxiedLimit(t *testing.T) {
	const busy = "busy"
	limit := ListenOptions{MaxConnections: 1, Overload: []byte(busy)}
	_, behind, _, _ := proxied(t, Options{}, limit, waitLimit)
	e := start(t, Options{})
	e.originalDst = func(*net.TCPConn) netip.AddrPort { return netip.AddrPort{} }
	limit.Transparent = &Transparent{Wait: waitLimit, Guarded: func() bool { return false }}
	direct := listen(t, e, limit, echo)
	for addr, first := range map[string]string{behind: header, direct: ""} {
		nc := dial(t, addr)
		must.Write(t, nc, first)
		ask(t, nc, "hello")
		if got, err := io.ReadAll(dial(t, addr)); string(got) != busy || err != nil {
			t.Errorf("after %q: %q, %v", first, got, err)
		}
	}
}

// TestProxiedSources: connections count for their client, and the proxy itself has no limit.
func TestProxiedSources(t *testing.T) {
	e, addr, remotes, _ := proxied(t, Options{MaxPerSource: 1}, ListenOptions{}, waitLimit)
	open := func(client string) net.Conn {
		nc := dial(t, addr)
		must.Write(t, nc, "PROXY TCP4 "+client+" 198.51.100.2 1 443\r\n")
		return nc
	}
	for _, client := range []string{"192.0.2.1", "192.0.2.2"} {
		open(client)
		recv(t, remotes, "the connection of "+client)
	}
	second := open("192.0.2.1")
	if n, err := second.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("the second connection of a client got %d bytes", n)
	}
	if s := e.Stats(); s.RefusedSource != 1 || s.Inbound != 2 {
		t.Errorf("%d refused, %d open", s.RefusedSource, s.Inbound)
	}
}

// TestProxiedRefused: whoever is no proxy, or sends no valid header in time, is closed and reported;
// who sends nothing at all is only closed.
func TestProxiedRefused(t *testing.T) {
	e, addr, _, refused := proxied(t, Options{}, ListenOptions{}, waitLimit)
	_, hasty, _, late := proxied(t, Options{}, ListenOptions{}, time.Millisecond)
	for _, c := range []struct {
		from, addr, sent string
		want             error
		refused          chan refusedProxy
	}{
		{"127.0.0.2", addr, header, proxyproto.ErrUntrusted, refused},
		{"127.0.0.1", addr, "GET / HTTP/1.1\r\n\r\n", proxyproto.ErrMalformed, refused},
		{"127.0.0.1", hasty, "PROXY ", os.ErrDeadlineExceeded, late},
	} {
		nc := dialFrom(t, c.from, c.addr)
		_, _ = io.WriteString(nc, c.sent)
		got := recv(t, c.refused, "the refusal")
		if !errors.Is(got.err, c.want) || got.remote != nc.LocalAddr().String() {
			t.Errorf("%q from %s: %+v", c.sent, nc.LocalAddr(), got)
		}
		_ = nc.SetReadDeadline(time.Now().Add(waitLimit))
		if n, err := nc.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: %d bytes, %v", c.sent, n, err)
		}
	}
	silent := dial(t, addr)
	if err := silent.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := silent.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after nothing: %v", err)
	}
	if len(refused) > 0 {
		t.Errorf("after nothing: %+v", <-refused)
	}
	e.wantReserved(t, 0, 0)
}

// TestProxiedStop: Stop ends the wait for a header.
func TestProxiedStop(t *testing.T) {
	e, addr, _, _ := proxied(t, Options{}, ListenOptions{}, time.Hour)
	nc := dial(t, addr)
	must.Write(t, nc, "PROXY ")
	e.wantReserved(t, 1, 0)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	if err := e.Stop(ctx); err != nil {
		t.Error(err)
	}
	if _, err := nc.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is open")
	}
}

// TestProxiedReset: a connection that was reset before it was accepted still has an address.
func TestProxiedReset(t *testing.T) {
	e, addr, _, refused := proxied(t, Options{}, ListenOptions{}, waitLimit)
	entered, release := make(chan struct{}), make(chan struct{})
	e.loops[0].Post(func() { close(entered); <-release })
	recv(t, entered, "the loop to be busy")
	nc := dialFrom(t, "127.0.0.2", addr) // no proxy
	_ = nc.SetLinger(0)
	_ = nc.Close()
	close(release)
	if got := recv(t, refused, "the refusal"); got.remote != nc.LocalAddr().String() {
		t.Errorf("%+v", got)
	}
}
