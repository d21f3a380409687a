package http_test

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

const (
	known    = "GET / HTTP/1.1\r\nHost: compute:8080\r\n\r\n"
	unrouted = "POST /a HTTP/1.1\r\nHost: other\r\nContent-Length: 4\r\nx-remora-hedge: off\r\n\r\nbody"
)

// newRedirected returns a mesh with one application. Connections to Elsewhere are redirected to
// its sidecar, which has a route for the host compute.
func newRedirected(t *testing.T, o proxytest.MeshOptions) (*proxytest.Mesh, *proxytest.Carrier) {
	t.Helper()
	o.Apps, o.Match = 1, "match: {host: compute}"
	o.Limits += "\n" + proxytest.SmallMessages
	m, c, _ := proxytest.NewStreamMesh(t, o)
	m.W.Net.Redirect(proxytest.OriginalDst, proxytest.Egress)
	return m, c
}

// TestPassThrough checks that input without a route passes unchanged.
func TestPassThrough(t *testing.T) {
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
			m, c := newRedirected(t, proxytest.MeshOptions{})
			m.DialAndSend(proxytest.OriginalDst, said)
			c.CheckPassed(t, m, said)
			if n := m.Apps[0].Served; n != 0 {
				t.Errorf("the service got %d requests", n)
			}
			proxytest.CheckStreamsSettled(m, c)
		})
	}
}

