package http_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestLoginEndsConnection: a connection carries no other request after one whose credentials may have logged
// it in, or after a response that says so. A login does not take a connection that others have used, either.
func TestLoginEndsConnection(t *testing.T) {
	for name, c := range map[string]struct {
		request, response string // a line of headers of the second request, and of its response
		want              string // requests of each connection
		closed            bool   // the connection of the second request
	}{
		"nothing":               {"Authorization: Basic eA==", "WWW-Authenticate: Basic realm=\"NTLM, x\"", "[3]", false},
		"credentials":           {"Authorization: Negotiate YII", "X: y", "[2 1]", true},
		"proxy's credentials":   {"PROXY-AUTHORIZATION: negotiate YII", "X: y", "[2 1]", true},
		"offer":                 {"X: y", "www-authenticate: Basic realm=\"x\", negotiate", "[3]", false},
		"proxy's offer":         {"X: y", "Proxy-Authenticate: NTLM", "[3]", false},
		"challenge":             {"X: y", "www-authenticate: Basic realm=\"x\", negotiate oYI", "[2 1]", true},
		"proxy's challenge":     {"X: y", "Proxy-Authenticate: NTLM TlRM", "[2 1]", true},
		"end of a login":        {"X: y", "Persistent-Auth: true", "[2 1]", true},
		"another header's name": {"X-Authorization: NTLM", "X-WWW-Authenticate: NTLM", "[3]", false},
	} {
		t.Run(name, func(t *testing.T) {
			proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1}, func(t *testing.T, m *proxytest.Mesh) {
				m.Apps[0].Stop()
				var peers []*proxytest.Peer
				m.W.Net.Listen(m.Apps[0].Addr, m.W.Loop("10.0.1.1-raw"), func() loop.Receiver {
					p := &proxytest.Peer{}
					p.Reply = func(heard []byte) []byte {
						if !bytes.HasSuffix(heard, []byte("\r\n\r\n")) {
							return nil
						}
						line := "X: y"
						if bytes.Contains(heard[bytes.LastIndex(heard, []byte("GET ")):], []byte("/login")) {
							line = c.response
						}
						return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\n%s\r\nContent-Length: 0\r\n\r\n", line)
					}
					peers = append(peers, p)
					return p
				})
				for i, call := range []*proxytest.Call{m.Get("/"), m.Get("/login", c.request), m.Get("/")} {
					call.Nonce = ""
					m.Do(call)
					m.Finish(call)
					m.OK(call)
					for _, h := range call.Headers {
						if string(h.Name) == "Persistent-Auth" {
							t.Errorf("call %d: the client got %s", i, h)
						}
					}
				}
				m.Settled()
				m.W.Run(10 * time.Millisecond)
				var got []int
				for _, p := range peers {
					got = append(got, bytes.Count(p.Heard, []byte("GET ")))
				}
				if s := fmt.Sprint(got); s != c.want {
					t.Errorf("connections had %s requests, want %s", s, c.want)
				}
				closed := false
				for _, p := range peers {
					if bytes.Contains(p.Heard, []byte("/login")) {
						closed = p.Ended
					}
				}
				if closed != c.closed {
					t.Errorf("the connection is closed: %t, want %t", closed, c.closed)
				}
			})
		})
	}
}

// TestLoginWithoutRoomForDial: a login takes an idle connection if the driver has no room for a dial, and that
// connection closes.
func TestLoginWithoutRoomForDial(t *testing.T) {
	m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{OneHop: true, Apps: 1})
	m.WarmUpEach(1)
	d.MaxDials, d.Dialling = 1, 1 // a dial of another service
	login := m.Get("/", "Authorization: Negotiate YII")
	m.Do(login)
	m.Finish(login)
	m.OK(login)
	if d.Refused != 1 {
		t.Errorf("%d dials were refused", d.Refused)
	}
	d.Dialling = 0
	other := m.Get("/")
	m.Do(other)
	m.Finish(other)
	m.OK(other)
	m.Settled()
	if n := m.Consumer.Report().Services[0].Endpoints[0].Connections; n != 1 {
		t.Errorf("%d connections are open, want that of the other request", n)
	}
}
