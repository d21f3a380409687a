package http1

import (
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// TestUpgradeDetected checks which upgrades a proxy may tunnel. An "h2c" among them would begin a second HTTP that
// nobody checks.
func TestUpgradeDetected(t *testing.T) {
	const asks = "Connection: Upgrade\r\nUpgrade: "
	for fields, want := range map[string]string{
		asks + "websocket\r\n": "websocket",
		"Connection: keep-alive, upgrade\r\nUpgrade: WebSocket\r\n": "WebSocket",
		asks + "SPDY/3.1\r\n":                        "SPDY/3.1",
		asks + "tcp\r\n":                             "tcp",
		asks + "a, b/1.0 ,c\r\n":                     "a, b/1.0 ,c",
		"Upgrade: websocket\r\n":                     "",
		"Connection: Upgrade\r\n":                    "",
		asks + "h2c\r\n":                             "",
		asks + "H2C\r\n":                             "",
		asks + "websocket, h2c\r\n":                  "",
		asks + "HTTP/2.0\r\n":                        "",
		asks + "TLS/1.0\r\n":                         "",
		asks + "\r\n":                                "",
		asks + "a,\r\n":                              "a,",
		asks + ", a ,, b\r\n":                        ", a ,, b",
		"Connection: ,Upgrade,\r\nUpgrade: a\r\n":    "a",
		asks + ",\r\n":                               "",
		asks + "a,,h2c\r\n":                          "",
		asks + "a/\r\n":                              "",
		asks + "a b\r\n":                             "",
		asks + "a/1/2\r\n":                           "",
		asks + "h2c\r\nUpgrade: websocket\r\n":       "",
		asks + "websocket\r\nUpgrade: websocket\r\n": "",
	} {
		var req protocol.Request
		var resp protocol.Response
		var h Head
		lim := protocol.Limits{Header: 1 << 10, Headers: 16}
		if _, err := DecodeRequest([]byte("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n"+fields+"\r\n"), &req, &h, &lim); err != nil {
			t.Fatal(err)
		}
		if string(h.Protocols) != want {
			t.Errorf("request with %q: %q", fields, h.Protocols)
		}
		h.Reset()
		if _, err := DecodeResponse([]byte("HTTP/1.1 101 S\r\n"+fields+"\r\n"), false, &resp, &h, &lim); err != nil {
			t.Fatal(err)
		}
		if string(h.Protocols) != want {
			t.Errorf("response with %q: %q", fields, h.Protocols)
		}
	}
}

// TestOffers: a 101 may switch only to what the request has offered.
func TestOffers(t *testing.T) {
	for _, c := range []struct {
		offered, chosen string
		want            bool
	}{
		{"websocket", "WebSocket", true},
		{"a, b/1.0 ,c", "b/1.0", true},
		{"a, b", "b, a", true},
		{"a, b/1.0", "b", false},
		{"a", "a, b", false},
		{"a", "", false},
		{"", "a", false},
		{"a", "a,", true},
		{"a,, b", ",b ,,a", true},
		{"a,", ",", false},
		{"a,", "a, c", false},
		{"", "", false},
	} {
		if got := Offers([]byte(c.offered), []byte(c.chosen)); got != c.want {
			t.Errorf("%q of %q: %t", c.chosen, c.offered, got)
		}
	}
}

// TestUpgradeHeads checks that the appended messages decode as an upgrade, with the end-to-end headers and no others.
func TestUpgradeHeads(t *testing.T) {
	headers := []protocol.Header{
		{Name: []byte("Sec-WebSocket-Key"), Value: []byte("k")}, {Name: []byte("Upgrade"), Value: []byte("h2c")},
	}
	req := protocol.Request{Method: []byte("GET"), Path: []byte("/x"), Authority: []byte("h"), Headers: headers}
	const asked = "GET /x HTTP/1.1\r\nHost: h\r\nSec-WebSocket-Key: k\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	if got := AppendUpgradeRequest(nil, &req, []byte("websocket")); string(got) != asked {
		t.Errorf("request %q", got)
	}
	withBody := protocol.Request{Method: []byte("POST"), Path: []byte("/x"), Authority: []byte("h"), Body: []byte("{}")}
	if got := AppendUpgradeRequest(nil, &req, []byte(", websocket ,")); string(got) != asked {
		t.Errorf("request with empty elements %q", got)
	}
	if got := AppendUpgradeRequest(nil, &req, []byte("a ,b,, c")); !strings.HasSuffix(string(got), "\r\nUpgrade: a, b, c\r\n\r\n") {
		t.Errorf("request with three protocols %q", got)
	}
	const body = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n{}"
	if got := AppendUpgradeRequest(nil, &withBody, []byte("tcp")); string(got) != body {
		t.Errorf("request %q", got)
	}
	resp := protocol.Response{Status: 101, Headers: headers}
	const granted = "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Key: k\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	if got := AppendUpgradeResponse(nil, &resp, []byte("websocket")); string(got) != granted {
		t.Errorf("response %q", got)
	}
	headers[0].Value = []byte("k\r\nX: injected")
	if got := AppendUpgradeRequest([]byte("before"), &req, []byte("tcp")); string(got) != "before" {
		t.Errorf("unsafe request %q", got)
	}
	if got := AppendUpgradeResponse([]byte("before"), &resp, []byte("tcp")); string(got) != "before" {
		t.Errorf("unsafe response %q", got)
	}
}