// TestNoPassThroughRules: while a host has rules, nothing of a redirected connection passes unread, whatever
// precedes a request to that host, and however the host is spelled. What goes on to the original
// destination is one request without a route.
func TestNoPassThroughRules(t *testing.T) {
	const (
		named  = "match: {host: compute, path: /open}, allow: {rules: [{method: [GET]}]}"
		whole  = "match: {host: compute}, allow: {rules: [{path: [/open]}]}"
		all    = "match: {path: /secret}, allow: {rules: [{method: [GET]}]}"
		head   = "GET /a HTTP/1.1\r\nHost: other\r\n"
		upload = "PUT /a HTTP/1.1\r\nHost: other\r\n"
	)
	for _, c := range []struct {
		name, first string // sent before the request
		want        string // the response to it; "goes on" means that it goes to the destination, and "" that the rules decide
	}{
		{"nothing", "", ""},
		{"a request to another host", head + "\r\n", "goes on"},
		{"a request without Host", "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "goes on"},
		{"a request in absolute-form", "GET http://other/a HTTP/1.1\r\nHost: x\r\n\r\n", "goes on"},
		{"a body", upload + "Content-Length: 4\r\n\r\nbody", "goes on"},
		{"a long body", upload + "Content-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000), "goes on"},
		{"chunks", upload + "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", "goes on"},
		{"an upgrade", head + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "goes on"},
		{"an upgrade to HTTP/2", head + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n", "goes on"},
		{"a CONNECT", "CONNECT other:80 HTTP/1.1\r\nHost: other\r\n\r\n", "HTTP/1.1 404 "},
		{"a CONNECT to an address", "CONNECT 10.0.1.1:80 HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 404 "},
		{"a request for https", "GET https://other/a HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 400 "},
		{"a malformed request", "GET / HTTP/1.1\r\nno colon\r\n\r\n", "HTTP/1.1 400 "},
		{"a request without Host in HTTP/1.1", "GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		{"line feeds", "GET / HTTP/1.1\nHost: other\n\n", "HTTP/1.1 400 "},
		{"two spaces", "GET  / HTTP/1.1\r\nHost: other\r\n\r\n", "HTTP/1.1 400 "},
		{"empty lines", strings.Repeat("\r\n", 33), "HTTP/1.1 400 "},
		{"a long head", head + "x: " + strings.Repeat("x", 70<<10), "HTTP/1.1 431 "},
		{"many headers", head + strings.Repeat("x: y\r\n", 200), "HTTP/1.1 431 "},
		{"a head that never ends", "-", "HTTP/1.1 408 "},
	} {
		for _, rules := range []string{named, whole, all} {
			for _, host := range []string{"compute", "Compute.:8080", "%63ompute"} {
				for _, direct := range []bool{true, false} {
					m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{
						Apps: 1, OneHop: direct, Match: rules, Limits: proxytest.SmallMessages,
					})
					m.W.Net.Redirect(proxytest.OriginalDst, proxytest.Egress)
					secret := "DELETE /secret HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"
					said := c.first + secret
					if c.first == "-" {
						said = secret[:len(secret)-2]
					}
					p := m.DialAndSend(proxytest.OriginalDst, said)
					want := cmp.Or(c.want, map[string]string{named: "HTTP/1.1 404 "}[rules], "HTTP/1.1 403 ")
					if rules == all && strings.HasPrefix(said, "CONNECT ") { // requests in the tunnel may have a route
						want = downstream.Connected + "HTTP/1.1 403 "
					}
					where := fmt.Sprintf("%s, %s to %s, direct %t", c.name, rules, host, direct)
					checkUnpassed(t, where, m, p, streams, want)
				}
			}
		}
	}
}

// checkUnpassed checks that the client p gets the response want, or that a single request for /a has gone on to
// the original destination. Nothing else may have left the loop, or reached the application.
func checkUnpassed(t *testing.T, where string, m *proxytest.Mesh, p *proxytest.Peer, streams *proxytest.Carrier, want string) {
	t.Helper()
	if want != "goes on" {
		if heard := m.RunUntilClosed(p); !strings.HasPrefix(heard, want) || strings.Count(heard, "HTTP/1.1 ") != strings.Count(want, "HTTP/1.1 ") {
			t.Errorf("%s: %.100q, want %s", where, heard, want)
		}
	} else {
		m.RunUntil("a stream", func() bool { return len(streams.Requests) == 1 })
		r := streams.Requests[0]
		if r.Unrouted == nil || r.Unrouted.To.String() != proxytest.OriginalDst || !bytes.Contains(r.Head[:bytes.IndexByte(r.Head, '\n')], []byte(" /a ")) {
			t.Errorf("%s: %+v left with %.200q", where, r.Unrouted, r.Head)
		}
	}
	if n := len(streams.Passed) + m.Apps[0].Served; n != 0 {
		t.Errorf("%s: %d connections passed, %d requests were served", where, len(streams.Passed), m.Apps[0].Served)
	}
	proxytest.CheckStreamsSettled(m, streams)
}

// TestPassThroughByPath: a request whose normal path has no route passes as it came, and so does
// one with an ambiguous path that begins as no route does. An ambiguous path that begins as a
// route is refused.
func TestPassThroughByPath(t *testing.T) {
	for path, want := range map[string]string{
		"/api/../x//%61": "", "/x/..%2fapi/": "", "/api/..%2fx": "400 bad-path", "/x/../api//%61": "200",
	} {
		m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Match: "match: {path: /api/}"})
		m.W.Net.Redirect(proxytest.OriginalDst, proxytest.Egress)
		said := "GET " + path + " HTTP/1.1\r\nHost: compute\r\n\r\n"
		p := m.DialAndSend(proxytest.OriginalDst, said)
		if want == "" {
			c.CheckPassed(t, m, said)
			proxytest.CheckStreamsSettled(m, c)
			continue
		}
		m.RunUntil("a response", func() bool { return len(p.Heard) > 0 })
		if heard := string(p.Heard); !strings.Contains(heard, want[:3]) || !strings.Contains(heard, want[min(4, len(want)):]) {
			t.Errorf("%s: %s, want %s", path, heard, want)
		}
	}
}

// TestPassThroughAtEverySplit splits the input at each byte.
func TestPassThroughAtEverySplit(t *testing.T) {
	said := unrouted + "and more"
	for i := 1; i < len(said); i++ {
		m, c := newRedirected(t, proxytest.MeshOptions{Seed: uint64(i)})
		p := m.DialAndSend(proxytest.OriginalDst, said[:i])
		m.W.Run(10 * time.Millisecond)
		m.Clients.Do(func() { p.Conn.Write([]byte(said[i:])) })
		c.CheckPassed(t, m, said)
		proxytest.CheckStreamsSettled(m, c)
	}
}

// TestRoutedThenUnrouted checks that requests with a route are served, until the first one
// without a route takes the connection along.
func TestRoutedThenUnrouted(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m, c := newRedirected(t, proxytest.MeshOptions{Seed: seed})
			m.Apps[0].Delay = func() time.Duration { return 5 * time.Millisecond }
			seen := 0
			m.Apps[0].OnRequest = func(*protocol.Request) { seen++ }
			said := unrouted + known
			p := m.DialAndSend(proxytest.OriginalDst, "")
			m.RunUntil("a connection", func() bool { return p.Conn != nil })
			if seed%2 == 0 {
				m.Clients.Do(func() { p.Conn.Write([]byte(known + known + said)) })
			} else {
				m.Clients.Do(func() { p.Conn.Write([]byte(known + known)) })
				m.RunUntil("two responses", func() bool { return strings.Count(string(p.Heard), "\r\n\r\n") == 2 })
				m.Clients.Do(func() { p.Conn.Write([]byte(said)) })
			}
			c.CheckPassed(t, m, said)
			if responses := strings.Count(string(p.Heard), "HTTP/1.1 200 "); responses != 2 || seen != 2 {
				t.Errorf("%d requests reached the service, %d responses the client", seen, responses)
			}
			proxytest.CheckStreamsSettled(m, c)
		})
	}
}

