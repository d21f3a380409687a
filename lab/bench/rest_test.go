package bench

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/remora-proxy/remora/internal/freeport"
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
