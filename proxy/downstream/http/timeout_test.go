package http_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestDrippingRequests checks that a client which sends byte by byte has no more time than one
// that stops.
func TestDrippingRequests(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: a\r\n"
	slow := strings.Repeat("a", 100)
	for _, c := range []struct {
		name, says, drips, code string
		least                   time.Duration
	}{
		{"request line", "", "GET /" + slow, "header-timeout", 10 * time.Second},
		{"header section", post, "x: " + slow, "header-timeout", 10 * time.Second},
		{"body", post + "Content-Length: 1000\r\n\r\n", slow, "body-timeout", 30 * time.Second},
		{"chunk", post + "Transfer-Encoding: chunked\r\n\r\n3e8\r\n", slow, "body-timeout", 30 * time.Second},
		{"chunk size", post + "Transfer-Encoding: chunked\r\n\r\n", strings.Repeat("1\r\na\r\n", 20), "body-timeout", 30 * time.Second},
		{"trailers", post + "Transfer-Encoding: chunked\r\n\r\n0\r\n", "x: " + slow, "body-timeout", 30 * time.Second},
	} {
		for _, before := range []string{"", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"} {
			t.Run(fmt.Sprintf("%s/%d", c.name, len(before)), func(t *testing.T) {
				m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
				p := &proxytest.Peer{Says: []byte(before + c.says)}
				m.Clients.Do(func() { m.Clients.Dial(proxytest.Egress, time.Second, p) })
				sendSlowly(m, p, m.Clients, c.drips)
				m.CheckClosesAfter(p, c.least-time.Millisecond, 2*time.Second)
				if response := string(p.Heard); !strings.Contains(response, "HTTP/1.1 408") || !strings.Contains(response, c.code) {
					t.Errorf("received %q, want 408 %s", response, c.code)
				}
				m.Settled()
			})
		}
	}
}

// TestSlowRequestBehindOther: a request that is too slow gives its memory back at once, although the request before it has no response yet.
func TestSlowRequestBehindOther(t *testing.T) {
	const part = 40_000
	rest := strings.Repeat("x", part)
	for code, says := range map[string]string{
		"body-timeout":   "POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 50000\r\n\r\n" + rest,
		"header-timeout": "GET / HTTP/1.1\r\nHost: compute\r\nx: " + rest,
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 1m", Limits: "timeouts: {header: 5s, body: 5s}"})
		m.Apps[0].Delay = func() time.Duration { return 20 * time.Second }
		p := m.DialAndSend(proxytest.Egress, "GET / HTTP/1.1\r\nHost: compute\r\n\r\n"+says)
		m.W.Run(time.Second)
		before := m.Consumer.Proc.Held()
		m.W.Run(10 * time.Second)
		if held := m.Consumer.Proc.Held(); before < part || held > part/4 {
			t.Errorf("%s: %d bytes are held before the timeout, %d behind it", code, before, held)
		}
		if heard := m.RunUntilClosed(p); !strings.HasPrefix(heard, "HTTP/1.1 200 ") || !strings.Contains(heard, code) {
			t.Errorf("%s: received %q", code, heard)
		}
		m.Settled()
	}
}

// TestBodyTimeoutAfterContinue checks that timeouts.body of a client that waits for 100 Continue
// begins when that is sent, after the responses to earlier requests.
func TestBodyTimeoutAfterContinue(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 60s"})
	m.Apps[0].Delay = func() time.Duration { return 50 * time.Second }
	p := m.DialAndSend(proxytest.Egress, proxytest.StreamRequest+"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	m.CheckClosesAfter(p, 80*time.Second-time.Millisecond, 2*time.Second)
	responses := regexp.MustCompile("HTTP/1.1 ([0-9]+)").FindAllString(string(p.Heard), -1)
	if want := []string{"HTTP/1.1 200", "HTTP/1.1 100", "HTTP/1.1 408"}; !slices.Equal(responses, want) {
		t.Errorf("responses %q, want %q", responses, want)
	}
	m.Settled()
}

// TestSilentClient checks that a connection without a request closes without a response.
func TestSilentClient(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	p := &proxytest.Peer{}
	m.Clients.Do(func() { m.Clients.Dial(proxytest.Egress, time.Second, p) })
	m.CheckClosesAfter(p, 5*time.Minute-time.Millisecond, 2*time.Second)
	if len(p.Heard) > 0 {
		t.Errorf("received %q", p.Heard)
	}
}

// TestSlowApplication checks that a caller waits no longer than the timeout for an application
// that sends byte by byte, or does not read, and that the connection to it closes.
func TestSlowApplication(t *testing.T) {
	for _, c := range []struct {
		name, drips string
		deaf        bool
	}{
		{name: "head", drips: "HTTP/1.1 200 OK\r\nx: " + strings.Repeat("a", 100)},
		{name: "body", drips: "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("a", 100)},
		{name: "reads nothing", deaf: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1, Service: "timeout: 20s"}, func(t *testing.T, m *proxytest.Mesh) {
				m.Apps[0].Stop()
				p, lp := &proxytest.Peer{}, m.W.Loop("10.0.1.1-raw")
				m.W.Net.Listen(m.Apps[0].Addr, lp, func() loop.Receiver { return p })
				k := m.Post(proxytest.MaxMessage, "x-remora-idempotent: 1")
				m.Do(k)
				m.W.RunUntil(func() bool { return p.Conn != nil }, time.Second)
				m.W.Faults.PauseReading(p.Conn, c.deaf)
				sendSlowly(m, p, lp, c.drips)
				m.Finish(k)
				if k.Status != 504 || k.Code != "deadline" {
					t.Errorf("status %d %s, want 504 deadline", k.Status, k.Code)
				}
				m.W.Faults.PauseReading(p.Conn, false)
				if !m.W.RunUntil(func() bool { return p.Ended }, 20*time.Second) {
					t.Error("the application's connection stays open")
				}
				m.Settled()
			})
		})
	}
}

