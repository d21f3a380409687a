package stream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// streamLine is the fields of an access log line that the tests check.
type streamLine struct {
	Listener   string
	Client     string
	Protocol   string
	Stream     string
	RequestID  string `json:"request_id"`
	Method     string
	Path       string
	Service    string
	Endpoint   string
	Outcome    string
	Status     int
	Error      string
	GRPC       string  `json:"grpc_status"`
	BytesIn    int     `json:"bytes_in"`
	BytesOut   int     `json:"bytes_out"`
	DurationMS float64 `json:"duration_ms"`
}

// accessLog is the access log of a sidecar.
type accessLog struct {
	t    *testing.T
	path string
}

// openAccessLog makes proc log to a file in a temporary directory.
func openAccessLog(t *testing.T, proc *proxy.Process) *accessLog {
	t.Helper()
	path := filepath.Join(t.TempDir(), "access.log")
	q := accesslog.NewQueue(0, 2, new(accesslog.Counts))
	w, err := accesslog.Open(path, q, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		if err := w.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	proc.SetWall(time.Now)
	proc.Generation().LogTo(q)
	return &accessLog{t, path}
}

// line waits for the line after the first seen lines.
func (g *accessLog) line(seen int) (l streamLine) {
	g.t.Helper()
	eventually.Nil(g.t, "a line of the access log", func() error {
		text, err := os.ReadFile(g.path)
		lines := bytes.Split(text, []byte("\n"))
		if err != nil || len(lines) < seen+2 {
			return fmt.Errorf("%q, %v", text, err)
		}
		l = streamLine{}
		return json.Unmarshal(lines[seen], &l)
	})
	return l
}

// TestAccessLogChain: each sidecar logs a line for a stream when it has ended.
func TestAccessLogChain(t *testing.T) {
	long := strings.Repeat("0123456789", 20_000)
	headReceived := make(chan struct{}) // closed when the client has the head of /cut
	endpoint := handle(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/mirror":
			mirror(w, r)
		case "/cut":
			_, _ = io.WriteString(w, long)
			<-headReceived
			panic(http.ErrAbortHandler)
		default:
			_, _ = io.WriteString(w, long)
		}
	})
	for _, k := range []struct {
		name, method, path string
		kind               string // on the consumer's side
		other              string // on the provider's
		outcome            string
		in, out            int // at least
	}{
		{"body", "PUT", "/mirror", "body", "body", "2xx", len(long), len(long)},
		{"answer", "GET", "/long?x=1", "answer", "answer", "2xx", 20, len(long)},
		{"cut", "GET", "/cut", "answer", "answer", "cut", 20, 1},
	} {
		t.Run(k.name, func(t *testing.T) {
			c := newChain(t, chainOptions{more: "access_log: {path: /log}"}, endpoint)
			var body io.Reader
			if k.method == "PUT" {
				body = strings.NewReader(long)
			}
			r, _ := http.NewRequest(k.method, "http://"+c.addr+k.path, body)
			r.Header.Set("X-Request-Id", k.name)
			resp, err := c.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if k.name == "cut" {
				close(headReceived)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			for i, s := range c.nodes {
				l := s.log.line(0)
				if l.BytesIn < k.in || l.BytesOut < k.out || l.DurationMS <= 0 || !strings.HasPrefix(l.Client, "127.0.0.1:") {
					t.Errorf("sidecar %d: %+v", i, l)
				}
				l.BytesIn, l.BytesOut, l.DurationMS, l.Client = 0, 0, 0, ""
				want := streamLine{
					Listener: "in", Protocol: "http", Stream: k.kind, RequestID: k.name, Method: k.method, Path: k.path,
					Service: "app", Endpoint: c.nodes[1].addr, Outcome: k.outcome, Status: 200,
				}
				if i == 1 {
					want.Protocol, want.Stream, want.Endpoint = "link", k.other, endpoint
				}
				if l != want {
					t.Errorf("sidecar %d:\n%+v, want\n%+v", i, l, want)
				}
			}
			c.waitNoStreams()
		})
	}
}

