package proxy_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy"
)

// hardMark is that of a mesh with small limits.
const hardMark = 5 << 20

// bounded checks that a node keeps below the hard mark without closing a
// connection.
func (n *node) bounded() {
	n.m.t.Helper()
	if held := n.proc.Held(); held > hardMark+64<<10 {
		n.m.t.Errorf("%d bytes held, over the hard mark of %d", held, hardMark)
	}
	if c := n.shed(); c != 0 {
		n.m.t.Errorf("%d connections closed, want none", c)
	}
}

// gaveUp checks that a node has given up some of all requests, but not each.
func (n *node) gaveUp(all uint64) {
	n.m.t.Helper()
	if given := n.report().Stats.Errors["shed"]; given == 0 || given >= all {
		n.m.t.Errorf("%d of %d requests given up, want some", given, all)
	}
}

// Past the hard mark, answers that wait for their link are given up one by one
// until the rest fits; the link goes on.
func TestGreedyAnswersOfALinkAreGivenUp(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, limits: small})
	m.apps[0].delay = func() time.Duration { return 100 * time.Millisecond }
	m.apps[0].body = func(req *protocol.Request) []byte {
		if len(req.Body) == 10 {
			return bytes.Repeat([]byte{'y'}, 1<<20)
		}
		return nil
	}
	calls := m.burst(8, 10)
	modest := m.post(11)
	m.do(modest)
	m.w.Run(50 * time.Millisecond)
	m.w.Pause(m.consumer.loop, time.Second)
	m.w.Run(500 * time.Millisecond)
	m.nodes[1].bounded()
	m.nodes[1].gaveUp(8)
	m.finish(append(calls, modest)...)
	m.ok(modest)
	served := 0
	for _, c := range calls {
		switch {
		case c.status == 200:
			served++
		case c.status != 502 || c.code != "upstream-reset":
			t.Errorf("status %d %s, want 502 upstream-reset: the application has seen it", c.status, c.code)
		}
	}
	if served < 4 {
		t.Errorf("%d of 8 answered, fewer than fit", served)
	}
	m.settled()
}

// So are requests in reassembly.
func TestGreedyRequestsOfALinkAreGivenUp(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, limits: small})
	p := &peer{says: halves(8, 900<<10)}
	m.clients.Do(func() { m.clients.Dial(ingress, time.Second, p) })
	m.w.Run(time.Second)
	m.nodes[1].bounded()
	m.nodes[1].gaveUp(8)
	if p.ended {
		t.Error("the link is closed")
	}
}

// answerer is the accepting end of a link, by hand, in the place of the sidecar
// beside the only application.
type answerer struct {
	peer
	m *mesh
	w *link.Writer
}

func (m *mesh) answerer() *answerer {
	m.nodes[1].stop[0]()
	a := &answerer{m: m, w: link.NewWriter()}
	a.w.Preface(link.Acceptor, link.Settings{})
	a.w.Open(1, link.Settings{})
	a.says = a.w.Append(nil, 1<<20)
	m.w.Listen(ingress, m.nodes[1].loop, func() proxy.Stream { return a })
	return a
}

// begin has the first n requests answered with 1 MiB each, of which say sends.
func (a *answerer) begin(n int) {
	a.m.until("a link", func() bool { return a.conn != nil })
	a.m.w.Run(10 * time.Millisecond)
	for id := range uint64(n) {
		a.w.Response(id+1, &protocol.Response{Status: 200, Body: make([]byte, 1<<20), DeclaredLength: -1}, protocol.CodecHTTP, nil)
	}
}

// say sends n bytes, equal parts of all answers.
func (a *answerer) say(n int) {
	var out []byte
	for len(out) < n {
		out = a.w.Append(out, 64<<10)
		a.w.Granted(64 << 10)
	}
	a.m.nodes[1].loop.Do(func() { a.conn.Write(out) })
	a.m.w.Run(100 * time.Millisecond)
}

// And answers in reassembly that no client waits for any more.
func TestGreedyAnswersToNobodyAreGivenUp(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, limits: small})
	a := m.answerer()
	var clients []*client
	for range 8 {
		clients = append(clients, m.do(m.post(10)))
	}
	a.begin(8)
	a.say(4 << 20)
	for _, c := range clients {
		m.w.Reset(c.conn)
	}
	m.w.Run(10 * time.Millisecond)
	a.say(3 << 20)
	m.consumer.bounded()
	if a.ended {
		t.Error("the link is closed")
	}
}

// Clients whose answers come over one link pay for them one by one: what one of them
// waited for is free at once.
func TestNoMoreClientsAreClosedThanItTakes(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, limits: small})
	a := m.answerer()
	greedy := m.burst(8, 10)
	m.w.Run(10 * time.Millisecond)
	m.burst(200, 10) // so that the link holds little for each of its requests
	a.begin(8)
	for m.consumer.shed() == 0 && m.consumer.proc.Held() < hardMark+256<<10 {
		a.say(64 << 10)
	}
	if n := m.consumer.shed(); n != 1 || a.ended {
		t.Errorf("%d of 8 clients closed, want 1; link closed: %t", n, a.ended)
	}
	if held, most := m.consumer.proc.Held(), int64(hardMark-256<<10); held > most {
		t.Errorf("%d bytes held after that, want %d at most", held, most)
	}
	left := 0
	for _, c := range greedy {
		if !c.done {
			left++
		}
	}
	if left != 7 {
		t.Errorf("%d of 8 wait for their answers, want 7", left)
	}
}

// A link on which no request takes much is closed for all of them together.
func TestGreediestLinkIsClosed(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, limits: small})
	p := &peer{says: halves(3000, 2000)}
	m.clients.Do(func() { m.clients.Dial(ingress, time.Second, p) })
	m.w.Run(time.Second)
	if n := m.nodes[1].shed(); n != 1 || !p.ended {
		t.Errorf("%d links closed, want 1", n)
	}
	m.settled()
	after := m.post(10)
	m.do(after)
	m.finish(after)
	m.ok(after)
}
