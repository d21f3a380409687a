package http1

import (
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// TestWebSocketDetected checks that only an upgrade to websocket alone is one that a
// proxy may tunnel. An "h2c" beside it would begin a second HTTP that nobody checks.
func TestWebSocketDetected(t *testing.T) {
	for fields, want := range map[string]bool{
		"Connection: Upgrade\r\nUpgrade: websocket\r\n":                       true,
		"Connection: keep-alive, upgrade\r\nUpgrade: WebSocket\r\n":           true,
		"Upgrade: websocket\r\n":                                              false,
		"Connection: Upgrade\r\n":                                             false,
		"Connection: Upgrade\r\nUpgrade: h2c\r\n":                             false,
		"Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n":                  false,
		"Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n":       false,
		"Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: websocket\r\n": false,
	} {
		var req protocol.Request
		var resp protocol.Response
		var h Head
		lim := protocol.Limits{Header: 1 << 10, Headers: 16}
		if _, err := DecodeRequest([]byte("GET / HTTP/1.1\r\nHost: h\r\n"+fields+"\r\n"), &req, &h, &lim); err != nil {
			t.Fatal(err)
		}
		if h.WebSocket != want {
			t.Errorf("request with %q: %v", fields, h.WebSocket)
		}
		h.Reset()
		if _, err := DecodeResponse([]byte("HTTP/1.1 101 S\r\n"+fields+"\r\n"), false, &resp, &h, &lim); err != nil {
			t.Fatal(err)
		}
		if h.WebSocket != want {
			t.Errorf("response with %q: %v", fields, h.WebSocket)
		}
	}
}

// TestWebSocketHeads checks that the appended heads decode as an upgrade, with the
// end-to-end headers and no others.

func TestWebSocketHeads(t *testing.T) {
	headers := []protocol.Header{
		{Name: []byte("Sec-WebSocket-Key"), Value: []byte("k")}, {Name: []byte("Upgrade"), Value: []byte("h2c")},
	}
	req := protocol.Request{Method: []byte("GET"), Path: []byte("/x"), Authority: []byte("h"), Headers: headers}
	const asked = "GET /x HTTP/1.1\r\nHost: h\r\nSec-WebSocket-Key: k\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	if got := AppendWebSocketRequest(nil, &req); string(got) != asked {
		t.Errorf("request %q", got)
	}
	resp := protocol.Response{Status: 101, Headers: headers}
	const granted = "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Key: k\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	if got := AppendWebSocketResponse(nil, &resp); string(got) != granted {
		t.Errorf("response %q", got)
	}
	headers[0].Value = []byte("k\r\nX: injected")
	if got := AppendWebSocketRequest([]byte("before"), &req); string(got) != "before" {
		t.Errorf("unsafe request %q", got)
	}
	if got := AppendWebSocketResponse([]byte("before"), &resp); string(got) != "before" {
		t.Errorf("unsafe response %q", got)
	}
}
