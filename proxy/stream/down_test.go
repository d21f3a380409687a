package stream

import (
	"io"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// TestDownEndpoint: an endpoint that is down loses its streams, and gets none until it is up again. Other endpoints, and those of
// other services, keep theirs.
func TestDownEndpoint(t *testing.T) {
	a, other := newApp(t), newApp(t)
	s := newSidecar(t, options{}, a.addr)
	client, server := s.pair(a)
	s.srv.SetDown("another", []string{a.addr})
	s.srv.SetDown("app", []string{other.addr})
	s.srv.SetDown("app", nil)
	s.srv.SetDown("app", nil)
	must.Write(t, client, "hello")
	wantRead(t, "the server", server, "hello")

	s.srv.SetDown("app", []string{other.addr, a.addr})
	wantReset(t, "the client", client)
	wantReset(t, "the server", server)
	s.counts.wantFailure("endpoint-down")
	s.wantRefused()
	s.counts.waitNoStreams()

	s.srv.SetDown("app", []string{other.addr})
	client = s.dial()
	must.Write(t, client, "up")
	for { // a connection from while the endpoint was down may come late
		server = receive(t, a.conns, "the application to get the connection")
		if _, err := io.ReadFull(server, make([]byte, len("up"))); err == nil {
			break
		}
		server.Close()
	}
	_ = client.CloseWrite()
	if _, err := io.ReadAll(server); err != nil {
		t.Errorf("after the endpoint is up again: %v", err)
	}
	server.Close()
	client.Close()
	s.counts.waitIdle()
}
