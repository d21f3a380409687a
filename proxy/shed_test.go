package proxy_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
)

// shed is how many connections the node has closed for what they held.
func (n *node) shed() (count uint64) {
	for i, w := range n.proc.Workers() {
		n.all[i].Do(func() { count += w.Report().Stats.Shed })
	}
	return count
}

// halves are the starts of n requests, each of about size bytes, of which nothing
// more comes.
func halves(n, size int) []byte { return halvesOf(link.NewWriter(), n, size) }

// halvesOf is halves by a Writer that can go on.
func halvesOf(w *link.Writer, n, size int) []byte {
	w.Preface(link.Dialer, link.Settings{})
	w.Open(1, link.Settings{})
	out := w.Append(nil, 1<<20)
	for id := range uint64(n) {
		req := &protocol.Request{Service: []byte("local"), Method: []byte("POST"), Path: []byte("/"),
			Authority: []byte("local"), Body: make([]byte, 1<<20)}
		w.Request(id+1, req, time.Minute, nil)
	}
	for target := len(out) + n*size; len(out) < target; w.Granted(64 << 10) {
		out = w.Append(out, 1<<20)
	}
	return out
}

// Requests that come in part and never to their end are refused after
// timeouts.body, and their memory is free again.
func TestHalfMessagesAreRefused(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, limits: "timeouts: {body: 4s}"})
	p := &peer{says: halves(100, 2000)}
	m.clients.Do(func() { m.clients.Dial("10.0.1.1:15006", time.Second, p) })
	m.w.Run(3900 * time.Millisecond)
	if n := m.nodes[1].proc.Held(); n < 100<<10 {
		t.Errorf("%d bytes held before timeouts.body is over", n)
	}
	heard := len(p.heard)
	m.w.Run(2100 * time.Millisecond)
	if n := m.nodes[1].proc.Held(); n != 0 || p.ended {
		t.Errorf("%d bytes held after it, link closed: %t", n, p.ended)
	}
	if n := len(p.heard) - heard; n < 100*3 {
		t.Errorf("%d bytes came back, too few to refuse 100 requests", n)
	}
	c := m.post(10)
	m.do(c)
	m.finish(c)
	m.ok(c)
}

// A single frame that does not end costs its link.
func TestHalfFrameEndsTheLink(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, limits: "timeouts: {body: 4s}"})
	whole := halves(1, 1000)
	for _, cut := range []int{3, len(linkPreface(link.Dialer)) + 1, len(whole) - 1} {
		p := &peer{says: whole[:cut]}
		m.clients.Do(func() { m.clients.Dial("10.0.1.1:15006", time.Second, p) })
		m.w.Run(3900 * time.Millisecond)
		if p.ended {
			t.Errorf("closed early with %d bytes", cut)
		}
		m.w.Run(2200 * time.Millisecond)
		if !p.ended {
			t.Errorf("open after timeouts.body with %d bytes", cut)
		}
	}
	m.settled()
}

// A peer that is refused on and on and reads nothing loses its link long before
// it holds much.
func TestUnreadRefusalsEndTheLink(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, ingress: ", rate_limit: {rate: 1}"})
	w := link.NewWriter()
	w.Preface(link.Dialer, link.Settings{})
	w.Open(1, link.Settings{})
	flood := w.Append(nil, 1<<20)
	for id := range uint64(400_000) {
		w.Request(id+1, &protocol.Request{Service: []byte("local"), Method: []byte("GET"), Path: []byte("/"), Authority: []byte("local")}, time.Minute, nil)
	}
	p := &peer{says: w.Append(flood, 64<<20)}
	m.clients.Do(func() { m.clients.Dial(ingress, time.Second, p) })
	m.w.RunUntil(func() bool { return p.conn != nil }, time.Second)
	m.w.Hold(p.conn, true)
	most := int64(0)
	for range 200 {
		m.w.Run(time.Millisecond)
		most = max(most, m.nodes[1].proc.Held())
	}
	m.w.Hold(p.conn, false)
	m.w.Run(time.Second)
	if !p.ended || most > 2<<20 {
		t.Errorf("link closed: %t; %d bytes held at most", p.ended, most)
	}
	m.settled()
}

// Past the hard mark the connection that holds most is closed, and no other.
func TestGreediestIsClosed(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true, limits: "limits: {message: 1MiB, buffered: 1MiB}"})
	m.apps[0].body = func(req *protocol.Request) []byte {
		if string(req.Path) == "/big" {
			return bytes.Repeat([]byte{'y'}, 1<<20)
		}
		return []byte("nonce=" + string(protocol.Find(req.Headers, "x-nonce")))
	}
	m.apps[0].delay = func() time.Duration { return 100 * time.Millisecond }
	modest := m.post(200_000)
	m.do(modest)
	// All begin before there is anything to refuse them for.
	var lazy []*client
	for range 8 {
		cl := m.do(m.get("/big"))
		lazy = append(lazy, cl)
		m.w.RunUntil(func() bool { return cl.conn != nil }, time.Second)
		m.w.Hold(cl.conn, true)
	}
	m.finish(modest)
	m.ok(modest)
	m.w.Run(time.Second)
	if n := m.consumer.proc.Held(); n > 5<<20+64<<10 {
		t.Errorf("%d bytes held, over the hard mark of 5 MiB", n)
	}
	if n := m.consumer.shed(); n == 0 || n > 5 {
		t.Errorf("%d of 8 connections closed, want a few: the rest fits below the mark", n)
	}
	for _, cl := range lazy {
		m.w.Hold(cl.conn, false)
	}
	m.w.Run(time.Second)
	m.settled()
}