// TestAccessLogTunnels: each sidecar logs a line at the end of a tunnel, with the bytes
// of both directions.
func TestAccessLogTunnels(t *testing.T) {
	for _, k := range []struct {
		sent, forwarded    string // the client sends; the end of what the server receives before the tunnel
		granted, received  string // the server sends; the end of what the client receives before the tunnel
		consumer, provider streamLine
	}{
		{
			sent: "CONNECT bytes:1 HTTP/1.1\r\nHost: bytes:1\r\nX-Request-Id: id\r\n\r\n", received: downstream.Connected,
			consumer: streamLine{Protocol: "http", Stream: "connect", Method: "CONNECT", RequestID: "id", Outcome: "2xx", Status: 200},
			provider: streamLine{Protocol: "link", Stream: "opaque", Outcome: "closed"},
		},
		{
			sent: ask, forwarded: "\r\n\r\n", granted: "HTTP/1.1 101 Sure\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", received: "\r\n\r\n",
			consumer: streamLine{Protocol: "http", Stream: "websocket", Method: "GET", Path: "/chat?x=1", RequestID: "id", Outcome: "2xx", Status: 101},
			provider: streamLine{Protocol: "link", Stream: "websocket", Method: "GET", Path: "/chat?x=1", RequestID: "id", Outcome: "2xx", Status: 101},
		},
	} {
		t.Run(k.consumer.Stream, func(t *testing.T) {
			a := newApp(t)
			c := newChain(t, chainOptions{more: "access_log: {path: /log}"}, a.addr)
			client := c.dial()
			_, _ = io.WriteString(client, k.sent+"ping")
			server := receive(t, a.conns, "the connection")
			readPast(t, "the server", server, k.forwarded)
			_, _ = io.WriteString(server, k.granted)
			wantRead(t, "the server", server, "ping")
			_, _ = io.WriteString(server, "server")
			server.Close()
			readPast(t, "the client", client, k.received)
			wantRead(t, "the client", client, "server")
			client.Close()
			k.consumer.Endpoint, k.provider.Endpoint = c.nodes[1].addr, a.addr
			for i, want := range []streamLine{k.consumer, k.provider} {
				want.Listener, want.Service, want.BytesIn, want.BytesOut = "in", "app", len("ping"), len("server")
				l := c.nodes[i].log.line(0)
				l.Client, l.DurationMS = "", 0
				if l != want {
					t.Errorf("sidecar %d:\n%+v, want\n%+v", i, l, want)
				}
			}
			c.waitNoStreams()
		})
	}
}

// readPast reads until what was read ends with end. An empty end reads nothing.
func readPast(t *testing.T, who string, nc net.Conn, end string) {
	t.Helper()
	var got []byte
	for b := make([]byte, 1); !strings.HasSuffix(string(got), end); got = append(got, b...) {
		if _, err := nc.Read(b); err != nil {
			t.Fatalf("%s read %q, %v", who, got, err)
		}
	}
}

// TestAccessLogPass: the line of a redirected connection names the listener, whether or
// not the original destination accepted it.
func TestAccessLogPass(t *testing.T) {
	s := newSidecar(t, options{more: "access_log: {path: /log}"})
	a := newApp(t)
	client, here := redirected(t)
	s.srv.Pass("outbound", here, netip.MustParseAddrPort(a.addr), []byte("four"))
	server := receive(t, a.conns, "the connection")
	wantRead(t, "the server", server, "four")
	_, _ = io.WriteString(server, "server")
	wantRead(t, "the client", client, "server")
	client.Close()
	server.Close()
	want := streamLine{
		Listener: "outbound", Client: client.LocalAddr().String(), Protocol: "tcp", Stream: "opaque", Endpoint: a.addr,
		Outcome: "closed", BytesIn: 4, BytesOut: 6,
	}
	l := s.log.line(0)
	l.DurationMS = 0
	if l != want {
		t.Errorf("%+v, want\n%+v", l, want)
	}
	client, here = redirected(t)
	gone := refusingAddr(t)
	s.srv.Pass("outbound", here, netip.MustParseAddrPort(gone), nil)
	wantReset(t, "the client", client)
	want = streamLine{
		Listener: "outbound", Client: client.LocalAddr().String(), Protocol: "tcp", Stream: "opaque", Endpoint: gone,
		Outcome: "failed", Error: "upstream-connect",
	}
	l = s.log.line(1)
	l.DurationMS = 0
	if l != want {
		t.Errorf("%+v, want\n%+v", l, want)
	}
	s.counts.waitIdle()
}

