package http_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

const (
	edited = `match: {path: /api/}, rewrite: {path: /v1/, host: "inner:81"},
  request_headers: {set: {x-seen: "{host} {path} {query} {peer} {listener} {service}"}, remove: [x-gone]},
  response_headers: {set: {x-back: "{host} {path} {method} {request_id}"}, remove: [x-secret]}`
	unedited = "match: {path: /api/}"
)

// TestEdits: a route changes the host, the path and the headers of a request, and the headers of its response. Placeholders
// have what the client sent, also where the path was brought into its normal form. The next request of the connection begins anew.
func TestEdits(t *testing.T) {
	for _, c := range []struct{ match, path, seen, back string }{
		{edited, "/api/a?b=c", "inner:81 /v1/a?b=c compute /api/a b=c 10.99.0.1 egress compute", "compute /api/a GET id"},
		{edited, "/api/x/..//%61", "inner:81 /v1/a compute /api/x/..//%61  10.99.0.1 egress compute", "compute /api/x/..//%61 GET id"},
		{edited, "/api/", "inner:81 /v1/ compute /api/  10.99.0.1 egress compute", "compute /api/ GET id"},
		{"match: {path: /api/}, rewrite: {path: /v1/}", "/api/a", "compute /v1/a own gone", "secret"},
		{"match: {path: /api/}, request_headers: {remove: [x-gone]}", "/api/a", "compute /api/a own", "secret"},
		{"match: {path: /api/}, response_headers: {remove: [x-secret]}", "/api/a", "compute /api/a own gone", ""},
		{unedited, "/api/../api/a", "compute /api/a own gone", "secret"},
	} {
		proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1, Match: c.match}, func(t *testing.T, m *proxytest.Mesh) {
			var seen []string
			m.Apps[0].ExtraHeaders = "x-secret: secret\r\n"
			m.Apps[0].OnRequest = func(req *protocol.Request) {
				got := fmt.Sprintf("%s %s %s %s", req.Authority, req.Path, protocol.Find(req.Headers, "x-seen"), protocol.Find(req.Headers, "x-gone"))
				seen = append(seen, strings.TrimSpace(got))
			}
			var calls []*proxytest.Call
			for range 3 {
				calls = append(calls, m.Get(c.path, "x-seen: own", "x-gone: gone", "x-request-id: id"))
			}
			m.Do(calls...)
			m.OK(calls...)
			for i, k := range calls {
				if seen[i] != c.seen {
					t.Errorf("%s, request %d: the application got %q, want %q", c.match, i, seen[i], c.seen)
				}
				if back := fmt.Sprintf("%s%s", protocol.Find(k.Headers, "x-back"), protocol.Find(k.Headers, "x-secret")); back != c.back {
					t.Errorf("%s, response %d: the client got %q, want %q", c.match, i, back, c.back)
				}
			}
			m.Settled()
		})
	}
}

// TestEditsOfStreams: a route changes a request that leaves the loop, and its response, and a response that is a stream.
func TestEditsOfStreams(t *testing.T) {
	const head = "PUT /api/a HTTP/1.1\r\nHost: compute\r\nx-gone: 1\r\nx-request-id: id\r\nContent-Length: 100000\r\n\r\n"
	for match, want := range map[string]string{edited: "compute /api/a PUT id", unedited: ""} {
		m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Match: match, Limits: proxytest.SmallMessages})
		m.DialAndSend(proxytest.Egress, head)
		m.RunUntil("a stream", func() bool { return len(streams.Requests) == 1 })
		r := streams.Requests[0]
		if gone := !bytes.Contains(r.Head, []byte("x-gone: 1\r\n")); gone != (want != "") || (r.Edit != nil) != (want != "") {
			t.Errorf("%s: left with %q, edits %t", match, r.Head, r.Edit != nil)
		}
		res := protocol.Response{Status: 200, Headers: []protocol.Header{{Name: []byte("x-secret"), Value: []byte("1")}}}
		if r.Edit != nil {
			r.Edit(&res)
			if back := string(protocol.Find(res.Headers, "x-back")); back != want || protocol.Find(res.Headers, "x-secret") != nil {
				t.Errorf("%s: the response of a stream has %s", match, res.Headers)
			}
		}
		proxytest.CheckStreamsSettled(m, streams)
	}

	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Match: edited, Limits: proxytest.SmallMessages})
	m.Apps[0].RespondWith(strings.Replace(proxytest.StreamResponses[0].Says, "\r\n", "\r\nx-secret: 1\r\n", 1))
	m.DialAndSend(proxytest.Egress, "GET /api/a HTTP/1.1\r\nHost: compute\r\nx-request-id: id\r\n\r\n")
	m.RunUntil("a response that is a stream", func() bool { return len(streams.Responses) == 1 })
	if got := string(streams.Responses[0].Head); !strings.Contains(got, "x-back: compute /api/a GET id\r\n") || strings.Contains(got, "x-secret") {
		t.Errorf("the head of the response: %q", got)
	}
	proxytest.CheckStreamsSettled(m, streams)
}
