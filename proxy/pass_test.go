package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// elsewhere is where clients mean their connections to go that are redirected to
// the consumer's sidecar.
const elsewhere = "192.0.2.7:8080"

const (
	known    = "GET / HTTP/1.1\r\nHost: compute:8080\r\n\r\n"
	unrouted = "POST /a HTTP/1.1\r\nHost: other\r\nContent-Length: 4\r\nx-remora-hedge: off\r\n\r\nbody"
)

// newRedirected is a mesh of one application whose sidecar gets what was going
// elsewhere, and has a route for the host compute.
func newRedirected(t *testing.T, o meshOptions) (*mesh, *carrier) {
	t.Helper()
	o.apps, o.match = 1, "match: {host: compute}, "
	o.limits += "\n" + smallMessages
	m, c, _ := newStreamMesh(t, o)
	m.w.Redirect(elsewhere, egress)
	return m, c
}

// passes checks that c was given one connection, with all of what its client said.
func (c *carrier) passes(t *testing.T, m *mesh, said string) {
	t.Helper()
	m.until("a connection to pass", func() bool { return len(c.passed) == 1 })
	m.w.Run(time.Second)
	p := c.passed[0]
	if got := p.first + string(drained(t, c.sockets[0])); p.listener != "egress" || p.to != elsewhere || got != said {
		t.Errorf("passed from %s to %s:\n%.300q, want\n%.300q", p.listener, p.to, got, said)
	}
	if n := m.consumer.proc.Held(); n != 0 {
		t.Errorf("%d bytes are still counted for what has left", n)
	}
}

// What has no route passes as it came.
func TestUnroutedPass(t *testing.T) {
	for name, said := range map[string]string{
		"another host":     unrouted,
		"no request":       "GET / HTTP/1.1\r\nno colon here\r\n\r\nand more",
		"no Host":          "GET / HTTP/1.1\r\n\r\n",
		"bare LF":          "GET / HTTP/1.1\nHost: compute\n\n",
		"another proxy":    "CONNECT compute:443 HTTP/1.1\r\nHost: compute:443\r\n\r\nhello",
		"a long body":      "PUT / HTTP/1.1\r\nHost: other\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000),
		"an endless body":  "PUT / HTTP/1.1\r\nHost: other\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"an upgrade":       "GET / HTTP/1.1\r\nHost: other\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly",
		"pipelined":        unrouted + known + unrouted,
		"too long a head":  "GET / HTTP/1.1\r\nHost: compute\r\nx: " + strings.Repeat("x", 70<<10),
		"too many headers": "GET / HTTP/1.1\r\nHost: compute\r\n" + strings.Repeat("x: y\r\n", 200) + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			m, c := newRedirected(t, meshOptions{})
			m.speak(elsewhere, said)
			c.passes(t, m, said)
			if n := m.apps[0].served; n != 0 {
				t.Errorf("the service got %d requests", n)
			}
			settledStreams(m, c)
		})
	}
}

// However the input is split.
func TestUnroutedPassAtEverySplit(t *testing.T) {
	said := unrouted + "and more"
	for i := 1; i < len(said); i++ {
		m, c := newRedirected(t, meshOptions{seed: uint64(i)})
		p := m.speak(elsewhere, said[:i])
		m.w.Run(10 * time.Millisecond)
		m.clients.Do(func() { p.conn.Write([]byte(said[i:])) })
		c.passes(t, m, said)
		settledStreams(m, c)
	}
}

// A connection whose requests have routes is one of HTTP, until the first that
// has none takes it along.
func TestRoutedThenUnrouted(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m, c := newRedirected(t, meshOptions{seed: seed})
			m.apps[0].delay = func() time.Duration { return 5 * time.Millisecond }
			seen := 0
			m.apps[0].seen = func(*protocol.Request) { seen++ }
			said := unrouted + known
			p := m.speak(elsewhere, "")
			m.until("a connection", func() bool { return p.conn != nil })
			if seed%2 == 0 {
				m.clients.Do(func() { p.conn.Write([]byte(known + known + said)) })
			} else {
				m.clients.Do(func() { p.conn.Write([]byte(known + known)) })
				m.until("two answers", func() bool { return strings.Count(string(p.heard), "\r\n\r\n") == 2 })
				m.clients.Do(func() { p.conn.Write([]byte(said)) })
			}
			c.passes(t, m, said)
			if answers := strings.Count(string(p.heard), "HTTP/1.1 200 "); answers != 2 || seen != 2 {
				t.Errorf("%d requests reached the service, %d answers the client", seen, answers)
			}
			settledStreams(m, c)
		})
	}
}

