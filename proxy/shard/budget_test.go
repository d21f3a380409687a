package shard_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// Pipelined requests that wait behind the first one count as buffered.
func TestPipelinedBodiesCountAsBuffered(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: "limits: {message: 1MiB, buffered: 2MiB}"})
	m.Apps[0].Delay = func() time.Duration { return 200 * time.Millisecond }
	cl := m.Dial(proxytest.Egress)
	cl.Calls = []*proxytest.Call{m.Get("/"), m.Post(900_000), m.Post(900_000), m.Post(900_000)}
	calls := cl.Calls
	for _, c := range calls[1:] {
		calls[0].Raw = append(calls[0].Raw, c.Raw...)
		c.Raw = nil
	}
	m.W.Run(100 * time.Millisecond)
	if n := m.Consumer.Proc.Held(); n < 2_700_000 {
		t.Errorf("%d bytes counted with 2.7 MB in memory", n)
	}
	m.OK(calls...)
	m.Settled()
}

// A response counts while it is received, and not only when it is complete.
func TestPartialResponsesCountAsBuffered(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	m.Apps[0].Stop()
	m.W.Net.Listen(m.Apps[0].Addr, m.W.Loop("10.0.1.1-raw"), func() loop.Receiver {
		return &proxytest.Peer{Reply: func([]byte) []byte {
			return append([]byte("HTTP/1.1 200 OK\r\nContent-Length: 900001\r\n\r\n"), make([]byte, 900_000)...)
		}}
	})
	c := m.Get("/")
	m.Do(c)
	m.W.Run(100 * time.Millisecond)
	if n := m.Consumer.Proc.Held(); n < 900_000 {
		t.Errorf("%d bytes counted with 0.9 MB in memory", n)
	}
	m.Finish(c)
	m.Settled()
}

// The received part of a message counts, whether its head or its body is incomplete.
func TestPartialMessagesCountAsBuffered(t *testing.T) {
	const n, room = 64, 72 << 10 // the capacity of a buffer for such a head
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
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
			for range n {
				m.Do(m.Raw(fmt.Sprintf(c.text, pad)))
			}
			m.W.Run(time.Second)
			want := int64(n * (len(pad) + c.more))
			if held := m.Consumer.Proc.Held(); held < want || held > n*int64(room+c.more+3000) {
				t.Errorf("%d bytes held of %d requests with %d bytes each", held, n, want/n)
			}
			m.W.Run(time.Minute)
			m.Settled()
		})
	}
	for name, text := range map[string]string{
		"head of a response": "HTTP/1.1 200 OK\r\na: %s",
		"no response body":   "HTTP/1.1 200 OK\r\na: %s\r\nContent-Length: 10\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
			m.Apps[0].Stop()
			m.W.Net.Listen(m.Apps[0].Addr, m.Apps[0].Loop, func() loop.Receiver {
				return &proxytest.Peer{Says: nil, Reply: func(heard []byte) []byte {
					if !bytes.HasSuffix(heard, []byte("\r\n\r\n")) {
						return nil
					}
					return fmt.Appendf(nil, text, pad)
				}}
			})
			for range n {
				m.Do(m.Get("/"))
			}
			m.W.Run(time.Second)
			want := int64(n * len(pad))
			if held := m.Consumer.Proc.Held(); held < want || held > n*(room+3000) {
				t.Errorf("%d bytes held of %d responses with %d bytes each", held, n, want/n)
			}
			m.W.Run(time.Minute)
			m.Settled()
		})
	}
}

// The capacity of a buffer counts, and not its length: a peer may cause a large buffer and
// fill little of it.
func TestBufferCapacityCountsAsBuffered(t *testing.T) {
	const n, size, whole = 100, 20 << 10, 60_000
	chunked := "Transfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("x", 60<<10) + "\r\nx"
	fixed := fmt.Sprintf("Content-Length: %d\r\n\r\n", whole) + strings.Repeat("x", size)
	for name, c := range map[string]struct {
		request, response string // the received part, after the first line
		links             bool
	}{
		"a byte of a chunked request":  {request: "Host: a\r\n" + chunked},
		"start of a request":           {request: "Host: a\r\n" + fixed},
		"a byte of a chunked response": {request: "Host: a\r\n\r\n", response: chunked},
		"start of a response":          {request: "Host: a\r\n\r\n", response: fixed},
		"start of requests of a link":  {links: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: !c.links})
			node := m.Consumer
			var peers []*proxytest.Peer
			if c.links {
				node = m.Nodes[1]
				peers = append(peers, &proxytest.Peer{Says: appendIncomplete(link.NewWriter(), n, size, whole)})
				m.Clients.Do(func() { m.Clients.Dial(proxytest.Ingress, time.Second, peers[0]) })
			} else {
				for range n {
					p := &proxytest.Peer{Says: []byte("POST / HTTP/1.1\r\n" + c.request)}
					peers = append(peers, p)
					m.Clients.Do(func() { m.Clients.Dial(proxytest.Egress, time.Second, p) })
				}
			}
			if c.response != "" {
				m.Apps[0].Stop()
				m.W.Net.Listen(m.Apps[0].Addr, m.Apps[0].Loop, func() loop.Receiver {
					p := &proxytest.Peer{Reply: func(heard []byte) []byte {
						if !bytes.HasSuffix(heard, []byte("\r\n\r\n")) {
							return nil
						}
						return []byte("HTTP/1.1 200 OK\r\n" + c.response)
					}}
					peers = append(peers, p)
					return p
				})
			}
			m.W.Run(100 * time.Millisecond)
			held, idle := node.Proc.Held(), node.Proc.Kept()
			for _, p := range peers {
				m.W.Faults.Reset(p.Conn)
			}
			m.W.Run(100 * time.Millisecond)
			room := node.Proc.Kept() - idle
			if room < n*size || held < room || held > room+n*3000 {
				t.Errorf("%d bytes counted, with buffers of %d", held, room)
			}
			m.Settled()
		})
	}
}

