package proxy_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/proxy"
)

// Requests that come in one long read are all answered, wherever they end in it.
func TestRequestsOfALongRead(t *testing.T) {
	post := func(n int) string {
		request, _, _ := long(n, false)
		return string(bytes.Join(request, nil))
	}
	chunked := func(n int) string {
		request, _, _ := long(n, true)
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
				m := newAllocMesh(t, allocMeshOptions{hops: 1, clients: 1, answer: shapeAnswerHead + shapeAnswer})
				c := m.clients[0]
				if first > 0 {
					c.deliver(all[:first])
				}
				c.deliver(all[first:])
				m.net.pump()
				if n := bytes.Count(c.out, ok); n != len(requests) || m.served != n {
					t.Errorf("split at %d: %d answers to %d requests, the application served %d", first, n, len(requests), m.served)
				}
				if held := m.consumer.Held(); held != 0 {
					t.Errorf("split at %d: %d bytes held", first, held)
				}
			}
		})
	}
}

// What an application says behind its answer is the answer to nothing, however much
// comes at once: the next request goes over another connection.
func TestLongReadBehindAnAnswer(t *testing.T) {
	more := strings.Repeat("HTTP/1.1 299 Never\r\nContent-Length: 0\r\n\r\n", 1000)
	for name, answer := range map[string]string{
		"length":  shapeAnswerHead + shapeAnswer,
		"empty":   "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"no body": "HTTP/1.1 204 No Content\r\n\r\n",
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"interim": "HTTP/1.1 102 Processing\r\n\r\n" + shapeAnswerHead + shapeAnswer,
	} {
		t.Run(name, func(t *testing.T) {
			m := newAllocMesh(t, allocMeshOptions{hops: 1, clients: 1, answer: answer + more})
			connections := 0
			for addr, accept := range m.net.accept {
				m.net.accept[addr] = func() (*nullLoop, proxy.Stream) { connections++; return accept() }
			}
			c := m.clients[0]
			c.deliver([]byte(getHead + getHead + getHead))
			m.net.pump()
			if bytes.Contains(c.out, []byte("299")) || bytes.Count(c.out, []byte("HTTP/1.1 20")) != 3 || m.served != 3 || connections != 3 {
				t.Errorf("%d requests served over %d connections, answers %.300q", m.served, connections, c.out)
			}
		})
	}
}
