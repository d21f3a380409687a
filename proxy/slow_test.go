package proxy_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy"
)

// drip has p, once it is connected, say text a byte a second, as long as anybody
// listens.
func (m *mesh) drip(p *peer, loop interface{ Post(func()) }, text string) {
	m.w.RunUntil(func() bool { return p.conn != nil }, time.Second)
	for i := range len(text) {
		m.w.At(m.w.Now()+time.Duration(i)*time.Second, func() {
			loop.Post(func() {
				if !p.ended {
					p.conn.Write([]byte(text[i : i+1]))
				}
			})
		})
	}
}

// A client that says a little now and then has no more time than one that stops.
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
				m := newMesh(t, meshOptions{apps: 1})
				p := &peer{says: []byte(before + c.says)}
				m.clients.Do(func() { m.clients.Dial(egress, time.Second, p) })
				m.drip(p, m.clients, c.drips)
				m.closesAfter(p, c.least-time.Millisecond, 2*time.Second)
				if answer := string(p.heard); !strings.Contains(answer, "HTTP/1.1 408") || !strings.Contains(answer, c.code) {
					t.Errorf("%q came back, want 408 %s", answer, c.code)
				}
				m.settled()
			})
		}
	}
}

// The time for a body that waits to be asked for begins when it is, behind the answers
// that are due before.
func TestBodyThatWaitsItsTurn(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true, service: ", timeout: 60s"})
	m.apps[0].delay = func() time.Duration { return 50 * time.Second }
	p := m.speak(egress, getStream+"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	m.closesAfter(p, 80*time.Second-time.Millisecond, 2*time.Second)
	answers := regexp.MustCompile("HTTP/1.1 ([0-9]+)").FindAllString(string(p.heard), -1)
	if want := []string{"HTTP/1.1 200", "HTTP/1.1 100", "HTTP/1.1 408"}; !slices.Equal(answers, want) {
		t.Errorf("answers %q, want %q", answers, want)
	}
	m.settled()
}

// A client that connects and says nothing is disconnected, quietly.
func TestSilentClient(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1})
	p := &peer{}
	m.clients.Do(func() { m.clients.Dial(egress, time.Second, p) })
	m.closesAfter(p, 5*time.Minute-time.Millisecond, 2*time.Second)
	if len(p.heard) > 0 {
		t.Errorf("%q came back", p.heard)
	}
}

// An application that drips its answer, or does not read the request, holds its
// caller no longer than the timeout, and its connection is given up.
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
			eachTopology(t, meshOptions{apps: 1, service: ", timeout: 20s"}, func(t *testing.T, m *mesh) {
				m.apps[0].stop()
				p, loop := &peer{}, m.w.Loop("10.0.1.1-raw")
				m.w.Listen(m.apps[0].addr, loop, func() proxy.Stream { return p })
				k := m.post(maxMessage, "x-remora-idempotent: 1")
				m.do(k)
				m.w.RunUntil(func() bool { return p.conn != nil }, time.Second)
				m.w.Hold(p.conn, c.deaf)
				m.drip(p, loop, c.drips)
				m.finish(k)
				if k.status != 504 || k.code != "deadline" {
					t.Errorf("status %d %s, want 504 deadline", k.status, k.code)
				}
				m.w.Hold(p.conn, false)
				if !m.w.RunUntil(func() bool { return p.ended }, 20*time.Second) {
					t.Error("the application's connection stays open")
				}
				m.settled()
			})
		})
	}
}

// A pooled connection closes once it was idle for idle_timeout.
func TestIdlePooledConnection(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true})
	c := m.post(10)
	m.do(c)
	m.finish(c)
	open := func() (n int) {
		m.consumer.loop.Do(func() { n = m.consumer.proc.Workers()[0].Report().Services[0].Endpoints[0].Connections })
		return n
	}
	m.w.Run(4*time.Second - 100*time.Millisecond)
	if open() != 1 {
		t.Error("closed before idle_timeout was over")
	}
	m.w.Run(2 * time.Second)
	if open() != 0 {
		t.Error("open after idle_timeout")
	}
}

// What a burst has left idle is closed little by little: each turn of the loop has
// other things to do.
func TestIdlePooledConnectionsOfABurst(t *testing.T) {
	const n = 200
	m := newMesh(t, meshOptions{apps: 1, direct: true})
	calls := m.crowd(n, 1, 10)
	m.finish(calls...)
	m.ok(calls...)
	open := func() (n int) {
		m.consumer.loop.Do(func() { n = m.consumer.proc.Workers()[0].Report().Services[0].Endpoints[0].Connections })
		return n
	}
	last, most := open(), 0
	if last < n/2 {
		t.Fatalf("%d connections are left of a burst of %d requests", last, n)
	}
	if !m.w.RunUntil(func() bool {
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
