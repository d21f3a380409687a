package http_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

const connectCompute = "CONNECT compute:80 HTTP/1.1\r\nHost: compute:80\r\n\r\n"

// TestTunnelOfRequests: after a CONNECT to the host of a route, requests are served as on the
// connection itself, wherever the input is split: also those pipelined before and behind it, and
// one with a body. A request without an authority has that of the CONNECT.
func TestTunnelOfRequests(t *testing.T) {
	said := "GET /0 HTTP/1.1\r\nHost: compute\r\n\r\n" + connectCompute + "GET /1 HTTP/1.1\r\nHost: compute\r\n\r\n" +
		"POST /2 HTTP/1.1\r\nHost: compute\r\nContent-Length: 4\r\n\r\nbody" + "GET /3 HTTP/1.0\r\n\r\n"
	for seed := range uint64(30) {
		m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Seed: seed, Match: "match: {host: compute}"})
		m.W.Options.Cut = 0.5
		var got []string
		m.Apps[0].OnRequest = func(req *protocol.Request) {
			got = append(got, fmt.Sprintf("%s %s %s%s", req.Method, req.Authority, req.Path, req.Body))
		}
		p := m.DialAndSend(proxytest.Egress, said)
		heard := m.RunUntilClosed(p)
		if want := "[GET compute /0 GET compute /1 POST compute /2body GET compute:80 /3]"; fmt.Sprint(got) != want {
			t.Errorf("seed %d: the application got %v, want %s", seed, got, want)
		}
		if n := strings.Count(heard, downstream.Connected); n != 1 || strings.Count(heard, "HTTP/1.1 200 ") != 5 {
			t.Errorf("seed %d: %q", seed, heard)
		}
		if len(c.Requests) != 0 {
			t.Errorf("seed %d: a connection left its loop", seed)
		}
		proxytest.CheckStreamsSettled(m, c)
	}
}

// sender is a handler of HTTP/2 that hears nothing.
type sender struct{ http2.ResponseHandler }

func (sender) OnSent(*http2.Stream) {}

// TestHTTP2: HTTP/2 is served from the start of a connection, and after a CONNECT to the host of a route, wherever the
// input is split.
func TestHTTP2(t *testing.T) {
	var codec http2.Conn
	codec.InitClient(&http2.Options{Buffers: &protocol.Buffers{}}, sender{})
	codec.Request(&protocol.Request{Method: []byte("GET"), Path: []byte("/1"), Authority: []byte("compute:80")}, "http", nil)
	said := string(codec.Output(1 << 16))
	for before, heard := range map[string]string{"": "", connectCompute: downstream.Connected} {
		for seed := range uint64(30) {
			m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Seed: seed, Match: "match: {host: compute}"})
			m.W.Options.Cut = 0.5
			p := m.DialAndSend(proxytest.Egress, before+said)
			m.RunUntil("the request", func() bool { return m.Apps[0].Served == 1 })
			m.Consumer.Proc.Drain()
			if all := m.RunUntilClosed(p); !strings.HasPrefix(all, heard+"\x00\x00") {
				t.Errorf("seed %d: %q", seed, all)
			}
			if len(streams.Requests) != 0 {
				t.Errorf("seed %d: a connection left its loop", seed)
			}
			proxytest.CheckStreamsSettled(m, streams)
		}
	}
}

// TestLongHTTP2: what comes with the preface of HTTP/2 in a long read is not lost.
func TestLongHTTP2(t *testing.T) {
	var codec http2.Conn
	codec.InitClient(&http2.Options{Buffers: &protocol.Buffers{}}, sender{})
	const size = 40 << 10
	codec.Request(&protocol.Request{Method: []byte("POST"), Path: []byte("/1"), Authority: []byte("compute:80"), Body: make([]byte, size)}, "http", nil)
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	m.W.Options.Cut = 0
	got := 0
	m.Apps[0].OnRequest = func(req *protocol.Request) { got = len(req.Body) }
	p := m.DialAndSend(proxytest.Egress, string(codec.Output(1<<16)))
	m.RunUntil("the request", func() bool { return m.Apps[0].Served == 1 })
	if got != size {
		t.Errorf("%d bytes came", got)
	}
	m.Consumer.Proc.Drain()
	m.RunUntilClosed(p)
	m.Settled()
}

