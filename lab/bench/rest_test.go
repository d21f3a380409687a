package bench

import (
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/internal/must"
)

func TestConnections(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	conns, err := connect(t.Context(), server.Listener.Addr().String(), 100, false)
	defer conns.close()
	if err != nil || len(conns) != 100 {
		t.Fatalf("%d connections, %v", len(conns), err)
	}
	for range 2 {
		if err := conns.request(); err != nil {
			t.Error(err)
		}
	}
	server.CloseClientConnections()
	if err := conns.request(); err == nil {
		t.Error("a request on a closed connection: no error")
	}
}

func TestConnectionsFail(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"refused": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"closed":  func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("connection", "close") },
	} {
		server := httptest.NewServer(handler)
		conns, err := connect(t.Context(), server.Listener.Addr().String(), 3, true)
		if err == nil || len(conns) != 1 {
			t.Errorf("%s: %v after %d connections", name, err, len(conns))
		}
		conns.close()
		server.Close()
	}
	addr, release, err := freeport.Refusing()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if conns, err := connect(t.Context(), addr, 3, false); err == nil {
		conns.close()
		t.Error("nobody listens: no error")
	}
}

// TestSources checks that later connections come from other addresses, which have ports of their own.
func TestSources(t *testing.T) {
	ln := must.Listen(t)
	for i, want := range map[int]string{0: "127.0.0.1", 19_999: "127.0.0.1", 20_000: "127.0.0.2", 99_999: "127.0.0.5"} {
		c, err := dial(t.Context(), ln.Addr().String(), i)
		if err != nil {
			t.Errorf("connection %d: %v", i, err)
			continue
		}
		if got := c.LocalAddr().(*net.TCPAddr).IP.String(); got != want {
			t.Errorf("connection %d comes from %s, want %s", i, got, want)
		}
		c.Close()
	}
}

// TestRaiseDescriptors checks that two descriptors for each connection are not 85% of them, and
// that connections are fewer where the limit can't be raised.
func TestRaiseDescriptors(t *testing.T) {
	const few, many = 10, 1 << 40
	if n, err := raiseDescriptors(few); err != nil || n != few {
		t.Errorf("%d, %v", n, err)
	}
	n, err := raiseDescriptors(many)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err != nil || n >= many || limit.Cur != limit.Max || 2*n > int(limit.Cur/100*85) {
		t.Errorf("%d connections with %+v, %v", n, limit, err)
	}
}
