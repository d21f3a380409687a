package http2_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestFallback: a fallback answers requests of HTTP/2, and calls of gRPC with a status in its headers.
func TestFallback(t *testing.T) {
	for _, c := range []struct{ fallback, want, status string }{
		{"respond: {status: 203, body: later}", "203 later", ""},
		{"respond: {headers: {content-type: application/grpc, grpc-status: '8'}}", "200 ", "8"},
		{"service: other", "200 nonce= path=/ body=5", ""},
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
		m.Consumer.Reload(proxytest.ReloadYAML(m, "{service: compute, fallback: {"+c.fallback+"}}", "compute: {%[1]s}, other: {%[1]s}"))
		m.Consumer.Update("compute")
		m.W.Run(time.Millisecond)
		client := dial(m, 0)
		var lines []string
		if c.status != "" {
			lines = append(lines, "content-type: application/grpc")
		}
		a := client.send(request("POST", "/", 5, lines...))
		client.await(a)
		if got := fmt.Sprint(a.Status, " ", string(a.body)); got != c.want || string(protocol.Find(a.Headers, "x-remora-fallback")) != "no_endpoint" {
			t.Errorf("%s: got %q, %s", c.fallback, got, a.Headers)
		}
		if got := protocol.Find(a.Headers, "grpc-status"); string(got) != c.status {
			t.Errorf("%s: grpc-status %q", c.fallback, got)
		}
		if n := m.Consumer.Stats("compute").GRPC[protocol.GRPCResourceExhausted]; (n == 1) != (c.status != "") {
			t.Errorf("%s: %d calls counted", c.fallback, n)
		}
		m.Settled()
	}
}

// TestCached: a response from the cache of a route has the head and the body of the stored one.
func TestCached(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Match: "cache: {ttl: 1h}"})
	size := 10
	m.Apps[0].ExtraHeaders = "ETag: \"a\"\r\n"
	m.Apps[0].Body = func(*protocol.Request) []byte { return bytes.Repeat([]byte{'x'}, size) }
	c := dial(m, 0)
	for _, size = range []int{0, 10, 200_000} {
		path := fmt.Sprint("/", size)
		first := c.send(request("GET", path, 0))
		c.await(first)
		for _, method := range []string{"GET", "HEAD"} {
			again := c.send(request(method, path, 0))
			c.await(again)
			lengths := 0
			for _, h := range again.Headers {
				if string(h.Name) == "content-length" {
					lengths++
				}
			}
			body := first.body
			if method == "HEAD" {
				body = nil
			}
			if got := protocol.Find(again.Headers, "cache-status"); string(got) != "remora; hit" || lengths > 1 ||
				again.Status != 200 || !bytes.Equal(again.body, body) || string(protocol.Find(again.Headers, "etag")) != `"a"` {
				t.Errorf("%s %s: %d, %d bytes, %q", method, path, again.Status, len(again.body), again.Headers)
			}
		}
	}
	m.Settled()
}

// TestEdits: a route changes the headers of the responses of HTTP/2.
func TestEdits(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Match: "match: {path: /}, response_headers: {set: {x-back: '{path} {request_id}'}, remove: [x-secret]}"})
	m.Apps[0].ExtraHeaders = "x-secret: secret\r\n"
	c := dial(m, 0)
	for range 2 {
		a := c.send(request("GET", "/s", 0, "x-request-id: id"))
		if c.await(a); string(protocol.Find(a.Headers, "x-back")) != "/s id" || protocol.Find(a.Headers, "x-secret") != nil {
			t.Errorf("%d %s", a.Status, a.Headers)
		}
	}
	m.Settled()
}
