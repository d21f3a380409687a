package stream

import (
	"io"
	"testing"

	"github.com/remora-proxy/remora/proxy/downstream"
)

// TestConnect: after a CONNECT bytes pass both ways, the bytes behind its head first. A
// CONNECT that fails receives an error response.
func TestConnect(t *testing.T) {
	a := newApp(t)
	withSidecars(t, a.addr, func(t *testing.T, s *sidecar) {
		client := s.dialTo(s.entry.connectAddr("early "))
		server := receive(t, a.conns, "the connection")
		wantRead(t, "the client", client, downstream.Connected)
		_, _ = io.WriteString(client, "late")
		_ = client.CloseWrite()
		if got, err := io.ReadAll(server); string(got) != "early late" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		_, _ = io.WriteString(server, "server")
		server.Close()
		wantRead(t, "the client", client, "server")
	})
	withSidecars(t, refusingAddr(t), func(t *testing.T, s *sidecar) {
		wantRead(t, "the client", s.dialTo(s.entry.connectAddr("")), "HTTP/1.1 502 Bad Gateway\r\n")
	})
}

// TestWebSocketMesh: an upgrade succeeds through one and two sidecars, and half-closes
// and resets pass.
func TestWebSocketMesh(t *testing.T) {
	a := newApp(t)
	withSidecars(t, a.addr, func(t *testing.T, s *sidecar) {
		addr := s.entry.requestAddr()
		client := s.dialTo(addr)
		_, _ = io.WriteString(client, ask+"early")
		server := receive(t, a.conns, "the connection")
		wantRead(t, "the server", server, "GET /chat?x=1 HTTP/1.1\r\n")
		_, _ = io.WriteString(server, "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: upgrade\r\nDate: x\r\n\r\nhello")
		wantRead(t, "the client", client, "HTTP/1.1 101 Switching Protocols\r\nDate: x\r\nVia: 1.1 remora\r\n"+
			"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello")
		_ = client.CloseWrite()
		if got, err := io.ReadAll(server); len(got) < 5 || string(got[len(got)-5:]) != "early" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		(&end{conn: server, tcp: server}).reset()
		wantReset(t, "the client", client)
	})
}
