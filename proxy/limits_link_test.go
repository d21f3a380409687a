package proxy_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
)

// frame is one frame of a link.
func frame(typ uint8, id uint64, payload []byte) []byte {
	b := binary.AppendUvarint([]byte{typ}, id)
	b = binary.AppendUvarint(b, uint64(len(payload)))
	return append(b, payload...)
}

// eachEnd runs f for an accepting and for a dialling end of a link, of which the
// peer says what f gives to its argument, and returns that peer and its mesh.
func eachEnd(t *testing.T, f func(t *testing.T, meet func(says []byte) (*mesh, *peer))) {
	t.Run("acceptor", func(t *testing.T) {
		f(t, func(says []byte) (*mesh, *peer) {
			m := newMesh(t, meshOptions{apps: 1})
			p := &peer{says: append(linkPreface(link.Dialer), says...)}
			m.visit(p)
			return m, p
		})
	})
	t.Run("dialler", func(t *testing.T) {
		f(t, func(says []byte) (*mesh, *peer) {
			m := newMesh(t, meshOptions{apps: 1, service: ", timeout: 1s"})
			p := &peer{says: append(linkPreface(link.Acceptor), says...)}
			m.impostor(p)
			m.do(m.post(10))
			return m, p
		})
	})
}

// TestLinkLimits: what a frame and the interning table may hold is taken; one
// byte or one entry more ends the link.
func TestLinkLimits(t *testing.T) {
	const ping, define = 8, 11
	defines := func(n, size int) (b []byte) {
		for i := range n {
			b = append(b, frame(define, uint64(i), bytes.Repeat([]byte{'a'}, size))...)
		}
		return b
	}
	const longest = link.MaxFrame - 16
	eachEnd(t, func(t *testing.T, meet func([]byte) (*mesh, *peer)) {
		for _, c := range []struct {
			name     string
			at, past []byte
		}{
			{"frame", frame(ping, 1, make([]byte, longest)), frame(ping, 1, make([]byte, longest+1))},
			{"interning entries", defines(128, 3), defines(129, 3)},
			{"interning bytes", defines(2, 4096), append(defines(2, 4096), frame(define, 2, []byte("a"))...)},
		} {
			t.Run(c.name, func(t *testing.T) {
				m, p := meet(append(c.at, ping, 77, 0))
				pong := func() bool { return bytes.HasSuffix(p.heard, []byte{9, 77, 0}) }
				if !m.w.RunUntil(pong, time.Second) || p.ended {
					t.Errorf("at the limit: %q came back, link closed: %t", p.heard, p.ended)
				}
				m, p = meet(c.past)
				if !m.w.RunUntil(func() bool { return p.ended }, time.Second) {
					t.Error("one past it: the link stays open")
				}
			})
		}
	})
}

// A dialler puts no more requests on a link than the peer allows. What is one too
// many is refused at once, and fits when another is over.
func TestStreamsOfADialler(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, service: ", timeout: 10s, retry: {on: []}"})
	w := link.NewWriter()
	w.Preface(link.Acceptor, link.Settings{MaxStreams: 3})
	w.Open(1, link.Settings{})
	first := m.post(10)
	p := &peer{says: w.Append(nil, 1<<20)}
	m.impostor(p)
	m.do(first)
	m.w.RunUntil(func() bool { return len(p.heard) > len(linkPreface(link.Dialer)) }, time.Second)
	calls := m.burst(3, 10)
	m.w.Run(100 * time.Millisecond)
	if n := codes(calls); n["connection-full"] != 1 || n[""] != 2 { // two are out
		t.Errorf("answers %v, want one connection-full", n)
	}
	m.w.Loop("10.0.1.1-raw").Post(func() { p.conn.Write(answer(first.nonce, 10)) })
	m.finish(first)
	m.ok(first)
	next := m.post(10)
	m.do(next)
	m.w.Run(100 * time.Millisecond)
	if next.done {
		t.Errorf("status %d %s with a stream free", next.status, next.code)
	}
	m.finish(append(calls, next)...)
	m.settled()
}

// refusals counts what an acceptor refuses.
type refusals struct {
	link.Handler
	why map[link.Reason]int
}