// TestLateHTTP2: the preface of HTTP/2 is no request behind one of HTTP/1.1.
func TestLateHTTP2(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Match: "match: {host: compute}"})
	heard := m.RunUntilClosed(m.DialAndSend(proxytest.Egress, "GET / HTTP/1.1\r\nHost: compute\r\n\r\n"+http2.Preface))
	if !strings.HasPrefix(heard, "HTTP/1.1 200 ") {
		t.Errorf("%q", heard)
	}
	proxytest.CheckRefusal(t, []byte(heard[strings.LastIndex(heard, "HTTP/1.1 "):]), 505, "bad-version")
	m.Settled()
}

// TestTunnelDecides: what a client says first decides what becomes of a tunnel, and so does
// silence where a route names CONNECT.
func TestTunnelDecides(t *testing.T) {
	const names, lacks, only = "match: {method: [CONNECT, GET]}", "match: {host: compute}", "match: {method: [CONNECT]}"
	for _, c := range []struct {
		name, match, says string
		left              string // bytes with which the connection leaves; "none" means that it stays
		ends              string // of what the client reads
	}{
		{"TLS", names, "\x16\x03\x01\x02\x00", "\x16\x03\x01\x02\x00", downstream.Connected},
		{"Redis", names, "*1\r\n$4\r\nPING\r\n", "*1\r\n$4\r\nPING\r\n", downstream.Connected},
		{"HTTP/2", names, http2.Preface, http2.Preface, downstream.Connected},
		{"silence", names, "", "", downstream.Connected},
		{"part of a request line", names, "GET / HT", "GET / HT", downstream.Connected},
		{"only CONNECT has a route", only, "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\n", ""},
		{"TLS without a route", lacks, "\x16\x03\x01\x02\x00\x01", "none", downstream.Connected + "\x15\x03\x03\x00\x02\x02\x31"},
		{"Redis without a route", lacks, "*1\r\n$4\r\nPING\r\n", "none", downstream.Connected},
		{"a slow request line without a route", lacks, "GET / HT", "none", "the request's head took too long\n"},
		{"silence without a route", lacks, "", "none", downstream.Connected},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Match: c.match, Limits: "timeouts: {idle: 20s}"})
			p := m.DialAndSend(proxytest.Egress, connectCompute+c.says)
			if c.left == "none" {
				if heard := m.RunUntilClosed(p); !strings.HasPrefix(heard, downstream.Connected) || !strings.HasSuffix(heard, c.ends) || len(streams.Requests) != 0 {
					t.Errorf("%q, %d streams", heard, len(streams.Requests))
				}
				proxytest.CheckStreamsSettled(m, streams)
				return
			}
			m.RunUntil("a stream", func() bool { return len(streams.Requests) == 1 })
			m.W.Run(time.Second)
			r := streams.Requests[0]
			if got := string(r.Rest) + string(proxytest.ReadArrived(t, streams.Sockets[0])); got != c.left ||
				r.Kind != stats.StreamConnect || r.Service != "compute" || r.Unrouted != nil || r.Opened != (c.ends != "") {
				t.Errorf("left with %q as %+v", got, r)
			}
			if string(p.Heard) != c.ends {
				t.Errorf("the client read %q", p.Heard)
			}
			if n := m.Consumer.Proc.Held(); n != 0 {
				t.Errorf("%d bytes are still counted", n)
			}
			proxytest.CheckStreamsSettled(m, streams)
		})
	}
}

// TestLogNamesHostOfTunnel: the log names the host of a tunnel that was refused because of its first bytes.
func TestLogNamesHostOfTunnel(t *testing.T) {
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Match: "match: {host: compute}"})
	m.RunUntilClosed(m.DialAndSend(proxytest.Egress, connectCompute+"*1\r\n")) // Redis, no HTTP
	if log := m.Consumer.LogText.String(); !strings.Contains(log, "method=CONNECT host=compute:80") {
		t.Errorf("logged: %s", log)
	}
	proxytest.CheckStreamsSettled(m, streams)
}

