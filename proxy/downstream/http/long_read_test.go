package http_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestRequestsWithinLongRead checks that all requests of one long read get their responses,
// wherever they end in it.
func TestRequestsWithinLongRead(t *testing.T) {
	post := func(n int) string {
		request, _, _ := proxytest.LongBodies(n, false)
		return string(bytes.Join(request, nil))
	}
	chunked := func(n int) string {
		request, _, _ := proxytest.LongBodies(n, true)
		return string(bytes.Join(request, nil))
	}
	get := "GET / HTTP/1.1\r\nHost: compute\r\n\r\n"
	padded := "GET / HTTP/1.1\r\nHost: compute\r\nX-Pad: " + strings.Repeat("p", 20<<10) + "\r\n\r\n"
	for name, requests := range map[string][]string{
		"short behind long":   {post(20 << 10), post(300), get},
		"long behind short":   {get, post(300), post(20 << 10)},
		"chunked":             {chunked(20 << 10), get, chunked(30 << 10), post(100)},
		"blank line before":   {"\r\n" + post(20<<10), get},
		"ends of heads in it": {post(20 << 10), padded, get},
		"long head":           {padded, padded},
	} {
		t.Run(name, func(t *testing.T) {
			all := []byte(strings.Join(requests, ""))
			for _, first := range []int{0, 1, 17, 60, 5000, 17 << 10, 20 << 10, len(all) - 1} {
				m := proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: 1, Clients: 1, Response: proxytest.ShapeResponseHead + proxytest.ShapeBody})
				c := m.Clients[0]
				if first > 0 {
					c.Deliver(all[:first])
				}
				c.Deliver(all[first:])
				m.Net.Pump()
				if n := bytes.Count(c.Out, proxytest.OKPrefix); n != len(requests) || m.Served != n {
					t.Errorf("split at %d: %d responses to %d requests, the application served %d", first, n, len(requests), m.Served)
				}
				if held := m.Consumer.Held(); held != 0 {
					t.Errorf("split at %d: %d bytes held", first, held)
				}
			}
		})
	}
}

// TestLongReadAfterResponse checks that bytes which an application sends after its response are
// dropped, however many there are: the next request goes over another connection.
func TestLongReadAfterResponse(t *testing.T) {
	more := strings.Repeat("HTTP/1.1 299 Never\r\nContent-Length: 0\r\n\r\n", 1000)
	for name, response := range map[string]string{
		"length":  proxytest.ShapeResponseHead + proxytest.ShapeBody,
		"empty":   "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"no body": "HTTP/1.1 204 No Content\r\n\r\n",
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"interim": "HTTP/1.1 102 Processing\r\n\r\n" + proxytest.ShapeResponseHead + proxytest.ShapeBody,
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: 1, Clients: 1, Response: response + more})
			connections := 0
			for addr, accept := range m.Net.Accept {
				m.Net.Accept[addr] = func() (*proxytest.NullLoop, loop.Receiver) { connections++; return accept() }
			}
			c := m.Clients[0]
			c.Deliver([]byte(proxytest.GetHead + proxytest.GetHead + proxytest.GetHead))
			m.Net.Pump()
			if bytes.Contains(c.Out, []byte("299")) || bytes.Count(c.Out, []byte("HTTP/1.1 20")) != 3 || m.Served != 3 || connections != 3 {
				t.Errorf("%d requests served over %d connections, responses %.300q", m.Served, connections, c.Out)
			}
		})
	}
}