func (r *refusals) OnPreface(uint8, link.Settings)           {}
func (r *refusals) OnLoad(link.Load)                         {}
func (r *refusals) OnRefused(_ uint64, why link.Reason)      { r.why[why]++ }
func (r *refusals) NewResponse(id uint64) *protocol.Response { return nil }

// An acceptor takes as many requests at a time as its preface allows, whatever
// the service would take.
func TestStreamsOfAnAcceptor(t *testing.T) {
	const most = 4096
	for _, n := range []int{most, most + 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 1, provider: ", max_pending: 10000, max_concurrency: 1, max_queue: 10000"})
			m.apps[0].frozen = m.w.Now() + time.Second
			p := &peer{says: frames(func(w *link.Writer) {
				for id := range uint64(n) {
					w.Request(id+1, get, time.Minute, nil)
				}
			})}
			m.visit(p)
			m.w.Run(900 * time.Millisecond)
			got := &refusals{why: map[link.Reason]int{}}
			if err := link.NewReader(link.Dialer, link.Settings{}, link.ReaderLimits{}).Feed(p.heard, got); err != nil {
				t.Fatal(err)
			}
			if got.why[link.Overload] != n-most || len(got.why) > 1 {
				t.Errorf("refused: %v, want %d for overload", got.why, n-most)
			}
			if pending := m.nodes[1].proc.Pending(); pending != most {
				t.Errorf("%d pending, want %d", pending, most)
			}
			m.clients.Do(func() { p.conn.Close() })
			m.settled()
		})
	}
}

// TestFullInterningTable: clients that make up header names fill the tables of a
// link and go on being served, each with its own headers.
func TestFullInterningTable(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1})
	var calls []*call
	want := map[string]string{} // the last header by nonce
	m.apps[0].seen = func(req *protocol.Request) {
		nonce := string(protocol.Find(req.Headers, "x-nonce"))
		if got := string(protocol.Find(req.Headers, want[nonce])); got != nonce {
			t.Errorf("the application got %s: %q, want %q", want[nonce], got, nonce)
		}
	}
	for i := range 400 {
		name := fmt.Sprintf("x-%0*d", 10+i%90, i/4) // each four times, past 128 names and 8 KiB
		c := m.post(10, "user-agent: agent "+name)
		c.raw = bytes.Replace(c.raw, []byte("x-nonce"), fmt.Appendf(nil, "%s: %s\r\nx-nonce", name, c.nonce), 1)
		want[c.nonce] = name
		calls = append(calls, c)
	}
	m.do(calls...)
	m.finish(calls...)
	m.ok(calls...)
	m.settled()
}

// A peer may withdraw each of its requests, late and twice; one that withdraws on
// and on what it has not asked for loses its link, though it reads what it is told.
func TestCancelsWithoutRequests(t *testing.T) {
	for name, c := range map[string]struct {
		requests, cancels int
		ends              bool
	}{
		"late and twice": {1000, 2000, false},
		"of nothing":     {10, 1000, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 1})
			w := link.NewWriter()
			w.Preface(link.Dialer, link.Settings{})
			w.Open(1, link.Settings{})
			p := &peer{says: w.Append(nil, 1<<20)}
			m.clients.Do(func() { m.clients.Dial(ingress, time.Second, p) })
			m.until("a link", func() bool { return p.conn != nil })
			for id := range uint64(c.requests) {
				w.Request(id+1, &protocol.Request{Service: []byte("local"), Method: []byte("GET"), Path: []byte("/"), Authority: []byte("local")}, time.Minute, nil)
			}
			m.clients.Do(func() { p.conn.Write(w.Append(nil, 1<<20)) })
			m.until("all answers", func() bool { return m.apps[0].served == c.requests })
			m.w.Run(time.Second)
			for n := range c.cancels {
				w.Cancel(uint64(n%c.requests + 1))
			}
			m.clients.Do(func() { p.conn.Write(w.Append(nil, 1<<20)) })
			m.w.Run(time.Second)
			if p.ended != c.ends {
				t.Errorf("link closed: %t", p.ended)
			}
			m.settled()
		})
	}
}
