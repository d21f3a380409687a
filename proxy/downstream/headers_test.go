package downstream

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/forwarded"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// TestRemovedHeadersAreCleared checks that a pooled exchange does not keep the memory of headers
// that prepareRequest removed.
func TestRemovedHeadersAreCleared(t *testing.T) {
	ex := &exchange.Exchange{}
	for range 100 {
		ex.Request.Headers = append(ex.Request.Headers, protocol.Header{Name: []byte("x-remora-attempt"), Value: []byte("1")})
	}
	prepareRequest(ex, rand.NewPCG(1, 2), &Origin{Listener: &exchange.Listener{}}, protocol.Header{})
	for i, h := range ex.Request.Headers[:100] {
		if i >= len(ex.Request.Headers) && (h.Name != nil || h.Value != nil) {
			t.Fatalf("header %d of %d is %q", i, len(ex.Request.Headers), h)
		}
	}
}

// TestCredentials checks what credentials that log in a connection mean for a request. Those of a CONNECT are
// not sent on.
func TestCredentials(t *testing.T) {
	for _, c := range []struct {
		method, name, value string
		login               bool
		refusal             *fault.Failure
	}{
		{"GET", "Authorization", "Basic x", false, nil},
		{"GET", "authorization", "Negotiate YII", true, nil},
		{"GET", "Proxy-Authorization", "NTLM", true, fault.ConnectionLogin},
		{"CONNECT", "Proxy-Authorization", "NTLM", false, nil},
		{"GET", "Proxy-Authenticate", "NTLM", false, nil},
	} {
		ex := &exchange.Exchange{}
		ex.Request.Method = []byte(c.method)
		ex.Request.Headers = []protocol.Header{{Name: []byte(c.name), Value: []byte(c.value)}}
		prepareRequest(ex, rand.NewPCG(1, 2), &Origin{Listener: &exchange.Listener{}}, protocol.Header{})
		if ex.Request.Login != c.login || ex.Refusal != c.refusal {
			t.Errorf("%s with %s: %s: %t, %v", c.method, c.name, c.value, ex.Request.Login, ex.Refusal)
		}
		if string(protocol.Find(ex.Request.Headers, strings.ToLower(c.name))) != c.value {
			t.Errorf("%s: %s is left of %s", c.method, ex.Request.Headers, c.name)
		}
	}
}