// TestTunnelDrains: a drain ends a tunnel after the request in flight, and one without a request
// soon.
func TestTunnelDrains(t *testing.T) {
	for _, says := range []string{"", "GET /1 HTTP/1.1\r\nHost: compute\r\n\r\n"} {
		m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Match: "match: {host: compute}"})
		m.Apps[0].Delay = func() time.Duration { return 100 * time.Millisecond }
		p := m.DialAndSend(proxytest.Egress, connectCompute+says)
		m.RunUntil("the tunnel", func() bool { return len(p.Heard) > 0 })
		m.W.Run(10 * time.Millisecond)
		m.Consumer.Proc.Drain()
		heard := m.RunUntilClosed(p)
		if closes := strings.Contains(heard, "Connection: close\r\n"); closes != (says != "") {
			t.Errorf("%q: %q", says, heard)
		}
		proxytest.CheckStreamsSettled(m, c)
	}
}

// TestTunnelBeginsInDrain: a draining process takes no stream of a tunnel that it has accepted before.
func TestTunnelBeginsInDrain(t *testing.T) {
	for says, want := range map[string]string{"*1\r\n": "", "\x16\x03\x01\x02\x00\x01": "\x15\x03\x03\x00\x02\x02\x31"} {
		m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Match: "match: {method: [CONNECT, GET]}"})
		m.W.Options.Cut = 0 // else an alert may lack the bytes that ask for it
		p := m.DialAndSend(proxytest.Egress, connectCompute)
		m.RunUntil("the tunnel", func() bool { return string(p.Heard) == downstream.Connected })
		m.Consumer.Proc.Drain()
		m.Clients.Do(func() { p.Conn.Write([]byte(says)) })
		m.RunUntil("the end", func() bool { return p.Ended || len(streams.Requests) > 0 })
		if heard := string(p.Heard); heard != downstream.Connected+want || len(streams.Requests) != 0 {
			t.Errorf("%q: heard %q, %d streams", says, heard, len(streams.Requests))
		}
		proxytest.CheckStreamsSettled(m, streams)
	}
}