// A request with a route is answered by the service, and once: its courtesies are
// added only once although its route is looked for early.
func TestRoutedOfRedirected(t *testing.T) {
	for _, said := range []string{
		known,
		"POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 5\r\n\r\nhello",
		"POST / HTTP/1.1\r\nHost: compute\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	} {
		for i := 1; i <= len(said); i++ {
			m, c := newRedirected(t, meshOptions{seed: uint64(i)})
			via := 0
			m.apps[0].seen = func(req *protocol.Request) {
				for _, h := range req.Headers {
					if protocol.EqualFold(h.Name, "via") {
						via++
					}
				}
			}
			p := m.speak(elsewhere, said[:i])
			m.w.Run(10 * time.Millisecond)
			m.clients.Do(func() { p.conn.Write([]byte(said[i:])) })
			m.until("an answer", func() bool { return strings.Contains(string(p.heard), "\r\n\r\n") })
			if !strings.HasPrefix(string(p.heard), "HTTP/1.1 200 ") || via != 1 || len(c.passed) != 0 {
				t.Errorf("split at %d: %d of Via, heard %q", i, via, p.heard)
			}
			m.w.Reset(p.conn)
			settledStreams(m, c)
		}
	}
}

// Whether a request of a redirected connection passes is decided when its head is
// here, so it is routed by the configuration of that moment: one that waits behind
// another across a reload too, even where its service is gone by then.
func TestRedirectedAcrossAReload(t *testing.T) {
	for name, services := range map[string]string{
		"the service stays": `compute: {%s}`,
		"it is replaced":    `compute: {%s, max_concurrency: 50}`,
		"it is gone":        `other: {%s}`,
	} {
		t.Run(name, func(t *testing.T) {
			m, c := newRedirected(t, meshOptions{})
			m.apps[0].delay = func() time.Duration { return 50 * time.Millisecond }
			var paths []string
			m.apps[0].seen = func(req *protocol.Request) { paths = append(paths, string(req.Path)) }
			request := func(n int) string { return fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: compute\r\n\r\n", n) }
			p := m.speak(elsewhere, request(1)+request(2))
			m.until("the first request", func() bool { return len(paths) == 1 })
			m.consumer.reload(reloaded(m, `{match: {host: compute, path: /}, rewrite: {path: /new/}, service: `+strings.Split(services, ":")[0]+`}`, services))
			if len(paths) != 1 {
				t.Fatal("the second request did not wait")
			}
			m.clients.Do(func() { p.conn.Write([]byte(request(3))) })
			m.until("the answers", func() bool { return strings.Count(string(p.heard), "HTTP/1.1 200 ") == 3 })
			if got := strings.Join(paths, " "); got != "/1 /2 /new/3" {
				t.Errorf("the application got %s", got)
			}
			m.w.Reset(p.conn)
			settledStreams(m, c)
		})
	}
}

// A stream with a route leaves as from any listener, its courtesies added once.
func TestStreamsOfRedirectedLeave(t *testing.T) {
	for _, l := range leavings()[:3] {
		m, c := newRedirected(t, meshOptions{})
		m.speak(elsewhere, l.head+l.body)
		m.until("a stream", func() bool { return len(c.requests) == 1 })
		m.w.Run(time.Second)
		if n := strings.Count(string(c.requests[0].Head), "Via: "); n != 1 {
			t.Errorf("%s: %d of Via", l.name, n)
		}
		l.check(t, c.requests[0], drained(t, c.sockets[0]))
		settledStreams(m, c)
	}
}

// A head that does not end passes in time, if it is the first.
func TestSlowHeadPasses(t *testing.T) {
	const half = "GET / HTTP/1.1\r\nHost: comp"
	m, c := newRedirected(t, meshOptions{})
	m.speak(elsewhere, half)
	c.passes(t, m, half)
	settledStreams(m, c)

	m, c = newRedirected(t, meshOptions{})
	p := m.speak(elsewhere, known+half)
	refused := m.wait(p)
	refusedWith(t, []byte(refused[strings.LastIndex(refused, "HTTP/1."):]), 408, "header-timeout")
	settledStreams(m, c)
}

// Who has spoken HTTP is told its mistakes.
func TestMalformedAfterRouted(t *testing.T) {
	m, c := newRedirected(t, meshOptions{})
	all := m.wait(m.speak(elsewhere, known+"GET / HTTP/1.1\r\nno colon here\r\n\r\n"))
	refusedWith(t, []byte(all[strings.LastIndex(all, "HTTP/1."):]), 400, "space-before-colon")
	settledStreams(m, c)
}

// Who was not redirected has nowhere to go on to: to pass it to the listener
// itself would be a loop.
func TestDirectDoesNotPass(t *testing.T) {
	m, c := newRedirected(t, meshOptions{})
	p := m.speak(egress, unrouted)
	m.until("an answer", func() bool { return strings.Contains(string(p.heard), "\r\n\r\n") })
	if !strings.Contains(string(p.heard), "HTTP/1.1 404 ") || len(c.passed) != 0 {
		t.Errorf("heard %q", p.heard)
	}
	m.w.Reset(p.conn)
	settledStreams(m, c)
}

// A connection that can't leave its loop closes: there are no words for it.
func TestPassWithoutSockets(t *testing.T) {
	m, c := newRedirected(t, meshOptions{noSockets: true})
	if heard := m.wait(m.speak(elsewhere, unrouted)); heard != "" || len(c.passed) != 0 {
		t.Errorf("heard %q", heard)
	}
	settledStreams(m, c)
}