// Announced lengths alone take a quarter of limits.buffered at most.
func TestAnnouncedBytesAreBounded(t *testing.T) {
	const n, size, quarter = 100, 20 << 10, 64 << 20
	request := fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", 4<<20, make([]byte, size))
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	m.Clients.Do(func() {
		for range n {
			m.Clients.Dial(proxytest.Egress, time.Second, &proxytest.Peer{Says: request})
		}
		m.Clients.Dial(proxytest.Ingress, time.Second, &proxytest.Peer{Says: appendIncomplete(link.NewWriter(), n, size, 4<<20)})
	})
	m.W.Run(100 * time.Millisecond)
	for _, node := range m.Nodes {
		if held := node.Proc.Held(); held < quarter-5<<20 || held > quarter+4*n*size {
			t.Errorf("%d bytes held", held)
		}
	}
	m.W.Run(time.Minute)
	m.Settled()
}

// Requests that end in a read make no room for what others announce in the same read.
func TestEndsOfRequestsMakeNoRoom(t *testing.T) {
	const ends, each, size, whole, quarter = 8, 6, 40 << 10, 512 << 10, 4 << 20
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: "limits: {buffered: 16MiB}"})
	m.W.Options.Cut = 0
	p := &proxytest.Peer{Says: requestHeads(link.NewWriter(), append(slices.Repeat([]int{size}, ends), slices.Repeat([]int{whole}, ends*each)...))}
	var last []byte
	for i := range ends {
		p.Says = proxytest.AppendData(p.Says, 1+i, size-1)
		last = proxytest.AppendData(last, 1+i, 1)
		for id := ends + each*i + 1; id <= ends+each*(i+1); id++ {
			p.Says = proxytest.AppendData(p.Says, id, 8000)
			last = proxytest.AppendData(last, id, 200)
		}
	}
	m.Clients.Do(func() { m.Clients.Dial(proxytest.Ingress, time.Second, p) })
	m.W.Run(100 * time.Millisecond)
	before := m.Nodes[1].Proc.Held()
	m.Clients.Do(func() { p.Conn.Write(last) })
	m.W.Run(100 * time.Millisecond)
	if held := m.Nodes[1].Proc.Held(); held < before+1<<20 || held > quarter+ends*each*(20<<10) {
		t.Errorf("%d bytes held, %d before", held, before)
	}
	m.W.Run(time.Minute)
	m.Settled()
}

// requestHeads returns the preface of a link and the heads of requests, with ids from 1 on and
// bodies of these lengths. w sends no DATA afterwards: it has no credit left.
func requestHeads(w *link.Writer, lengths []int) []byte {
	w.Preface(link.Dialer, link.Settings{})
	out := w.Append(nil, 1<<20)
	w.Open(1, link.Settings{})
	for i, n := range lengths {
		req := &protocol.Request{Service: []byte("local"), Method: []byte("POST"), Path: []byte("/"),
			Authority: []byte("local"), Body: make([]byte, n)}
		w.Request(uint64(i+1), req, time.Minute, nil)
	}
	for b := w.Append(nil, 1<<20); len(b) > 0; {
		_, id := binary.Uvarint(b[1:])
		payload, n := binary.Uvarint(b[1+id:])
		end := 1 + id + n + int(payload)
		if b[0] != dataFrame {
			out = append(out, b[:end]...)
		}
		b = b[end:]
	}
	return out
}

const dataFrame = 3

// After many short messages that were reserved at once and have ended, a long one is, too.
func TestReservedBytesAreRestored(t *testing.T) {
	const size, short, long = 8500, 20 << 10, 512 << 10 // no pooled buffer has room for short
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: "limits: {buffered: 16MiB}"})
	m.W.Options.Cut = 0
	p := m.DialAndSend(proxytest.Egress, "")
	m.W.Run(5 * time.Millisecond)
	send := func(text string) {
		m.Clients.Do(func() { p.Conn.Write([]byte(text)) })
		m.W.Run(5 * time.Millisecond)
	}
	begin := func(length, size int) {
		send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", length, make([]byte, size)))
	}
	for range 400 {
		begin(short, size)
		send(string(make([]byte, short-size)))
	}
	if begin(long, short); m.Consumer.Proc.Held() < long {
		t.Errorf("%d bytes held of a message of %d", m.Consumer.Proc.Held(), long)
	}
	m.W.Run(time.Minute)
	m.Settled()
}