// TestDirect: with `unrouted: direct` a request to a proxy that no route matches leaves for the
// host that it names, with the path as it came, and no other request does.
func TestDirect(t *testing.T) {
	for _, c := range []struct{ name, says, want string }{
		{"absolute-form", "GET http://other:81/a%2Fb//c HTTP/1.1\r\nHost: x\r\n\r\n", "other:81 GET /a%2Fb//c HTTP/1.1"},
		{"with a body", "POST http://other/ HTTP/1.1\r\nHost: other\r\nContent-Length: 4\r\n\r\nbody", "other POST / HTTP/1.1"},
		{"behind another", "GET /v1/ HTTP/1.1\r\nHost: compute\r\n\r\nGET http://other/ HTTP/1.1\r\nHost: other\r\n\r\n", "other GET / HTTP/1.1"},
		{"another path of a routed host", "GET http://compute/v2/ HTTP/1.1\r\nHost: x\r\n\r\n", "compute GET /v2/ HTTP/1.1"},
		{"CONNECT", "CONNECT other:443 HTTP/1.1\r\nHost: other:443\r\n\r\n", "other:443"},
		{"in a tunnel", connectCompute + "GET /v2/ HTTP/1.1\r\nHost: compute\r\n\r\n", "compute:80 GET /v2/ HTTP/1.1"},
		{"TLS in a tunnel", connectCompute + "\x16", "compute:80"},
		{"absolute-form in a tunnel", connectCompute + "GET http://other:81/v2/ HTTP/1.1\r\nHost: x\r\n\r\n", "other:81 GET /v2/ HTTP/1.1"},
		{"CONNECT in a tunnel", connectCompute + "CONNECT other:443 HTTP/1.1\r\nHost: other:443\r\n\r\n", "other:443"},
		{"origin-form", "GET / HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n", "no-route"},
		{"a path that is not normal", "GET http://other:81/a/../b HTTP/1.1\r\nHost: x\r\n\r\n", "other:81 GET /a/../b HTTP/1.1"},
		{"a path of a routed host that is not normal", "GET http://compute/v2/../v3/ HTTP/1.1\r\nHost: x\r\n\r\n", "compute GET /v3/ HTTP/1.1"},
		{"an ambiguous path of a routed host", "GET http://compute/..%2fv1/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "bad-path"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{
				Apps: 1, Match: "match: {host: compute, path: /v1/}", Listener: "unrouted: direct",
			})
			p := m.DialAndSend(proxytest.Egress, c.says)
			if !strings.Contains(c.want, " ") && !strings.Contains(c.want, ":") {
				if heard := m.RunUntilClosed(p); !strings.Contains(heard, "X-Remora-Error: "+c.want+"\r\n") {
					t.Errorf("%q", heard)
				}
				return
			}
			m.RunUntil("a stream", func() bool { return len(streams.Requests) == 1 })
			m.W.Run(time.Second)
			r := streams.Requests[0]
			start, _, _ := bytes.Cut(r.Head, []byte("\r\n"))
			if r.Unrouted == nil {
				t.Fatalf("left as %+v", r)
			}
			if got := strings.TrimSpace(r.Unrouted.Authority + " " + string(start)); got != c.want || r.Service != "" || r.Unrouted.Listener != "egress" {
				t.Errorf("%q, %+v", got, r)
			}
			kind := stats.StreamConnect
			if len(start) > 0 {
				kind = stats.StreamBody
			}
			if r.Kind != kind {
				t.Errorf("left as %v, want %v", r.Kind, kind)
			}
			if r.Timeout != 5*time.Minute {
				t.Errorf("waits %s for the response", r.Timeout)
			}
			if bytes.Count(r.Head, []byte("CDN-Loop: ")) > 1 {
				t.Errorf("the headers of a proxy were added twice: %q", r.Head)
			}
			proxytest.CheckStreamsSettled(m, streams)
		})
	}
}

// TestDirectRefused: a path that is refused only where routes have paths does not hide why else a
// direct request is refused.
func TestDirectRefused(t *testing.T) {
	for headers, want := range map[string]string{
		strings.Repeat("Via: 1.1 remora\r\n", 9): "HTTP/1.1 508 ",
		"x_user: admin\r\n":                      "HTTP/1.1 400 ",
	} {
		for _, path := range []string{"/ok", "/%00"} {
			m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{
				Apps: 1, Match: "match: {host: compute, path: /v1/}", Listener: "unrouted: direct, forwarded: {underscores: reject}",
			})
			heard := m.RunUntilClosed(m.DialAndSend(proxytest.Egress, "GET http://other:81"+path+" HTTP/1.1\r\nHost: x\r\n"+headers+"\r\n"))
			if !strings.HasPrefix(heard, want) || len(streams.Requests) != 0 {
				t.Errorf("%s with %.20q: %d left, heard %.100q", path, headers, len(streams.Requests), heard)
			}
		}
	}
}

// TestDirectBesideRules: no request goes round the rules of a host to reach that host directly, whatever makes the
// request leave the loop. In a tunnel to the host, a request has the host's rules whatever host the request names.
func TestDirectBesideRules(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for name, rest := range map[string]string{
		"a message":          "\r\n",
		"a length":           "Content-Length: 100000\r\n\r\n" + long,
		"chunks":             fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(long), long),
		"an upgrade":         "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"an upgrade's body":  "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 4\r\n\r\nbody",
		"an ignored upgrade": "Connection: Upgrade\r\nUpgrade: tcp\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nx-sum: 1\r\n\r\n",
	} {
		for _, c := range []struct {
			opens, host string
			leaves      bool
		}{
			{"", "compute", false},
			{"", "COMPUTE.:81", false},
			{"", "other", true},
			{connectCompute, "compute", false},
			{connectCompute, "other", false},
		} {
			m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{
				Apps: 1, OneHop: true, Listener: "unrouted: direct", Limits: proxytest.SmallMessages,
				Match: "match: {host: compute, path: /open}, allow: {rules: [{method: [GET]}]}",
			})
			p := m.DialAndSend(proxytest.Egress, c.opens+"POST http://"+c.host+"/secret HTTP/1.1\r\nHost: x\r\n"+rest)
			refused := func() bool { return strings.Contains(string(p.Heard), "HTTP/1.1 404 ") }
			m.RunUntil("a response or stream", func() bool { return len(streams.Requests) == 1 || refused() })
			if leaves := len(streams.Requests) == 1; leaves != c.leaves || refused() == c.leaves || m.Apps[0].Served != 0 {
				t.Errorf("%s to %s, behind %q: leaves %t, heard %.200q", name, c.host, c.opens, leaves, p.Heard)
			}
			m.W.Faults.Reset(p.Conn)
			proxytest.CheckStreamsSettled(m, streams)
		}
	}
}

