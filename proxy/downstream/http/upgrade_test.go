package http_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestUpgradeWithBody: a request to upgrade leaves the loop with its whole body, and with what follows, wherever the
// input is split and what came before. One that is cut short does not leave.
func TestUpgradeWithBody(t *testing.T) {
	const (
		asks   = "Host: compute\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
		before = "GET /0 HTTP/1.1\r\nHost: compute\r\n\r\n"
		length = "POST /1 HTTP/1.1\r\n" + asks + "Content-Length: 4\r\n\r\nbody"
		chunks = "POST /1 HTTP/1.1\r\n" + asks + "Transfer-Encoding: chunked\r\n\r\n1\r\nb\r\n3\r\nody\r\n0\r\n\r\n"
	)
	for _, says := range []string{length, chunks, before + length, before + chunks} {
		for seed := range uint64(20) {
			m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Seed: seed})
			m.W.Options.Cut = 0.5
			m.DialAndSend(proxytest.Egress, says+"early")
			m.RunUntil("a stream", func() bool { return len(streams.Requests) == 1 })
			m.W.Run(time.Second)
			r := streams.Requests[0]
			if got := string(r.Rest) + string(proxytest.ReadArrived(t, streams.Sockets[0])); got != "early" {
				t.Errorf("%q, seed %d: left with %q", says, seed, got)
			}
			head := string(r.Head)
			if r.Kind != stats.StreamWebSocket || string(r.Protocols) != "tcp" || !strings.HasPrefix(head, "POST /1 ") ||
				!strings.HasSuffix(head, "\r\nContent-Length: 4\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nbody") {
				t.Errorf("%q, seed %d: left as %+v", says, seed, r)
			}
			proxytest.CheckStreamsSettled(m, streams)
		}
	}
	for n, leaves := range map[int]bool{downstream.MaxUpgradeBody: true, downstream.MaxUpgradeBody + 1: false} {
		body := strings.Repeat("b", n)
		for _, rest := range []string{
			fmt.Sprintf("Content-Length: %d\r\n\r\n%s", n, body), fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", n, body),
		} {
			m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1})
			m.DialAndSend(proxytest.Egress, "POST /1 HTTP/1.1\r\n"+asks+rest)
			m.RunUntil("a stream or a request", func() bool { return len(streams.Requests) == 1 || m.Apps[0].Served == 1 })
			if (len(streams.Requests) == 1) != leaves {
				t.Errorf("%.30q, a body of %d bytes: %d upgrades", rest, n, len(streams.Requests))
			}
			proxytest.CheckStreamsSettled(m, streams)
		}
	}
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1})
	p := m.DialAndSend(proxytest.Egress, length[:len(length)-1])
	m.W.Run(10 * time.Millisecond)
	m.W.Faults.HalfClose(p.Conn)
	if heard := m.RunUntilClosed(p); heard != "" || len(streams.Requests) != 0 {
		t.Errorf("cut short: %q, %d streams", heard, len(streams.Requests))
	}
	proxytest.CheckStreamsSettled(m, streams)
}

// TestIgnoredUpgradeOfDirect: a request without a route whose upgrade is ignored goes to the host that it names, or to
// its original destination, as any other request does, with its body and trailers.
func TestIgnoredUpgradeOfDirect(t *testing.T) {
	const named, guarded = "match: {host: compute}", "match: {host: compute}, allow: {rules: [{path: [/open]}]}"
	long := strings.Repeat("b", downstream.MaxUpgradeBody+1)
	for name, c := range map[string]struct{ chunks, body string }{
		"trailers":    {"4\r\nbody\r\n0\r\nx-sum: 1\r\n\r\n", "body"},
		"a long body": {fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(long), long), long},
	} {
		for _, redirected := range []bool{false, true} {
			for seed := range uint64(5) {
				o, to := proxytest.MeshOptions{Apps: 1, Seed: seed, Match: named, Listener: "unrouted: direct"}, proxytest.Egress
				if redirected {
					o.Match, o.Listener, to = guarded, "", proxytest.OriginalDst
				}
				m, streams, _ := proxytest.NewStreamMesh(t, o)
				m.W.Options.Cut = 0.5
				m.W.Net.Redirect(proxytest.OriginalDst, proxytest.Egress)
				m.DialAndSend(to, "POST http://other/1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nTransfer-Encoding: chunked\r\n\r\n"+c.chunks+"late")
				m.RunUntil("a stream", func() bool { return len(streams.Requests) == 1 })
				m.W.Run(time.Second)
				r := streams.Requests[0]
				body := proxytest.WholeBody(t, r, nil)
				late := string(r.Rest) + string(proxytest.ReadArrived(t, streams.Sockets[0]))
				if r.Kind != stats.StreamBody || r.Unrouted == nil || string(body) != c.body || !r.Body.Done() || !r.Chunks || late != "late" || strings.Contains(string(r.Head), "Upgrade") ||
					strings.Count(string(r.Head), "CDN-Loop: ") != 1 {
					t.Errorf("%s, redirected %t: left as %+v with %d bytes, then %q", name, redirected, r, len(body), late)
				}
				proxytest.CheckStreamsSettled(m, streams)
			}
		}
	}
}

// TestExpectationOfUpgrade: a client that asks for an upgrade, and waits for 100 Continue before it sends the body, gets
// that, or its final response if the head decides. The limits of the service are for messages.
func TestExpectationOfUpgrade(t *testing.T) {
	const asks = "HTTP/1.1\r\nHost: other\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
	const routed, other = "match: {host: other}", "match: {host: compute}"
	for name, c := range map[string]struct {
		o      proxytest.MeshOptions
		target string
		status int // of a refusal; 0 means that the request leaves
	}{
		"a route":             {proxytest.MeshOptions{Match: routed}, "/", 0},
		"a busy service":      {proxytest.MeshOptions{Match: routed, Service: "max_pending: 1"}, "/", 0},
		"no route":            {proxytest.MeshOptions{Match: other}, "/", 404},
		"a rate":              {proxytest.MeshOptions{Match: routed + ", rate_limit: {rate: 1, burst: 1}"}, "/", 429},
		"another destination": {proxytest.MeshOptions{Match: other, Listener: "unrouted: direct"}, "http://other/", 0},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Apps = 1
			m, streams, _ := proxytest.NewStreamMesh(t, c.o)
			m.Apps[0].Delay = func() time.Duration { return time.Minute }
			before := m.DialAndSend(proxytest.Egress, "GET / HTTP/1.1\r\nHost: other\r\n\r\n")
			m.W.Run(10 * time.Millisecond)
			p := m.DialAndSend(proxytest.Egress, "POST "+c.target+" "+asks)
			if c.status != 0 {
				heard := m.RunUntilClosed(p)
				if want := fmt.Sprintf("HTTP/1.1 %d ", c.status); !strings.HasPrefix(heard, want) {
					t.Errorf("received %q, want %s", heard, want)
				}
			} else {
				m.RunUntil("100", func() bool { return string(p.Heard) == "HTTP/1.1 100 Continue\r\n\r\n" })
				m.Clients.Do(func() { p.Conn.Write([]byte("body")) })
				m.RunUntil("a stream", func() bool { return len(streams.Requests) == 1 })
				if r := streams.Requests[0]; r.Kind != stats.StreamWebSocket || !strings.HasSuffix(string(r.Head), "\r\n\r\nbody") {
					t.Errorf("left as %+v", r)
				}
			}
			m.W.Faults.Reset(before.Conn)
			proxytest.CheckStreamsSettled(m, streams)
		})
	}
}
