package stream

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// serveHTTP opens the http listener of s, which has the same service.
func (s *sidecar) serveHTTP() {
	s.t.Helper()
	s.proc.SetStreams(s.srv)
	s.addr = s.listen(&s.srv.config().Listeners[1], nil)
}

const ask = "GET /chat?x=1 HTTP/1.1\r\nHost: app\r\nX-Remora-Attempt: 3\r\nX-Request-Id: id\r\n" +
	"Sec-WebSocket-Key: k\r\n" +
	"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"

// TestWebSocketPeers: clients and a server of a WebSocket library exchange messages of
// all sizes through the sidecar, many at once.
func TestWebSocketPeers(t *testing.T) {
	up := websocket.Upgrader{Subprotocols: []string{"echo"}}
	app := handle(t, func(w http.ResponseWriter, r *http.Request) {
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		for {
			kind, b, err := c.ReadMessage()
			if err != nil {
				return
			}
			if err := c.WriteMessage(kind, b); err != nil {
				return
			}
		}
	})
	s := newSidecar(t, options{}, app)
	s.serveHTTP()
	before := openFiles(t)
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			dialer := websocket.Dialer{Subprotocols: []string{"echo"}, HandshakeTimeout: waitLimit}
			c, _, err := dialer.Dial("ws://"+s.addr+"/echo", nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_ = c.SetReadDeadline(time.Now().Add(waitLimit))
			if c.Subprotocol() != "echo" {
				t.Errorf("subprotocol %q", c.Subprotocol())
			}
			for _, size := range []int{0, 1, 125, 126, 70_000, 1 << 20} {
				sent := bytes.Repeat([]byte("w"), size)
				if err := c.WriteMessage(websocket.BinaryMessage, sent); err != nil {
					t.Error(err)
					return
				}
				if _, got, err := c.ReadMessage(); !bytes.Equal(got, sent) || err != nil {
					t.Errorf("received %d of %d bytes, %v", len(got), size, err)
					return
				}
			}
		})
	}
	all.Wait()
	s.counts.waitIdle()
	if sum, failures := s.counts.totals(); sum.Streams != 32 || len(failures) > 0 {
		t.Errorf("%d streams, failures %v", sum.Streams, failures)
	}
	waitFilesClosed(t, before)
}

// TestUpgradeBytes: bytes that either side sends right behind its head are passed on, and
// so are interim responses. Headers of the sidecar's own are not.
func TestUpgradeBytes(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	s.serveHTTP()
	client := s.dial()
	_, _ = io.WriteString(client, ask+"early client")
	server := receive(t, a.conns, "the connection")
	const head = "GET /chat?x=1 HTTP/1.1\r\nHost: app\r\nSec-WebSocket-Key: k\r\n" +
		"CDN-Loop: remora\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Request-Id: id\r\n" +
		"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	wantRead(t, "the server", server, head)
	const response = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" +
		"HTTP/1.1 101 Sure\r\nUpgrade: websocket\r\nConnection: upgrade\r\nDate: now\r\nSec-WebSocket-Accept: a\r\n\r\nearly server"
	for i := range len(response) {
		_, _ = io.WriteString(server, response[i:i+1])
	}
	wantRead(t, "the server", server, "early client")
	wantRead(t, "the client", client, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nDate: now\r\nSec-WebSocket-Accept: a\r\n"+
		"X-Request-Id: id\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly server")
	_ = client.CloseWrite()
	if rest, err := io.ReadAll(server); len(rest) > 0 || err != nil {
		t.Errorf("the server read %q, %v", rest, err)
	}
	_, _ = io.WriteString(server, "late")
	server.Close()
	wantRead(t, "the client", client, "late")
	s.counts.waitIdle()
}

var dateLine = regexp.MustCompile(`Date: [A-Z][a-z]{2}, [^\r]* GMT\r\n`)

func wantRead(t *testing.T, who string, nc net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(nc, got); string(got) != want || err != nil {
		t.Fatalf("%s read %q, %v, want %q", who, got[:n], err, want)
	}
}