// TestRequestBesideRules: a request that must not go round the rules of its host is refused alone: the connection stays for
// the next request. The configuration of the moment when its head was received decides.
func TestRequestBesideRules(t *testing.T) {
	const open, secret = "GET http://compute/open HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://compute/secret HTTP/1.1\r\nHost: x\r\n\r\n"
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{
		Apps: 1, OneHop: true, Listener: "unrouted: direct", Match: "match: {host: compute, path: /open}, allow: {rules: [{method: [GET]}]}",
	})
	m.Apps[0].Delay = func() time.Duration { return 50 * time.Millisecond }
	p := m.DialAndSend(proxytest.Egress, open+secret+open)
	m.W.Run(10 * time.Millisecond)
	m.Consumer.Reload(proxytest.ReloadYAML(m, `{match: {host: compute}, service: compute}`, `compute: {%s}`))
	statuses := func() (all []string) {
		for _, r := range strings.Split(string(p.Heard), "HTTP/1.1 ")[1:] {
			all = append(all, r[:3])
		}
		return all
	}
	m.RunUntil("three responses, or the end", func() bool { return len(statuses()) == 3 || p.Ended })
	if got := fmt.Sprint(statuses()); got != "[200 404 200]" || len(streams.Requests) != 0 {
		t.Errorf("%d left, responses %s", len(streams.Requests), got)
	}
	m.W.Faults.Reset(p.Conn)
	proxytest.CheckStreamsSettled(m, streams)
}

// TestTunnelOfSilentClient: a client that waits for its server leaves after timeouts.detect, also to a
// host that only unrouted: direct reaches.
func TestTunnelOfSilentClient(t *testing.T) {
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Match: "match: {host: compute}", Listener: "unrouted: direct"})
	m.DialAndSend(proxytest.Egress, "CONNECT compute:22 HTTP/1.1\r\nHost: compute:22\r\n\r\n")
	m.RunUntil("the stream", func() bool { return len(streams.Requests) == 1 })
	if streams.Requests[0].Unrouted == nil {
		t.Error("the stream is not a direct one")
	}
}