// TestRoutedOfRedirected checks that the service gets a request with a route, and that headers are
// added to it once, although its route is found early.
func TestRoutedOfRedirected(t *testing.T) {
	for _, said := range []string{
		known,
		"POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 5\r\n\r\nhello",
		"POST / HTTP/1.1\r\nHost: compute\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	} {
		for i := 1; i <= len(said); i++ {
			m, c := newRedirected(t, proxytest.MeshOptions{Seed: uint64(i)})
			hops := 0
			m.Apps[0].OnRequest = func(req *protocol.Request) {
				for _, h := range req.Headers {
					if protocol.EqualFold(h.Name, "cdn-loop") {
						hops++
					}
				}
			}
			p := m.DialAndSend(proxytest.OriginalDst, said[:i])
			m.W.Run(10 * time.Millisecond)
			m.Clients.Do(func() { p.Conn.Write([]byte(said[i:])) })
			m.RunUntil("a response", func() bool { return strings.Contains(string(p.Heard), "\r\n\r\n") })
			if !strings.HasPrefix(string(p.Heard), "HTTP/1.1 200 ") || hops != 1 || len(c.Passed) != 0 {
				t.Errorf("split at %d: %d of CDN-Loop, received %q", i, hops, p.Heard)
			}
			m.W.Faults.Reset(p.Conn)
			proxytest.CheckStreamsSettled(m, c)
		}
	}
}