// TestAccessLogTCP: an opaque connection has a line, whether or not an endpoint
// accepted it.
func TestAccessLogTCP(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{more: "access_log: {path: /log}"}, a.addr)
	client, server := s.pair(a)
	_, _ = io.WriteString(client, "four")
	wantRead(t, "the server", server, "four")
	_, _ = io.WriteString(server, "server")
	wantRead(t, "the client", client, "server")
	at := client.LocalAddr().String()
	client.Close()
	server.Close()
	s.counts.waitIdle()
	l := s.log.line(0)
	l.DurationMS = 0
	want := streamLine{
		Listener: "in", Client: at, Protocol: "tcp", Stream: "opaque", Service: "app", Endpoint: a.addr,
		Outcome: "closed", BytesIn: 4, BytesOut: 6,
	}
	if l != want {
		t.Errorf("%+v, want\n%+v", l, want)
	}
	gone := refusingAddr(t)
	s.update(endpoint(gone))
	s.wantRefused()
	if l := s.log.line(1); l.Outcome != "failed" || l.Error != "upstream-connect" || l.Status != 0 || l.Endpoint != gone || l.Listener != "in" {
		t.Errorf("%+v", l)
	}
	s.counts.waitIdle()
}

// TestAccessLogBrokenCall: a gRPC call whose endpoint resets its connection within the response has failed: its caller has not
// cancelled the call.
func TestAccessLogBrokenCall(t *testing.T) {
	a := newApp(t)
	c := newChain(t, chainOptions{sidecars: 1, more: "access_log: {path: /log}"}, a.addr)
	client := c.nodes[0].dial()
	fmt.Fprintf(client, "POST /a.B/C HTTP/1.1\r\nHost: app\r\nContent-Type: application/grpc\r\nContent-Length: %d\r\n\r\n%s",
		2*longest, strings.Repeat("x", 2*longest))
	server := receive(t, a.conns, "the application to get the call")
	r, err := http.ReadRequest(bufio.NewReader(server))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\npart")
	readUntil(t, client, "part")
	(&end{conn: server, tcp: server}).reset()
	wantReset(t, "the client", client)
	if l := c.nodes[0].log.line(0); l.GRPC != "internal" || l.Status != 200 {
		t.Errorf("%+v", l)
	}
	c.waitNoStreams()
}

// TestAccessLogWholeCall: a gRPC call whose whole response names no code has no code in the log, and counts as failed, whether its
// request is a message or a stream.
func TestAccessLogWholeCall(t *testing.T) {
	whole := strings.Repeat("w", 2*longest)
	endpoint := handle(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/grpc")
		_, _ = io.WriteString(w, whole)
	})
	for _, size := range []int{2 * longest, 5} {
		c := newChain(t, chainOptions{more: "access_log: {path: /log}"}, endpoint)
		r, _ := http.NewRequest("POST", "http://"+c.addr+"/a.B/C", strings.NewReader(strings.Repeat("x", size)))
		r.Header.Set("Content-Type", "application/grpc")
		resp, err := c.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); string(body) != whole || err != nil {
			t.Errorf("got %d bytes, %v", len(body), err)
		}
		resp.Body.Close()
		for i, s := range c.nodes {
			if l := s.log.line(0); l.GRPC != "other" || l.Outcome != "5xx" || l.Status != 200 {
				t.Errorf("a request of %d bytes, sidecar %d: %+v", size, i, l)
			}
		}
		c.waitNoStreams()
	}
}