// TestGuardedTunnel: what might be a request to a host with rules never leaves a tunnel unread, however late
// it comes and however the host is spelled. The rules decide about each request.
func TestGuardedTunnel(t *testing.T) {
	const (
		named    = "match: {host: Compute}, allow: {rules: [{path: [/open]}]}"
		other    = "match: {host: compute, path: /open}, allow: {rules: [{method: [GET]}]}"
		all      = "match: {path: /secret}, allow: {rules: [{method: [GET]}]}"
		counted  = "match: {host: compute}, allow: {enforce: false, rules: [{path: [/open]}]}"
		connects = "match: {host: compute, method: [CONNECT, GET]}, allow: {rules: [{method: [CONNECT]}]}"
		beside   = "match: {method: [CONNECT]}, service: compute}, {" + all // a route for the CONNECT, and rules for all hosts
		secret   = "DELETE /secret HTTP/1.1\r\nHost: compute\r\nConnection: close\r\n\r\n"
		hello    = "\x16\x03\x01\x02\x00\x01"
		alert    = "\x15\x03\x03\x00\x02\x02\x31"
	)
	for _, c := range []struct{ name, match, says, want string }{ // want is in what the client reads, or it leaves
		{"a late request", named, secret, "HTTP/1.1 403 "},
		{"a late request without a route", other, secret, "HTTP/1.1 404 "},
		{"a late request, rules for all hosts", all, secret, "HTTP/1.1 403 "},
		{"an empty line", named, "\r\n" + secret, "HTTP/1.1 403 "},
		{"two empty lines", named, "\r\n\r\n" + secret, "HTTP/1.1 400 "},
		{"a line feed", named, "\n" + secret, "HTTP/1.1 400 "},
		{"half a request line", named, "DELETE /sec", "HTTP/1.1 408 "},
		{"TLS", named, hello, alert},
		{"Redis", named, "*1\r\n", ""},
		{"Redis, rules for all hosts", all, "*1\r\n", ""},
		{"TLS, rules for all hosts", all, hello, "leaves"},
		{"a record that is no ClientHello, rules for all hosts", all, hello[:5] + "\x02", ""},
		{"another version, rules for all hosts", all, "\x16\x02" + hello[2:], ""},
		{"a long record, rules for all hosts", all, hello[:3] + "\x41\x00\x01", ""},
		{"text behind the first byte, rules for all hosts", all, "\x16\r\n" + secret, ""},
		{"half the head of a ClientHello, rules for all hosts", all, hello[:5], "HTTP/1.1 408 "},
		{"a ClientHello that is no HTTP", named, "\x16\r\n" + secret, ""},
		{"Redis, rules beside the route", beside, "*1\r\n", ""},
		{"a late request, rules beside the route", beside, secret, "HTTP/1.1 403 "},
		{"TLS, rules beside the route", beside, hello, "leaves"},
		{"rules that are not enforced", counted, "", "leaves"},
		{"rules that the CONNECT meets", connects, "", "leaves"},
	} {
		for _, authority := range []string{"compute:80", "COMPUTE:80", "compute.:80", "%63ompute:80", "compute%2E:443"} {
			m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Match: c.match, Listener: "unrouted: direct"})
			p := m.DialAndSend(proxytest.Egress, "CONNECT "+authority+" HTTP/1.1\r\nHost: x\r\n\r\n")
			m.W.Run(time.Second) // more than timeouts.detect
			if c.says != "" {
				m.Clients.Do(func() { p.Conn.Write([]byte(c.says)) })
			}
			if c.want == "leaves" {
				m.RunUntil("the stream", func() bool { return len(streams.Requests) == 1 })
				continue
			}
			heard := m.RunUntilClosed(p)
			if rest, ok := strings.CutPrefix(heard, downstream.Connected); !ok || !strings.HasPrefix(rest, c.want) || c.want == "" && rest != "" {
				t.Errorf("%s to %s: %q", c.name, authority, heard)
			}
			if len(streams.Requests)+m.Apps[0].Served != 0 {
				t.Errorf("%s to %s: %d streams, %d requests served", c.name, authority, len(streams.Requests), m.Apps[0].Served)
			}
			proxytest.CheckStreamsSettled(m, streams)
		}
	}
}