// TestReloadOfRedirected checks that a request of a redirected connection is routed by the
// configuration of the moment when its head was received. That holds for a request which waits
// behind another across a reload, even if its service is removed.
func TestReloadOfRedirected(t *testing.T) {
	for name, services := range map[string]string{
		"the service stays": `compute: {%s}`,
		"it is replaced":    `compute: {%s, max_concurrency: 50}`,
		"it is gone":        `other: {%s}`,
	} {
		t.Run(name, func(t *testing.T) {
			m, c := newRedirected(t, proxytest.MeshOptions{})
			m.Apps[0].Delay = func() time.Duration { return 50 * time.Millisecond }
			var paths []string
			m.Apps[0].OnRequest = func(req *protocol.Request) { paths = append(paths, string(req.Path)) }
			request := func(n int) string { return fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: compute\r\n\r\n", n) }
			p := m.DialAndSend(proxytest.OriginalDst, request(1)+request(2))
			m.RunUntil("the first request", func() bool { return len(paths) == 1 })
			m.Consumer.Reload(proxytest.ReloadYAML(m, `{match: {host: compute, path: /}, rewrite: {path: /new/}, service: `+strings.Split(services, ":")[0]+`}`, services))
			if len(paths) != 1 {
				t.Fatal("the second request did not wait")
			}
			m.Clients.Do(func() { p.Conn.Write([]byte(request(3))) })
			m.RunUntil("the responses", func() bool { return strings.Count(string(p.Heard), "HTTP/1.1 200 ") == 3 })
			if got := strings.Join(paths, " "); got != "/1 /2 /new/3" {
				t.Errorf("the application got %s", got)
			}
			m.W.Faults.Reset(p.Conn)
			proxytest.CheckStreamsSettled(m, c)
		})
	}
}

// TestHandoffOfRedirected checks that a stream with a route leaves the loop as from any listener,
// with headers added once.
func TestHandoffOfRedirected(t *testing.T) {
	for _, l := range handoffCases()[:3] {
		m, c := newRedirected(t, proxytest.MeshOptions{})
		m.DialAndSend(proxytest.OriginalDst, l.head+l.body)
		m.RunUntil("a stream", func() bool { return len(c.Requests) == 1 })
		m.W.Run(time.Second)
		if n := strings.Count(string(c.Requests[0].Head), "CDN-Loop: "); n != 1 {
			t.Errorf("%s: %d of CDN-Loop", l.name, n)
		}
		l.check(t, c.Requests[0], proxytest.ReadArrived(t, c.Sockets[0]))
		proxytest.CheckStreamsSettled(m, c)
	}
}

// TestSlowHeadPasses checks that an incomplete head passes after timeouts.header, if it is the
// first.
func TestSlowHeadPasses(t *testing.T) {
	const half = "GET / HTTP/1.1\r\nHost: comp"
	m, c := newRedirected(t, proxytest.MeshOptions{})
	m.DialAndSend(proxytest.OriginalDst, half)
	c.CheckPassed(t, m, half)
	proxytest.CheckStreamsSettled(m, c)

	m, c = newRedirected(t, proxytest.MeshOptions{})
	p := m.DialAndSend(proxytest.OriginalDst, known+half)
	refused := m.RunUntilClosed(p)
	proxytest.CheckRefusal(t, []byte(refused[strings.LastIndex(refused, "HTTP/1."):]), 408, "header-timeout")
	proxytest.CheckStreamsSettled(m, c)
}

// TestMalformedAfterRouted checks that malformed input after a request gets an error response.
func TestMalformedAfterRouted(t *testing.T) {
	m, c := newRedirected(t, proxytest.MeshOptions{})
	all := m.RunUntilClosed(m.DialAndSend(proxytest.OriginalDst, known+"GET / HTTP/1.1\r\nno colon here\r\n\r\n"))
	proxytest.CheckRefusal(t, []byte(all[strings.LastIndex(all, "HTTP/1."):]), 400, "space-before-colon")
	proxytest.CheckStreamsSettled(m, c)
}

// TestUnroutedOfDirect checks that a connection which was not redirected does not pass: it would
// pass to its own listener.
func TestUnroutedOfDirect(t *testing.T) {
	m, c := newRedirected(t, proxytest.MeshOptions{})
	p := m.DialAndSend(proxytest.Egress, unrouted)
	m.RunUntil("a response", func() bool { return strings.Contains(string(p.Heard), "\r\n\r\n") })
	if !strings.Contains(string(p.Heard), "HTTP/1.1 404 ") || len(c.Passed) != 0 {
		t.Errorf("received %q", p.Heard)
	}
	m.W.Faults.Reset(p.Conn)
	proxytest.CheckStreamsSettled(m, c)
}

// TestPassThroughWithoutSockets checks that a connection which can't leave its loop closes without
// a response.
func TestPassThroughWithoutSockets(t *testing.T) {
	m, c := newRedirected(t, proxytest.MeshOptions{NoSockets: true})
	if heard := m.RunUntilClosed(m.DialAndSend(proxytest.OriginalDst, unrouted)); heard != "" || len(c.Passed) != 0 {
		t.Errorf("received %q", heard)
	}
	proxytest.CheckStreamsSettled(m, c)
}

// TestPassThroughTooLong: more than limits.message behind a request that waits to pass on is
// refused, after the response to an earlier request.
func TestPassThroughTooLong(t *testing.T) {
	m, c := newRedirected(t, proxytest.MeshOptions{})
	m.Apps[0].Delay = func() time.Duration { return 200 * time.Millisecond }
	heard := m.RunUntilClosed(m.DialAndSend(proxytest.OriginalDst, known+unrouted+strings.Repeat("x", 200<<10)))
	if !strings.HasPrefix(heard, "HTTP/1.1 200 ") || !strings.Contains(heard, "HTTP/1.1 413 ") || len(c.Passed) != 0 {
		t.Errorf("%d passed, heard %.300q", len(c.Passed), heard)
	}
}