// TestUpgradeDenied: any response other than the 101 reaches the client as a message and
// closes its connection. Bytes that the client sent behind its request never reach the
// server.
func TestUpgradeDenied(t *testing.T) {
	const smuggled = "GET /admin HTTP/1.1\r\nHost: app\r\n\r\n"
	for name, c := range map[string]struct{ response, want string }{
		"length": {"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno",
			"HTTP/1.1 403 No\r\nX-Request-Id: id\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"},
		"no body": {"HTTP/1.1 204 None\r\nA: b\r\n\r\n", "HTTP/1.1 204 None\r\nA: b\r\nX-Request-Id: id\r\nConnection: close\r\n\r\n"},
		"chunked": {"HTTP/1.1 426 U\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
			"HTTP/1.1 426 U\r\nX-Request-Id: id\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nno\r\n0\r\n\r\n"},
		"until close":     {"HTTP/1.1 200 OK\r\n\r\nplain", "HTTP/1.1 200 OK\r\nX-Request-Id: id\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nplain\r\n0\r\n\r\n"},
		"closed":          {"", "502 upstream-reset"},
		"malformed":       {"SSH-2.0\r\n", "502 upstream-malformed"},
		"other protocol":  {"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", "502 upstream-malformed"},
		"101 unconfirmed": {"HTTP/1.1 101 S\r\n\r\n", "502 upstream-malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t)
			s := newSidecar(t, options{}, a.addr)
			s.serveHTTP()
			client := s.dial()
			_, _ = io.WriteString(client, ask+smuggled)
			_ = client.CloseWrite()
			server := receive(t, a.conns, "the connection")
			requests := bufio.NewReader(server)
			if _, err := http.ReadRequest(requests); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(server, c.response)
			_ = server.CloseWrite()
			got, err := io.ReadAll(client)
			if err != nil {
				t.Error(err)
			}
			if !dateLine.Match(got) {
				t.Errorf("no Date in %q", got)
			}
			got = dateLine.ReplaceAll(got, nil)
			if status, code, _ := strings.Cut(c.want, " "); status == "502" {
				if !strings.HasPrefix(string(got), "HTTP/1.1 "+status) ||
					!strings.Contains(string(got), "X-Remora-Error: "+code+"\r\n") ||
					!strings.Contains(string(got), "Connection: close\r\n") {
					t.Errorf("got %q, want %s", got, c.want)
				}
			} else if string(got) != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if rest, _ := io.ReadAll(requests); len(rest) > 0 {
				t.Errorf("the server read %q", rest)
			}
			server.Close()
			s.counts.waitIdle()
		})
	}
}

// TestUpgradeFailed: without a response of an endpoint, the client receives an error
// response of the sidecar.
func TestUpgradeFailed(t *testing.T) {
	silent := newApp(t)
	for want, s := range map[string]*sidecar{
		"504 deadline":         newSidecar(t, options{timeout: "300ms"}, silent.addr),
		"502 upstream-connect": newSidecar(t, options{}, refusingAddr(t)),
	} {
		s.serveHTTP()
		client := s.dial()
		_, _ = io.WriteString(client, ask)
		_ = client.CloseWrite()
		got, err := io.ReadAll(client)
		status, code, _ := strings.Cut(want, " ")
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 "+status) ||
			!strings.Contains(string(got), "X-Remora-Error: "+code+"\r\n") {
			t.Errorf("got %q, %v, want %s", got, err, want)
		}
		s.counts.waitIdle()
	}
}

// TestUpgradePipelined: an upgrade that is pipelined behind another request starts after it. Bytes behind an upgrade
// that the application refuses are dropped.
func TestUpgradePipelined(t *testing.T) {
	app := handle(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path+" upgrade="+r.Header.Get("Upgrade")+";")
	})
	s := newSidecar(t, options{}, app)
	s.serveHTTP()
	for i, upgrade := range []string{ask, strings.Replace(ask, "\r\n\r\n", "\r\nContent-Length: 1\r\n\r\nx", 1)} {
		client := s.dial()
		_, _ = io.WriteString(client, "GET /first HTTP/1.1\r\nHost: app\r\n\r\n"+upgrade+"GET /last HTTP/1.1\r\nHost: app\r\n\r\n")
		all, err := io.ReadAll(client)
		if err != nil {
			t.Fatal(err)
		}
		got := string(all)
		for _, want := range []string{"/first upgrade=;", "/chat upgrade=websocket;"} {
			_, rest, found := strings.Cut(got, want)
			if !found {
				t.Fatalf("no %s in %q", want, got)
			}
			got = rest
		}
		if strings.Contains(got, "HTTP/1.1") {
			t.Errorf("a response to bytes behind the upgrade: %q", got)
		}
		if n := s.reactor.Stats().Detached; int(n) != i+1 {
			t.Errorf("%d connections left their loop", n)
		}
		s.counts.waitIdle()
	}
}

// TestCloseDuringHandshake: Close does not wait for a slow upgrade, and the client is
// reset.
func TestCloseDuringHandshake(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{timeout: "1h"}, a.addr)
	s.serveHTTP()
	client := s.dial()
	_, _ = io.WriteString(client, ask)
	server := receive(t, a.conns, "the connection")
	if err := s.srv.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantReset(t, "the client", client)
	server.Close()
	s.counts.waitIdle()
}
