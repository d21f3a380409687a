package linkconn_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// frame is one frame of a link.
func frame(typ uint8, id uint64, payload []byte) []byte {
	b := binary.AppendUvarint([]byte{typ}, id)
	b = binary.AppendUvarint(b, uint64(len(payload)))
	return append(b, payload...)
}

// eachEnd runs f for an accepting and for a dialling end of a link. f calls its argument with
// what the peer of that end sends after its preface, and gets the mesh and the peer.
func eachEnd(t *testing.T, f func(t *testing.T, meet func(says []byte) (*proxytest.Mesh, *proxytest.Peer))) {
	t.Run("acceptor", func(t *testing.T) {
		f(t, func(says []byte) (*proxytest.Mesh, *proxytest.Peer) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
			p := &proxytest.Peer{Says: append(proxytest.LinkPreface(link.Dialer), says...)}
			m.DialIngress(p)
			return m, p
		})
	})
	t.Run("dialler", func(t *testing.T) {
		f(t, func(says []byte) (*proxytest.Mesh, *proxytest.Peer) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Service: "timeout: 1s"})
			p := &proxytest.Peer{Says: append(proxytest.LinkPreface(link.Acceptor), says...)}
			m.ReplaceProvider(p)
			m.Do(m.Post(10))
			return m, p
		})
	})
}

// TestLinkLimits checks that a frame and the interning table may be at their limits, and that
// one byte or entry more closes the link.
func TestLinkLimits(t *testing.T) {
	const data, ping, define = 3, 8, 11
	defines := func(n, size int) (b []byte) {
		for i := range n {
			b = append(b, frame(define, uint64(i), bytes.Repeat([]byte{'a'}, size))...)
		}
		return b
	}
	const longest, longestData = 16<<10 - 16, link.MaxFrame - 16
	eachEnd(t, func(t *testing.T, meet func([]byte) (*proxytest.Mesh, *proxytest.Peer)) {
		for _, c := range []struct {
			name     string
			at, past []byte
		}{
			{"frame", frame(ping, 1, make([]byte, longest)), frame(ping, 1, make([]byte, longest+1))},
			{"DATA", frame(data, 1, make([]byte, longestData)), frame(data, 1, make([]byte, longestData+1))},
			{"interning entries", defines(128, 3), defines(129, 3)},
			{"interning bytes", defines(2, 4096), append(defines(2, 4096), frame(define, 2, []byte("a"))...)},
		} {
			t.Run(c.name, func(t *testing.T) {
				m, p := meet(append(c.at, ping, 77, 0))
				pong := func() bool { return bytes.HasSuffix(p.Heard, []byte{9, 77, 0}) }
				if !m.W.RunUntil(pong, time.Second) || p.Ended {
					t.Errorf("at the limit: received %q, link closed: %t", p.Heard, p.Ended)
				}
				m, p = meet(c.past)
				if !m.W.RunUntil(func() bool { return p.Ended }, time.Second) {
					t.Error("one past it: the link stays open")
				}
			})
		}
	})
}

// TestDiallerStreamLimit checks that a dialler puts no more requests on a link than the peer
// allows. One too many fails at once; the next one fits after a response.
func TestDiallerStreamLimit(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Service: "timeout: 10s, retry: {on: []}"})
	w := link.NewWriter()
	w.Preface(link.Acceptor, link.Settings{MaxStreams: 3})
	w.Open(1, link.Settings{})
	first := m.Post(10)
	p := &proxytest.Peer{Says: w.Append(nil, 1<<20)}
	m.ReplaceProvider(p)
	m.Do(first)
	m.W.RunUntil(func() bool { return len(p.Heard) > len(proxytest.LinkPreface(link.Dialer)) }, time.Second)
	calls := m.Burst(3, 10)
	m.W.Run(100 * time.Millisecond)
	if n := proxytest.CountCodes(calls); n["connection-full"] != 1 || n[""] != 2 { // two are out
		t.Errorf("responses %v, want one connection-full", n)
	}
	m.W.Loop("10.0.1.1-raw").Post(func() { p.Conn.Write(response(first.Nonce, 10)) })
	m.OK(first)
	next := m.Post(10)
	m.Do(next)
	m.W.Run(100 * time.Millisecond)
	if next.Done {
		t.Errorf("status %d %s with a stream free", next.Status, next.Code)
	}
	m.Finish(append(calls, next)...)
	m.Settled()
}