// TestIdleTimeout checks that each connection closes timeouts.idle after its own last response,
// although one timer serves all.
func TestIdleTimeout(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: "timeouts: {idle: 20s}"})
	var peers [3]*proxytest.Peer
	for i := range peers { // at 0, 6 and 12 s
		peers[i] = m.DialAndSend(proxytest.Egress, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		m.W.Run(6 * time.Second)
	}
	m.Clients.Do(func() { peers[0].Conn.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")) }) // at 18 s
	for _, c := range []struct {
		after time.Duration
		ended [3]bool
	}{
		{7900 * time.Millisecond, [3]bool{}},
		{200 * time.Millisecond, [3]bool{1: true}},
		{5800 * time.Millisecond, [3]bool{1: true}},
		{200 * time.Millisecond, [3]bool{1: true, 2: true}},
		{5800 * time.Millisecond, [3]bool{1: true, 2: true}},
		{200 * time.Millisecond, [3]bool{true, true, true}},
	} {
		m.W.Run(c.after)
		if got := [3]bool{peers[0].Ended, peers[1].Ended, peers[2].Ended}; got != c.ended {
			t.Errorf("at %v: ended %v, want %v", m.W.Now(), got, c.ended)
		}
	}
	m.Settled()
}

// TestIdlePooledConnection checks that a pooled connection closes after idle_timeout.
func TestIdlePooledConnection(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	c := m.Post(10)
	m.Do(c)
	m.Finish(c)
	open := func() (n int) {
		m.Consumer.Loop.Do(func() { n = m.Consumer.Proc.Workers()[0].Report(stats.Forecasts).Services[0].Endpoints[0].Connections })
		return n
	}
	m.W.Run(4*time.Second - 100*time.Millisecond)
	if open() != 1 {
		t.Error("closed before idle_timeout")
	}
	m.W.Run(2 * time.Second)
	if open() != 0 {
		t.Error("open after idle_timeout")
	}
}

// TestIdlePooledConnectionsOfBurst checks that the idle connections of a burst don't close in one
// turn of the loop.
func TestIdlePooledConnectionsOfBurst(t *testing.T) {
	const n = 200
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	calls := m.Crowd(n, 1, 10)
	m.OK(calls...)
	open := func() (n int) {
		m.Consumer.Loop.Do(func() { n = m.Consumer.Proc.Workers()[0].Report(stats.Forecasts).Services[0].Endpoints[0].Connections })
		return n
	}
	last, most := open(), 0
	if last < n/2 {
		t.Fatalf("%d connections are left of a burst of %d requests", last, n)
	}
	if !m.W.RunUntil(func() bool {
		now := open()
		last, most = now, max(most, last-now)
		return now == 0
	}, 6*time.Second) {
		t.Errorf("%d are still open", last)
	}
	if most > 8 {
		t.Errorf("%d were closed in one turn, want 8 at most", most)
	}
}

// sendSlowly makes p, once it is connected, send text at one byte per second until the
// connection closes.
func sendSlowly(m *proxytest.Mesh, p *proxytest.Peer, loop interface{ Post(func()) }, text string) {
	m.W.RunUntil(func() bool { return p.Conn != nil }, time.Second)
	for i := range len(text) {
		m.W.At(m.W.Now()+time.Duration(i)*time.Second, func() {
			loop.Post(func() {
				if !p.Ended {
					p.Conn.Write([]byte(text[i : i+1]))
				}
			})
		})
	}
}
