package proxy_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/registry"
)

// small gives a mesh 1 MiB of limits.buffered, and 4 MiB more to the hard mark.
const small = "limits: {message: 1MiB, buffered: 1MiB}"

// half makes a call of which the last byte of size never comes.
func (m *mesh) half(size int) *call {
	return m.raw(fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size-1)))
}

// Who holds all of limits.buffered is refused, and nobody else.
func TestGreedyClientIsRefusedAlone(t *testing.T) {
	eachTopology(t, meshOptions{apps: 1, limits: small}, func(t *testing.T, m *mesh) {
		greedy := []*call{m.half(1 << 20), m.half(1 << 20)}
		for _, c := range greedy {
			m.do(c)
		}
		m.w.Run(20 * time.Millisecond)
		if n := m.consumer.proc.Held(); n < 2<<20-10 {
			t.Fatalf("%d bytes held", n)
		}
		calls := m.crowd(4, 5, 1000)
		m.finish(calls...)
		m.ok(calls...)
		if greedy[0].done || greedy[1].done {
			t.Error("who only waits is refused")
		}
		m.finish(greedy...)
		for _, c := range greedy {
			if c.status != 408 {
				t.Errorf("status %d %s, want 408 after timeouts.body", c.status, c.code)
			}
		}
		m.settled()
	})
}

// A link that holds all of limits.buffered is refused what is not small, request
// by request, and another link's requests pass.
func TestGreedyLinkIsRefusedAlone(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, limits: small})
	w := link.NewWriter()
	greedy := &peer{says: halvesOf(w, 100, 24<<10)}
	m.clients.Do(func() { m.clients.Dial("10.0.1.1:15006", time.Second, greedy) })
	m.w.Run(20 * time.Millisecond)
	before := m.nodes[1].proc.Held()
	if before < 9<<18 {
		t.Fatalf("%d bytes held", before)
	}
	calls := append(m.crowd(4, 5, 1000), m.burst(2, 100_000)...)
	m.finish(calls...)
	m.ok(calls...)

	id := uint64(100)
	ask := func(n, size int) (served int, heard int) {
		served, heard = m.apps[0].served, len(greedy.heard)
		for range n {
			id++
			w.Request(id, &protocol.Request{Service: []byte("local"), Method: []byte("POST"), Path: []byte("/"),
				Authority: []byte("local"), Body: make([]byte, size)}, time.Minute, nil)
		}
		m.clients.Do(func() { greedy.conn.Write(w.Append(nil, n*(size%(1<<20)+100))) })
		m.w.Run(20 * time.Millisecond)
		return m.apps[0].served - served, len(greedy.heard) - heard
	}
	if served, heard := ask(100, 1<<20); served != 0 || heard < 300 {
		t.Errorf("%d bytes came back, too few to refuse 100 requests; %d served", heard, served)
	}
	if n := m.nodes[1].proc.Held() - before; n > 200_000 {
		t.Errorf("%d bytes more are held", n)
	}
	// Small ones may be another caller's on the same link; with many waiting, fewer count as small.
	if served, _ := ask(100, 0); served != 100 {
		t.Errorf("%d of 100 small requests were served", served)
	}
	m.apps[0].delay = func() time.Duration { return time.Second }
	if _, heard := ask(400, 12_000); heard < 300 {
		t.Errorf("%d bytes came back, too few to refuse more than 100 of 400 requests", heard)
	}
	if n := m.nodes[1].proc.Held() - before; n > 5<<19 || greedy.ended {
		t.Errorf("%d bytes more are held, want about a share of 2 MiB; link closed: %t", n, greedy.ended)
	}
}