// TestAcceptorStreamLimit checks that an acceptor takes as many requests at a time as its
// preface allows, whatever the service would take.
func TestAcceptorStreamLimit(t *testing.T) {
	const most = 4096
	for _, n := range []int{most, most + 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "max_pending: 10000, max_concurrency: 1, max_queue: 10000"})
			m.Apps[0].FrozenUntil = m.W.Now() + time.Second
			p := &proxytest.Peer{Says: proxytest.LinkFrames(func(w *link.Writer) {
				for id := range uint64(n) {
					w.Request(id+1, proxytest.LinkRequest, time.Minute, nil)
				}
			})}
			m.DialIngress(p)
			m.W.Run(900 * time.Millisecond)
			got := &proxytest.Refusals{Why: map[link.Reason]int{}}
			if err := link.NewDialer(link.Settings{}, link.ReaderLimits{}, got).Feed(p.Heard); err != nil {
				t.Fatal(err)
			}
			if got.Why[link.Overload] != n-most || len(got.Why) > 1 {
				t.Errorf("refused: %v, want %d for overload", got.Why, n-most)
			}
			if pending := m.Nodes[1].Proc.Pending(); pending != most {
				t.Errorf("%d pending, want %d", pending, most)
			}
			m.Clients.Do(func() { p.Conn.Close() })
			m.Settled()
		})
	}
}

// TestFullInterningTable checks that clients which make up header names fill the tables of a
// link, and that each request still arrives with its own headers.
func TestFullInterningTable(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	var calls []*proxytest.Call
	want := map[string]string{} // the last header by nonce
	m.Apps[0].OnRequest = func(req *protocol.Request) {
		nonce := string(protocol.Find(req.Headers, "x-nonce"))
		if got := string(protocol.Find(req.Headers, want[nonce])); got != nonce {
			t.Errorf("the application got %s: %q, want %q", want[nonce], got, nonce)
		}
	}
	for i := range 400 {
		name := fmt.Sprintf("x-%0*d", 10+i%90, i/4) // each four times, past 128 names and 8 KiB
		c := m.Post(10, "user-agent: agent "+name)
		c.Raw = bytes.Replace(c.Raw, []byte("x-nonce"), fmt.Appendf(nil, "%s: %s\r\nx-nonce", name, c.Nonce), 1)
		want[c.Nonce] = name
		calls = append(calls, c)
	}
	m.Do(calls...)
	m.OK(calls...)
	m.Settled()
}

// TestUselessFrames checks that a peer may cancel each of its requests late and twice, and ask once whether it has
// started. A peer that goes on to cancel, or to ask, loses its link, although it reads all responses.
func TestUselessFrames(t *testing.T) {
	const ten = 256 + 3*10 // the most for ten requests
	for name, c := range map[string]struct {
		requests, cancels, starts int
		ends                      bool
	}{
		"late and twice, and asked": {1000, 2000, 1000, false},
		"cancels, at the bound":     {10, ten, 0, false},
		"cancels, one more":         {10, ten + 1, 0, true},
		"starts, at the bound":      {10, 0, ten, false},
		"starts, one more":          {10, 0, ten + 1, true},
		"both, at the bound":        {10, ten - 20, 20, false},
		"both, one more":            {10, ten - 20, 21, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
			w, p := m.DialLink()
			for id := range uint64(c.requests) {
				w.Request(id+1, &protocol.Request{Service: []byte("local"), Method: []byte("GET"), Path: []byte("/"), Authority: []byte("local")}, time.Minute, nil)
			}
			m.Clients.Do(func() { p.Conn.Write(w.Append(nil, 1<<20)) })
			m.RunUntil("all responses", func() bool { return m.Apps[0].Served == c.requests })
			m.W.Run(time.Second)
			for n := range c.cancels {
				w.Cancel(uint64(n%c.requests + 1))
			}
			for n := range c.starts {
				w.Start(uint64(n%c.requests + 1))
			}
			m.Clients.Do(func() { p.Conn.Write(w.Append(nil, 1<<20)) })
			m.W.Run(time.Second)
			if p.Ended != c.ends {
				t.Errorf("link closed: %t", p.Ended)
			}
			m.Settled()
		})
	}
}

// TestCancelledUploads: a peer may cancel each of its requests while it is sending it, twice.
func TestCancelledUploads(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	w, p := m.DialLink()
	send := func(most int) { m.Clients.Do(func() { p.Conn.Write(w.Append(nil, most)) }) }
	body := make([]byte, 64<<10)
	for id := range uint64(400) {
		w.Request(id+1, &protocol.Request{Service: []byte("local"), Method: []byte("POST"), Path: []byte("/"), Authority: []byte("local"), Body: body}, time.Minute, nil)
		send(1 << 10)
		for range 2 {
			if !w.Cancel(id + 1) {
				t.Fatal("nothing of the request was sent")
			}
		}
		send(1 << 20)
		m.W.Run(time.Millisecond)
	}
	if p.Ended {
		t.Error("the link is closed")
	}
	m.Settled()
}