// TestPreparedHeaders: what becomes of each header of a client, by what is known of the client.
func TestPreparedHeaders(t *testing.T) {
	const parent = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	longest := strings.Repeat("i", maxRequestID)
	type client struct{ local, secure, trusted bool }
	outside, local, trusted := client{}, client{local: true, trusted: true}, client{trusted: true}
	for _, c := range []struct {
		from    client
		method  string
		headers string // with | between them; what a session adds to all requests is left out below
		want    string // the headers that are sent on, but for an id that was made
		hints   string // what the request has become
	}{
		{outside, "GET", "", "x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},
		{client{secure: true}, "GET", "", "x-forwarded-for: 10.0.0.7|x-forwarded-proto: https", ""},
		{outside, "GET", "a: b|x-other: c|te: d", "a: b|x-other: c|te: d|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},

		{outside, "GET", "x-forwarded-for: 1.1.1.1|X-Forwarded-Proto: https", "x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},
		{local, "GET", "x-forwarded-for: 1.1.1.1|x-forwarded-for:|X-Forwarded-For: 2.2.2.2|x-forwarded-proto: https|x-forwarded-proto:",
			"x-forwarded-for: 1.1.1.1, 2.2.2.2, 10.0.0.7|x-forwarded-proto: https", ""},
		{local, "GET", "x-forwarded-for: a|x-forwarded-proto: b", "x-forwarded-for: a, 10.0.0.7|x-forwarded-proto: b", ""},
		{trusted, "GET", "x-forwarded-for: 1.1.1.1, 2.2.2.2", "x-forwarded-for: 2.2.2.2, 10.0.0.7|x-forwarded-proto: http", ""},
		{outside, "GET", "x-real-ip: a|x_real_ip: b|X-Real-I: c", "X-Real-I: c|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},
		{trusted, "GET", "x-real-ip: a|x_forwarded_for: b", "x-real-ip: a|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},

		{outside, "GET", "x-request-id: abc", "x-forwarded-for: 10.0.0.7|x-forwarded-proto: http|x-request-id: abc", ""},
		{outside, "GET", "x-request-id: a b|x-request-id: " + longest + "i|x-request-id:|X-Request-Id: " + longest + "|x-request-id: later",
			"x-forwarded-for: 10.0.0.7|x-forwarded-proto: http|x-request-id: " + longest, ""},
		{outside, "GET", "x-request-id: !~", "x-forwarded-for: 10.0.0.7|x-forwarded-proto: http|x-request-id: !~", ""},
		{outside, "GET", "x-request-id: \x7f", "x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},

		{outside, "GET", "x-remora-idempotent: 1|x-remora-hedge: off|x-remora-priority: batch|x-remora-timeout-ms: 5|x-remora-attempt: 3|x-remora-class: c",
			"x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},
		{local, "GET", "x-remora-idempotent: 1|x-remora-hedge: off|x-remora-priority: batch|x-remora-timeout-ms: 5|x-remora-attempt: 3|x-remora-class: c|x-remora-other: d",
			"x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", "idempotent nohedge batch attempt=3 class=c timeout=5ms"},
		{local, "GET", "x-remora-attempt: 10", "x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", "attempt=10"},
		{local, "GET", "x-remora-idempotent: 0|x-remora-hedge: on|x-remora-priority: high|x-remora-timeout-ms: x|x-remora-attempt: 300",
			"x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},
		{outside, "GET", "grpc-timeout: 7m|x-envoy-expected-rq-timeout-ms: 9", "grpc-timeout: 7m|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},
		{trusted, "GET", "grpc-timeout: 7m|x-envoy-expected-rq-timeout-ms: 9",
			"grpc-timeout: 7m|x-envoy-expected-rq-timeout-ms: 9|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", "timeout=7ms"},

		{outside, "GET", parent + "|tracestate: remora=again", parent + "|tracestate: remora=again|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},
		{outside, "GET", parent + "|tracestate: MEMBER", parent + "|tracestate: MEMBER|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},
		{local, "GET", parent + "|tracestate: a=b", parent + "|tracestate: a=b|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},
		{local, "GET", parent + "|TraceState: a=b,MEMBER", parent + "|TraceState: a=b,MEMBER|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", "attempt=1"},
		{local, "GET", "tracestate: MEMBER", "tracestate: MEMBER|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},
		{local, "GET", parent + "|tracestate: MEMBER|x-remora-attempt: 4", parent + "|tracestate: MEMBER|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", "attempt=4"},

		{outside, "GET", "cdn-loop: " + strings.Repeat("remora, ", maxPassed-1) + "a; remora,remora ;b=c", "", "passed"},
		{outside, "GET", "cdn-loop: " + strings.Repeat("remora, ", maxPassed) + "remora", "", "passed refused=loop-detected"},
		{outside, "GET", "via: " + strings.Repeat("1.1 remora, ", maxPassed-1) + "remora,1.1 remorae, 2 remora (x)", "", "passed"},
		{outside, "GET", "Via: " + strings.Repeat("1.1 remora, ", maxPassed) + "1.0 remora", "", "passed refused=loop-detected"},
		{outside, "GET", "via: " + strings.Repeat("1.1 remora, ", maxPassed-1) + "2 remora|CDN-Loop: remora", "", "passed refused=loop-detected"},

		{outside, "GET", "via: 1.1 a|cdn-loop: b", "via: 1.1 a|cdn-loop: b|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},
		{outside, "OPTIONS", "a: b", "a: b|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},
		{outside, "GET", "max-forwards: 0", "max-forwards: 0|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},
		{outside, "OPTIONS", "Max-Forwards: 0", "Max-Forwards: 0|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", "refused=max-forwards"},
		{outside, "TRACE", "max-forwards: 1", "max-forwards: 0|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},
		{outside, "TRACE", "max-forwards: 20", "max-forwards: 19|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},
		{outside, "TRACE", "max-forwards: 256", "max-forwards: 255|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},
		{outside, "TRACE", "max-forwards: 99999999999999999999", "max-forwards: 255|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},
		{outside, "TRACE", "max-forwards: x", "max-forwards: x|x-forwarded-for: 10.0.0.7|x-forwarded-proto: http", ""},
	} {
		name := fmt.Sprintf("%+v %s %.100s", c.from, c.method, c.headers)
		settings := config.Forwarded{Underscores: config.UnderscoresKeep, Strip: []string{"X-Real-IP", "X-Envoy-Expected-Rq-Timeout-Ms"}}
		if c.from.trusted && !c.from.local {
			settings.Trust = []string{"1"}
		}
		member := strings.NewReplacer("MEMBER", trace.Member)
		loop := sim.New(1).Loop("a")
		loop.Do(func() {
			l := &exchange.Listener{Local: c.from.local, Secure: c.from.secure, Trust: forwarded.New(&settings, c.from.local)}
			from := OriginOf(l, "10.0.0.7:1")
			ex := exchange.NewPool(shard.New(new(shard.Process), 0, loop, slog.New(slog.DiscardHandler), 1)).Exchange(nil)
			ex.RequestID, ex.Forwarded = []byte("earlier"), []byte("9.9.9.9, ") // of a request before
			ex.Request.Method = []byte(c.method)
			for _, line := range strings.Split(member.Replace(c.headers), "|") {
				if name, value, ok := strings.Cut(line, ":"); ok {
					ex.Request.Headers = append(ex.Request.Headers, protocol.Header{Name: []byte(name), Value: []byte(strings.TrimSpace(value))})
				}
			}
			prepareRequest(ex, rand.NewPCG(1, 2), &from, protocol.Header{Name: []byte("hop"), Value: []byte("here")})
			var got []string
			hops := 0
			for _, h := range ex.Request.Headers {
				switch line := string(h.Name) + ": " + string(h.Value); {
				case line == "hop: here":
					hops++
				case protocol.EqualFold(h.Name, "x-request-id"):
					if string(h.Value) != string(ex.RequestID) {
						t.Errorf("%s: %s, and the id is %s", name, line, ex.RequestID)
					}
					if len(ex.RequestID) != len(ex.NewID) || string(ex.RequestID) != string(ex.NewID[:]) {
						got = append(got, line)
					}
				default:
					got = append(got, line)
				}
			}
			if said := strings.ToLower(strings.Join(got, "|")); c.want != "" && said != strings.ToLower(member.Replace(c.want)) || hops != 1 {
				t.Errorf("%s:\n%s, want\n%s", name, said, c.want)
			}
			if hints := hintsOf(ex, loop.Now()); hints != strings.TrimSpace(strings.TrimPrefix(c.hints, "passed")) {
				t.Errorf("%s: %q, want %q", name, hints, c.hints)
			}
		})
	}
}

// hintsOf returns what a session has found out about a request.
func hintsOf(ex *exchange.Exchange, now time.Duration) string {
	var all []string
	add := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(ex.Request.Idempotent, "idempotent")
	add(ex.NoHedge, "nohedge")
	add(ex.Request.Batch, "batch")
	add(ex.Request.Attempt > 0, "attempt=%d", ex.Request.Attempt)
	add(ex.ClassName != nil, "class=%s", ex.ClassName)
	add(ex.Request.Deadline != 0, "timeout=%v", ex.Request.Deadline-now)
	if ex.Refusal != nil {
		add(true, "refused=%s", ex.Refusal.Code)
	}
	return strings.Join(all, " ")
}

// TestTrailersKept: no trailer of a client may be one that the sidecar reads or sets, or that the client may not set.
func TestTrailersKept(t *testing.T) {
	settings := config.Forwarded{Underscores: config.UnderscoresDrop, Strip: []string{"X-Real-IP"}}
	for _, isLocal := range []bool{true, false} {
		from := OriginOf(&exchange.Listener{Trust: forwarded.New(&settings, isLocal)}, "10.0.0.7:1")
		req := &protocol.Request{}
		for _, name := range []string{
			"a", "age", "location", "grpc-status", "x-remora-idempotent", "X-Forwarded-For", "x-forwarded-proto", "x-request-id", "via", "x-real-ip", "a_b", "cdn-loop", "tracestate",
		} {
			req.Trailers = append(req.Trailers, protocol.Header{Name: []byte(name)})
		}
		FilterTrailers(req, &from)
		var left []string
		for _, h := range req.Trailers {
			left = append(left, string(h.Name))
		}
		want := "a age location grpc-status cdn-loop tracestate"
		if isLocal {
			want = "a age location grpc-status x-real-ip cdn-loop tracestate"
		}
		if got := strings.Join(left, " "); got != want {
			t.Errorf("local %t: %s are left, want %s", isLocal, got, want)
		}
		one := &protocol.Request{}
		one.Trailers = []protocol.Header{{Name: []byte("x-remora-class")}}
		if FilterTrailers(one, &from); len(one.Trailers) > 0 {
			t.Errorf("local %t: the only trailer %s is left", isLocal, one.Trailers)
		}
	}
}

// TestUnderscores: a request with a name that the listener rejects is refused. A trailer is removed.
func TestUnderscores(t *testing.T) {
	settings := config.Forwarded{Underscores: config.UnderscoresReject}
	from := OriginOf(&exchange.Listener{Trust: forwarded.New(&settings, false)}, "10.0.0.7:1")
	for name, refusal := range map[string]*fault.Failure{
		"a-b": nil, "a_b": fault.Underscore, "abc_defg": fault.Underscore, "t_acestate": fault.Underscore, "x_remora_a": nil,
	} {
		ex := &exchange.Exchange{}
		ex.Request.Headers = []protocol.Header{{Name: []byte(name)}, {Name: []byte("c")}}
		ex.Request.Trailers = []protocol.Header{{Name: []byte("a_b")}, {Name: []byte("x-remora-class")}, {Name: []byte("d")}}
		if prepareRequest(ex, rand.NewPCG(1, 2), &from, protocol.Header{}); ex.Refusal != refusal {
			t.Errorf("%s: %v", name, ex.Refusal)
		}
		if len(ex.Request.Trailers) != 1 || string(ex.Request.Trailers[0].Name) != "d" {
			t.Errorf("%s: the trailers %s are left", name, ex.Request.Trailers)
		}
	}
}

// TestValidHeaders: a header that the sidecar adds to a request, Via with that setting, is known to be valid if it has nothing of the client. A
// valid X-Request-Id was looked at.
func TestValidHeaders(t *testing.T) {
	client := []protocol.Header{
		{Name: []byte("x-forwarded-for"), Value: []byte("1.1.1.1")}, {Name: []byte("x-forwarded-proto"), Value: []byte("https")},
		{Name: []byte("x-request-id"), Value: []byte("a")},
	}
	l := &exchange.Listener{Trust: forwarded.New(&config.Forwarded{}, true), Fixed: &exchange.Route{}}
	for _, c := range []struct {
		headers []protocol.Header
		want    string
		via     string
	}{
		{nil, "cdn-loop x-forwarded-for x-forwarded-proto x-request-id", ""}, {client, "cdn-loop x-request-id", ""},
		{nil, "via x-forwarded-for x-forwarded-proto x-request-id", "2.0 a"},
	} {
		ex, from := &exchange.Exchange{}, OriginOf(l, "10.0.0.7:1")
		ex.Request.Headers = slices.Clone(c.headers)
		h := &Host{Shard: &shard.Shard{Via: c.via != ""}}
		if r := h.FindRoute(ex, &from, []byte("2.0 a")); r != l.Fixed {
			t.Errorf("%s: the route of the listener is not taken", c.headers)
		}
		if via := string(protocol.Find(ex.Request.Headers, "via")); via != c.via {
			t.Errorf("%s: via: %s, want %s", c.headers, via, c.via)
		}
		var valid []string
		for _, h := range ex.Request.Headers {
			if h.Valid {
				valid = append(valid, strings.ToLower(string(h.Name)))
			}
		}
		if got := strings.Join(valid, " "); got != c.want {
			t.Errorf("%s: %s are valid, want %s", c.headers, got, c.want)
		}
	}
	var res protocol.Response
	if AddRequestID(&res, []byte("a")); !res.Headers[0].Valid {
		t.Error("the id of a response is not valid")
	}
}

// TestPeerAddr: the address of a peer as X-Forwarded-For has it.
func TestPeerAddr(t *testing.T) {
	for remote, want := range map[string]string{
		"10.0.0.7:1": "10.0.0.7", "[::ffff:10.0.0.7]:1": "10.0.0.7", "[fe80::1%eth0]:1": "fe80::1", "unix:/a": "unknown", "": "unknown",
	} {
		if got := string(peerAddr(remote)); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}

// TestAddRequestID: the id of the application stays.
func TestAddRequestID(t *testing.T) {
	for _, c := range []struct{ own, id, want string }{{"", "a", "a"}, {"b", "a", "b"}, {"", "", ""}} {
		var res protocol.Response
		if c.own != "" {
			res.Headers = []protocol.Header{{Name: []byte("X-Request-Id"), Value: []byte(c.own)}}
		}
		var id []byte
		if c.id != "" {
			id = []byte(c.id)
		}
		if AddRequestID(&res, id); string(protocol.Find(res.Headers, "x-request-id")) != c.want || len(res.Headers) > 1 {
			t.Errorf("%+v: %q", c, res.Headers)
		}
	}
}