// With many that hold a little each, shares are small, and what is over its share
// is refused whoever asks.
func TestShareShrinksWithTheCrowd(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true, limits: small})
	for range 300 {
		m.do(m.half(8_000))
	}
	m.w.Run(20 * time.Millisecond)
	if n := m.consumer.proc.Held(); n < 2<<20 {
		t.Fatalf("%d bytes held", n)
	}
	modest, large := m.post(1000), m.half(200_000)
	m.do(modest)
	m.do(large)
	m.finish(modest, large)
	m.ok(modest)
	if large.status != 503 || large.code != "overloaded" {
		t.Errorf("status %d %s for 200 kB, want 503 overloaded", large.status, large.code)
	}

	head := &peer{says: []byte("GET / HTTP/1.1\r\nHost: a\r\na: " + strings.Repeat("x", 20_000))}
	m.clients.Do(func() { m.clients.Dial(egress, time.Second, head) })
	m.w.Run(20 * time.Millisecond)
	m.clients.Do(func() { head.conn.Write([]byte(strings.Repeat("x", 20_000))) })
	m.w.Run(20 * time.Millisecond)
	if !bytes.HasPrefix(head.heard, []byte("HTTP/1.1 503 ")) {
		t.Errorf("heard %q to half a head of 40 kB, want a 503", head.heard)
	}
}

// Requests that never end are memory too, little as each may hold, wherever they
// stop.
func TestManyHalfRequestsStayBelowTheHardMark(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: a\r\na: "
	for name, end := range map[string]string{"in the head": "", "behind it": "\r\nContent-Length: 10\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 1, direct: true, limits: small})
			for range 400 {
				m.do(m.raw(head + strings.Repeat("x", 60_000) + end))
			}
			most := int64(0)
			for range 100 {
				m.w.Run(time.Millisecond)
				most = max(most, m.consumer.proc.Held())
			}
			if most < 1<<20 || most > 5<<20+128<<10 {
				t.Errorf("%d bytes held, want more than the limit and at most the hard mark of 5 MiB", most)
			}
			c := m.post(1000)
			m.do(c)
			m.finish(c)
			m.ok(c)
		})
	}
}

// What is past the hard mark is closed on the loop that holds it, though another
// one has noticed.
func TestGreediestOfAnotherLoopIsClosed(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true, limits: small, loops: 2})
	m.apps[0].body = func(*protocol.Request) []byte { return bytes.Repeat([]byte{'y'}, 1<<20) }
	turn := time.Duration(0)
	m.apps[0].delay = func() time.Duration { // one answer after another, to requests that come at once
		turn += 100 * time.Millisecond
		return turn
	}
	var lazy []*client
	for range 7 { // half of each answer is on its way
		cl := m.do(m.get("/"))
		lazy = append(lazy, cl)
		m.w.RunUntil(func() bool { return cl.conn != nil }, time.Second)
		m.w.Hold(cl.conn, true)
	}
	m.w.Run(time.Second)
	if n := m.consumer.proc.Held(); n < 7<<19 || m.consumer.shed() > 0 {
		t.Fatalf("%d bytes held, %d connections closed", n, m.consumer.shed())
	}
	for range 60 {
		m.dial("10.0.0.1:15002").calls = []*call{m.half(30_000)}
	}
	m.w.Run(time.Second)
	n := [2]uint64{}
	for i, w := range m.consumer.proc.Workers() {
		m.consumer.all[i].Do(func() { n[i] = w.Report().Stats.Shed })
	}
	if n != [2]uint64{1, 0} {
		t.Errorf("the loops closed %d connections, want one on the first", n)
	}
	for _, cl := range lazy {
		m.w.Hold(cl.conn, false)
	}
	m.w.Run(31 * time.Second)
	m.settled()
}

// A link to an endpoint carries many callers' requests: of these, the greedy are
// closed and not the link.
func TestLinkOutlivesGreedyCallers(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, limits: small, service: ", timeout: 10s"})
	provider := m.nodes[1]
	provider.crash()
	provider.cfg.Limits.Buffered = 64 << 20
	provider.start()
	provider.listen(15006)
	provider.update("local", registry.Endpoint{Addr: m.apps[0].addr, Weight: 1})
	m.apps[0].body = func(req *protocol.Request) []byte {
		if len(req.Body) > 1000 {
			return bytes.Repeat([]byte{'y'}, 1<<20)
		}
		return nil
	}
	m.apps[0].delay = func() time.Duration { return 100 * time.Millisecond }
	greedy := m.burst(8, 250_000)
	m.w.Run(90 * time.Millisecond)
	modest := m.post(1000)
	m.do(modest)
	m.finish(append(greedy, modest)...)
	m.ok(modest)
	if n := m.consumer.shed(); n == 0 || n > 6 {
		t.Errorf("%d connections closed, want some of the 8 greedy ones", n)
	}
	m.settled()
}
