package proxy_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy"
)

// Whatever part of a message is here is counted against limits.buffered, whether
// its head or its body is still to end.
func TestPartsOfMessagesAreCounted(t *testing.T) {
	const n, room = 64, 72 << 10 // of a buffer for such a head
	pad := bytes.Repeat([]byte{'x'}, 60<<10)
	post := "POST / HTTP/1.1\r\nHost: a\r\na: %s"
	for name, c := range map[string]struct {
		text string
		more int // bytes besides the head
	}{
		"head":         {post, 0},
		"no body":      {post + "\r\nContent-Length: 10\r\n\r\n", 0},
		"half a body":  {post + "\r\nContent-Length: 4000\r\n\r\n" + string(make([]byte, 2000)), 2000},
		"no chunks":    {post + "\r\nTransfer-Encoding: chunked\r\n\r\n", 0},
		"half a chunk": {post + "\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n" + string(make([]byte, 1000)), 1000},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 1, direct: true})
			for range n {
				m.do(m.raw(fmt.Sprintf(c.text, pad)))
			}
			m.w.Run(time.Second)
			want := int64(n * (len(pad) + c.more))
			if held := m.consumer.proc.Held(); held < want || held > n*int64(room+c.more+1000) {
				t.Errorf("%d bytes held of %d requests of which %d are here", held, n, want/n)
			}
			m.w.Run(time.Minute)
			m.settled()
		})
	}
	for name, text := range map[string]string{
		"head of an answer": "HTTP/1.1 200 OK\r\na: %s",
		"no body of it":     "HTTP/1.1 200 OK\r\na: %s\r\nContent-Length: 10\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 1, direct: true})
			m.apps[0].stop()
			m.w.Listen(m.apps[0].addr, m.apps[0].loop, func() proxy.Stream {
				return &peer{says: nil, reply: func(heard []byte) []byte {
					if !bytes.HasSuffix(heard, []byte("\r\n\r\n")) {
						return nil
					}
					return fmt.Appendf(nil, text, pad)
				}}
			})
			for range n {
				m.do(m.get("/"))
			}
			m.w.Run(time.Second)
			want := int64(n * len(pad))
			if held := m.consumer.proc.Held(); held < want || held > n*(room+1000) {
				t.Errorf("%d bytes held of %d answers of which %d are here", held, n, want/n)
			}
			m.w.Run(time.Minute)
			m.settled()
		})
	}
}

// What is counted is the memory that is held: a peer may have a large buffer set
// aside and fill little of it.
func TestRoomIsCounted(t *testing.T) {
	const n, size = 100, 20 << 10
	chunked := "Transfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("x", 60<<10) + "\r\nx"
	fixed := "Content-Length: 1000000\r\n\r\n" + strings.Repeat("x", size)
	for name, c := range map[string]struct {
		request, answer string // what there is of them, behind the first line
		links           bool
	}{
		"a byte of a chunked request": {request: "Host: a\r\n" + chunked},
		"start of a request":          {request: "Host: a\r\n" + fixed},
		"a byte of a chunked answer":  {request: "Host: a\r\n\r\n", answer: chunked},
		"start of an answer":          {request: "Host: a\r\n\r\n", answer: fixed},
		"start of requests of a link": {links: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 1, direct: !c.links})
			node := m.consumer
			var peers []*peer
			if c.links {
				node = m.nodes[1]
				peers = append(peers, &peer{says: halves(n, size)})
				m.clients.Do(func() { m.clients.Dial(ingress, time.Second, peers[0]) })
			} else {
				for range n {
					p := &peer{says: []byte("POST / HTTP/1.1\r\n" + c.request)}
					peers = append(peers, p)
					m.clients.Do(func() { m.clients.Dial(egress, time.Second, p) })
				}
			}
			if c.answer != "" {
				m.apps[0].stop()
				m.w.Listen(m.apps[0].addr, m.apps[0].loop, func() proxy.Stream {
					p := &peer{reply: func(heard []byte) []byte {
						if !bytes.HasSuffix(heard, []byte("\r\n\r\n")) {
							return nil
						}
						return []byte("HTTP/1.1 200 OK\r\n" + c.answer)
					}}
					peers = append(peers, p)
					return p
				})
			}
			m.w.Run(100 * time.Millisecond)
			held, idle := node.proc.Held(), node.proc.Kept()
			for _, p := range peers {
				m.w.Reset(p.conn)
			}
			m.w.Run(100 * time.Millisecond)
			room := node.proc.Kept() - idle
			if room < n*size || held < room || held > room+n*1000 {
				t.Errorf("%d bytes counted, with room for %d", held, room)
			}
			m.settled()
		})
	}
}
