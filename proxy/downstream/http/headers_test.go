package http_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// addedHeaders returns the lines of the headers that a sidecar adds, in order.
func addedHeaders(hs []protocol.Header) string {
	var lines []string
	for _, h := range hs {
		switch name := strings.ToLower(string(h.Name)); name {
		case "via", "cdn-loop", "x-forwarded-for", "x-forwarded-proto", "x-request-id", "date":
			lines = append(lines, name+": "+string(h.Value))
		}
	}
	return strings.Join(lines, "\n")
}

// madeID matches an X-Request-Id that a sidecar made.
var madeID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// TestAddedHeaders checks the headers that sidecars add to a request and to its response, with
// one sidecar on the way and with two.
func TestAddedHeaders(t *testing.T) {
	const kept = "req_1/ABC"
	for _, c := range []struct {
		name     string
		outside  bool // the listener is not on loopback
		http10   bool
		via      bool     // the setting
		request  []string // header lines
		response string   // header lines
		seen     []string // by the application, except X-Request-Id
		returned []string // to the client
		id       string   // X-Request-Id; "" means a new one
	}{
		{name: "no headers before",
			seen:     []string{"cdn-loop: remora", "x-forwarded-for: 10.99.0.1", "x-forwarded-proto: http"},
			returned: []string{"date: Mon, 30 Mar 2026 00:00:02 GMT"}},
		{name: "HTTP/1.0", http10: true,
			seen:     []string{"cdn-loop: remora", "x-forwarded-for: 10.99.0.1", "x-forwarded-proto: http"},
			returned: []string{"date: Mon, 30 Mar 2026 00:00:02 GMT"}},
		{name: "via", via: true, request: []string{"Via: 1.1 edge", "CDN-Loop: cdn.example; a=b"},
			seen:     []string{"via: 1.1 edge", "cdn-loop: cdn.example; a=b", "via: 1.1 remora", "x-forwarded-for: 10.99.0.1", "x-forwarded-proto: http"},
			returned: []string{"via: 1.1 remora", "date: Mon, 30 Mar 2026 00:00:02 GMT"}},
		{name: "via for HTTP/1.0", via: true, http10: true,
			seen:     []string{"via: 1.0 remora", "x-forwarded-for: 10.99.0.1", "x-forwarded-proto: http"},
			returned: []string{"via: 1.1 remora", "date: Mon, 30 Mar 2026 00:00:02 GMT"}},
		{name: "an application behind a proxy",
			request: []string{"via: 1.1 edge", "X-Forwarded-For: 198.51.100.7", "x-forwarded-for: 203.0.113.9",
				"X-FORWARDED-PROTO: https", "X-Request-ID: " + kept},
			seen: []string{"via: 1.1 edge", "cdn-loop: remora",
				"x-forwarded-for: 198.51.100.7, 203.0.113.9, 10.99.0.1", "x-forwarded-proto: https"},
			returned: []string{"date: Mon, 30 Mar 2026 00:00:02 GMT"}, id: kept},
		{name: "an untrusted client", outside: true,
			request: []string{"via: 1.1 edge", "X-Forwarded-For: 198.51.100.7", "x-forwarded-proto: https",
				"x-request-id: " + kept},
			seen:     []string{"via: 1.1 edge", "cdn-loop: remora", "x-forwarded-for: 10.99.0.1", "x-forwarded-proto: http"},
			returned: []string{"date: Mon, 30 Mar 2026 00:00:02 GMT"}, id: kept},
		{name: "a response with a date, through another proxy",
			response: "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nVia: 1.1 cache\r\n",
			seen:     []string{"cdn-loop: remora", "x-forwarded-for: 10.99.0.1", "x-forwarded-proto: http"},
			returned: []string{"date: Sun, 06 Nov 1994 08:49:37 GMT", "via: 1.1 cache"}},
		{name: "an id with a space", request: []string{"x-request-id: a b"},
			seen:     []string{"cdn-loop: remora", "x-forwarded-for: 10.99.0.1", "x-forwarded-proto: http"},
			returned: []string{"date: Mon, 30 Mar 2026 00:00:02 GMT"}},
		{name: "an id too long", request: []string{"x-request-id: " + strings.Repeat("i", 129)},
			seen:     []string{"cdn-loop: remora", "x-forwarded-for: 10.99.0.1", "x-forwarded-proto: http"},
			returned: []string{"date: Mon, 30 Mar 2026 00:00:02 GMT"}},
		{name: "the longest id", request: []string{"x-request-id: " + strings.Repeat("i", 128)},
			seen:     []string{"cdn-loop: remora", "x-forwarded-for: 10.99.0.1", "x-forwarded-proto: http"},
			returned: []string{"date: Mon, 30 Mar 2026 00:00:02 GMT"}, id: strings.Repeat("i", 128)},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := proxytest.MeshOptions{Apps: 1}
			if c.outside {
				o.Egress = "0.0.0.0:15001"
			}
			if c.via {
				o.Limits = "via: on"
			}
			proxytest.EachTopology(t, o, func(t *testing.T, m *proxytest.Mesh) {
				var seen string
				m.Apps[0].ExtraHeaders = c.response
				m.Apps[0].OnRequest = func(req *protocol.Request) { seen = addedHeaders(req.Headers) }
				call := m.Get("/", c.request...)
				if c.http10 {
					call.Raw = []byte(strings.Replace(string(call.Raw), "HTTP/1.1", "HTTP/1.0", 1))
				}
				m.W.Run(2500*time.Millisecond - m.W.Now())
				m.Do(call)
				m.OK(call)
				got, id, _ := strings.Cut(addedHeaders(call.Headers), "\nx-request-id: ")
				if want := strings.Join(c.returned, "\n"); got != want {
					t.Errorf("the client got\n%s\nwant\n%s", got, want)
				}
				if id != c.id && (c.id != "" || !madeID.MatchString(id)) {
					t.Errorf("the client got the id %q, want %q", id, c.id)
				}
				if want := strings.Join(c.seen, "\n") + "\nx-request-id: " + id; seen != want {
					t.Errorf("the application got\n%s\nwant\n%s", seen, want)
				}
			})
		})
	}
}

