package stream

import (
	"io"
	"testing"

	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux/httpstream"
	"github.com/remora-proxy/remora/proxy/reactor"
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

// TestPipeNotOpenInTime: an endpoint whose connection takes no stream in time does not get it later, but another endpoint does.
func TestPipeNotOpenInTime(t *testing.T) {
	a, b := newApp(t), newApp(t)
	s := startSidecar(t, `
admin: {address: ""}
listeners: [{name: in, address: "127.0.0.1:0", protocol: tcp, service: app}]
services: {app: {discover: static, endpoints: ["127.0.0.1:1"], protocol: http, connect_timeout: 500ms, timeout: 15s}}`, reactor.Options{})
	s.dialBy(func(_ int32, nc socket) (loop.Socket, error) { return nc, nil })
	s.update(endpoint(a.addr), endpoint(b.addr))
	server, socket := s.entry.newPeer()
	client := s.entry.call(&pipeOpener{s.proc.Workers()[0], socket}, grpc)
	server.wantState(loop.PipeReset)
	app := either(t, a, b)
	_, _ = io.WriteString(app, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	client.want(httpstream.Head)
	if got := string(client.Failure()); got != "" {
		t.Errorf("%q", got)
	}
	client.pipe.Close(nil)
	app.Close()
	s.counts.waitIdle()
}
