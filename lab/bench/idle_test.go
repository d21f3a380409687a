package bench

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestOpenIdle(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	conns, err := openIdle(t.Context(), server.Listener.Addr().String(), 100)
	defer closeAll(conns)
	if err != nil || len(conns) != 100 {
		t.Fatalf("%d connections, %v", len(conns), err)
	}
	if err := request(conns[99]); err != nil {
		t.Error(err)
	}
	server.CloseClientConnections()
	if err := request(conns[99]); err == nil {
		t.Error("a request on a closed connection: no error")
	}
}

func TestOpenIdleFails(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"refused": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"closed":  func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("connection", "close") },
	} {
		server := httptest.NewServer(handler)
		conns, err := openIdle(t.Context(), server.Listener.Addr().String(), 3)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		closeAll(conns)
		server.Close()
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if conns, err := openIdle(t.Context(), ln.Addr().String(), 3); err == nil {
		closeAll(conns)
		t.Error("nobody listens: no error")
	}
}