// TestHeadersOfOwnResponses checks that a response which the sidecar makes has a Date and an
// X-Request-Id.
func TestHeadersOfOwnResponses(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{})
	m.Consumer.Update("compute")
	call := m.Get("/", "x-request-id: mine")
	m.Do(call)
	m.Finish(call)
	want := "date: Sun, 29 Mar 2026 23:59:59 GMT\nx-request-id: mine"
	if got := addedHeaders(call.Headers); call.Code != "no-endpoint" || got != want {
		t.Errorf("got %d %s with\n%s\nwant no-endpoint with\n%s", call.Status, call.Code, got, want)
	}
}

// TestRequestIDOfApplication checks that the X-Request-Id of an application's response stays.
func TestRequestIDOfApplication(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	m.Apps[0].ExtraHeaders = "x-request-id: the-apps\r\n"
	call := m.Get("/", "x-request-id: mine")
	m.Do(call)
	m.OK(call)
	if got := addedHeaders(call.Headers); !strings.HasPrefix(got, "x-request-id: the-apps\ndate") || strings.Count(got, "x-request-id") != 1 {
		t.Errorf("the client got\n%s", got)
	}
}

// TestRequestIDsDiffer checks that ids differ between requests, and between loops.
func TestRequestIDsDiffer(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Loops: 2})
	seen := map[string]bool{}
	for i := range 100 {
		c := m.Get("/")
		m.Dial(fmt.Sprintf("10.0.0.1:%d", 15001+i%2)).Calls = []*proxytest.Call{c}
		m.Finish(c)
		id := string(protocol.Find(c.Headers, "x-request-id"))
		if !madeID.MatchString(id) || seen[id] {
			t.Fatalf("id %q, after %d others", id, len(seen))
		}
		seen[id] = true
	}
}

// TestDate checks that the Date of a response is the current second.
func TestDate(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	for range 50 {
		before := proxytest.Epoch.Add(m.W.Now()).Truncate(time.Second)
		call := m.Get("/")
		m.Do(call)
		m.Finish(call)
		date, err := time.Parse(time.RFC1123, string(protocol.Find(call.Headers, "date")))
		if after := proxytest.Epoch.Add(m.W.Now()); err != nil || date.Before(before) || date.After(after) {
			t.Fatalf("responded between %v and %v, dated %v: %v", before, after, date, err)
		}
		m.W.Run(130 * time.Millisecond)
	}
}

// TestMaxForwards checks that sidecars count in the Max-Forwards of TRACE and OPTIONS. Two
// sidecars of a link count as one.
func TestMaxForwards(t *testing.T) {
	for _, c := range []struct{ method, value, want string }{ // want "" means that the request is refused
		{"OPTIONS", "10", "9"},
		{"TRACE", "1", "0"},
		{"TRACE", "0", ""},
		{"OPTIONS", "000", ""},
		{"OPTIONS", "256", "255"},
		{"OPTIONS", "257", "255"},
		{"OPTIONS", "123456789012345678901234567890", "255"},
		{"OPTIONS", "-1", "-1"},
		{"OPTIONS", "many", "many"},
		{"GET", "0", "0"},
		{"DELETE", "7", "7"},
	} {
		t.Run(c.method+" "+c.value, func(t *testing.T) {
			proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1}, func(t *testing.T, m *proxytest.Mesh) {
				got := m.Apps.CollectHeader("max-forwards")
				call := m.Get("/", "MAX-Forwards: "+c.value)
				call.Raw = []byte(strings.Replace(string(call.Raw), "GET", c.method, 1))
				again := m.Get("/")
				m.Do(call, again)
				m.Finish(call, again)
				m.OK(again)
				if c.want == "" {
					proxytest.Equal(t, "the client's response", fmt.Sprint(call.Status, " ", call.Code), "501 max-forwards")
					proxytest.Equal(t, "the application's requests", len(*got), 1)
					return
				}
				m.OK(call)
				proxytest.Equal(t, "the application's Max-Forwards", (*got)[0], c.want)
			})
		})
	}
}