// TestTunnelBesideRules: while a host has rules, requests to it are read in tunnels to addresses and other hosts,
// too, in whatever pieces they come. Bytes of other protocols leave.
func TestTunnelBesideRules(t *testing.T) {
	for _, authority := range []string{"10.0.1.1:80", "10.0.1.1.:80", "[::ffff:a00:101]:80", "[2001:db8::1]:8080", "other:80"} {
		for says, want := range map[string]string{
			"DELETE /secret HTTP/1.1\r\nHost: compute\r\n\r\n":                            "HTTP/1.1 403 ",
			"\r\nDELETE /secret HTTP/1.1\r\nHost: compute.\r\n\r\n":                       "HTTP/1.1 403 ",
			"DELETE  /secret HTTP/1.1\r\nHost: compute\r\n\r\n":                           "HTTP/1.1 400 ",
			"DELETE\v/secret\vHTTP/1.1\r\nHost: compute\r\n\r\n":                          "HTTP/1.1 400 ",
			"DELETE\r/secret\rHTTP/1.1\r\nHost: compute\r\n\r\n":                          "HTTP/1.1 400 ",
			strings.Repeat("\n", 65) + "DELETE /secret HTTP/1.1\r\nHost: compute\r\n\r\n": "HTTP/1.1 400 ",
			"GET /secret HTTP/1.1\r\nHost: compute\r\nConnection: close\r\n\r\n":          "HTTP/1.1 404 ",
			"GET /free HTTP/1.1\r\nHost: other\r\n\r\n":                                   "leaves",
			"*1\r\n": "leaves", "\x16\x03\x01": "leaves", "": "leaves",
		} {
			for _, rest := range []bool{true, false} {
				m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{
					Apps: 1, Match: "match: {host: compute, method: [DELETE]}, allow: {rules: [{path: [/open]}]}", Listener: "unrouted: direct",
				})
				opens := "CONNECT " + authority + " HTTP/1.1\r\nHost: x\r\n\r\n"
				p := m.DialAndSend(proxytest.Egress, opens+says[:len(says)*map[bool]int{true: 1}[rest]])
				if !rest {
					m.RunUntil("the tunnel", func() bool { return len(p.Heard) > 0 })
					m.Clients.Do(func() { p.Conn.Write([]byte(says)) })
				}
				m.RunUntil("a response or stream", func() bool {
					return len(streams.Requests) > 0 || len(p.Heard) >= len(downstream.Connected)+len(want)
				})
				heard := strings.TrimPrefix(string(p.Heard), downstream.Connected)
				if want == "leaves" && (len(streams.Requests) != 1 || streams.Requests[0].Unrouted.Authority != authority) || want != "leaves" && !strings.HasPrefix(heard, want) {
					t.Errorf("%.30q to %s, at once %t: %d streams, %q", says, authority, rest, len(streams.Requests), heard)
				}
				m.W.Faults.Reset(p.Conn)
				proxytest.CheckStreamsSettled(m, streams)
			}
		}
	}
}

// TestTunnelOfRewrittenHost: the client's host decides what a tunnel serves, whatever the service
// gets, also if a request names no host.
func TestTunnelOfRewrittenHost(t *testing.T) {
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{
		Apps: 1, Match: "match: {host: a, method: [CONNECT, GET]}, rewrite: {host: b}",
	})
	p := m.DialAndSend(proxytest.Egress, "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.0\r\n\r\n")
	m.RunUntilClosed(p)
	proxytest.Equal(t, "the application's requests", m.Apps[0].Served, 2)
	if len(streams.Requests) != 0 {
		t.Error("the tunnel left as a stream")
	}
}

// TestTunnelWithUnreadResponse: what comes through a tunnel before its client has read the response to the CONNECT leaves, too.
func TestTunnelWithUnreadResponse(t *testing.T) {
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Match: "match: {method: [CONNECT, GET]}"})
	m.W.Options.SendBuffer, m.W.Options.ReceiveBuffer = 8, 8 // together less than the response
	p := m.DialAndSend(proxytest.Egress, "")
	m.RunUntil("a connection", func() bool { return p.Conn != nil })
	m.W.Faults.PauseReading(p.Conn, true)
	said := []string{connectCompute, "\x16\x03\x01\x02\x00\x01", "more", " and more"}
	for _, b := range said {
		m.Clients.Do(func() { p.Conn.Write([]byte(b)) })
		m.W.Run(time.Second)
	}
	if len(streams.Requests) != 0 {
		t.Fatal("the tunnel left with output buffered")
	}
	m.W.Faults.PauseReading(p.Conn, false)
	m.RunUntil("a stream", func() bool { return len(streams.Requests) == 1 })
	m.W.Run(time.Second)
	got := string(streams.Requests[0].Rest) + string(proxytest.ReadArrived(t, streams.Sockets[0]))
	if want := strings.Join(said[1:], ""); got != want || string(p.Heard) != downstream.Connected {
		t.Errorf("left with %q, want %q; the client heard %q", got, want, p.Heard)
	}
	proxytest.CheckStreamsSettled(m, streams)
}
