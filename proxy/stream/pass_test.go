package stream

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// bareSocket is a loop.Socket on a TCP connection that no engine counts.
type bareSocket struct{ *net.TCPConn }

func (s bareSocket) NetConn() net.Conn { return s.TCPConn }
func (s bareSocket) Secure() bool      { return false }
func (s bareSocket) Reset()            { _, _ = s.SetLinger(0), s.Close() }

// redirected is both ends of a connection that a client has made, and that its
// kernel brought here.
func redirected(t *testing.T) (client *net.TCPConn, here bareSocket) {
	t.Helper()
	listener := newApp(t)
	client, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(listener.addr)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	_ = client.SetDeadline(time.Now().Add(patience))
	here = bareSocket{receive(t, listener.conns, "the connection")}
	t.Cleanup(func() { here.Close() })
	return client, here
}

// passes are the connections that have passed, over all loops, and those that
// have failed to, by code.
func (s *sidecar) passes() (passed uint64, failures map[string]uint64) {
	for _, r := range s.reports() {
		passed += r.Stats.Handoffs[stats.HandoffPass]
	}
	_, failures = s.totals()
	return passed, failures
}

// TestPass: what came early goes first, either side may speak first and close its
// direction first, and the other goes on.
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
	s.idle()
	if n, failures := s.passes(); n != 1 || len(failures) != 0 {
		t.Errorf("%d passed, failures %v", n, failures)
	}
}

// TestPassRefused: where the original destination takes no connection, the client
// gets a reset.
func TestPassRefused(t *testing.T) {
	s := newSidecar(t, options{})
	client, here := redirected(t)
	s.srv.Pass("in", here, netip.MustParseAddrPort(refusing(t)), []byte("hello"))
	wantReset(t, "the client of a server that is not there", client)
	s.failsOnce("upstream-connect")
	s.idle()
}

func (s *sidecar) failsOnce(code string) {
	s.t.Helper()
	s.eventually("a failure with the code "+code, func() error {
		if _, failures := s.passes(); failures[code] != 1 || len(failures) != 1 {
			return errors.New("not counted")
		}
		return nil
	})
}

// TestPassInCircle: a connection that was made to pass another, and that the kernel
// has redirected here in its turn, goes no further, and the first ends with it.
func TestPassInCircle(t *testing.T) {
	s := newSidecar(t, options{})
	app := newApp(t)
	to := netip.MustParseAddrPort(app.addr)
	client, here := redirected(t)
	s.srv.Pass("in", here, to, []byte("hello"))
	again := receive(t, app.conns, "the first connection")
	wantRead(t, "the first destination", again, "hello") // so it is known
	s.srv.Pass("in", bareSocket{again}, to, []byte("hello"))
	wantReset(t, "the client", client)
	if n := len(app.conns); n != 0 {
		t.Errorf("%d connections more", n)
	}
	s.failsOnce("loop-detected")
	s.idle()

	// The same addresses mean nothing once the passage has ended.
	if s.srv.hops.has(hop{addrPort(again.RemoteAddr()), to}) {
		t.Error("the circle is remembered")
	}
}

// TestPassEndsWithServer: Close cuts passages, and takes none after that.
func TestPassEndsWithServer(t *testing.T) {
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
