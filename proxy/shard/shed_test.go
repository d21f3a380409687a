package shard_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// incompleteRequests returns the beginnings of n requests of about size bytes each.
func incompleteRequests(n, size int) []byte {
	return appendIncomplete(link.NewWriter(), n, size, 1<<20)
}

// appendIncomplete does the same with a Writer that can write more, and bodies of whole bytes.
func appendIncomplete(w *link.Writer, n, size, whole int) []byte {
	out := requestHeads(w, slices.Repeat([]int{whole}, n))
	for i := range n {
		out = proxytest.AppendData(out, 1+i, size)
	}
	return out
}

// Incomplete requests are refused after timeouts.body, and their memory is released.
func TestIncompleteMessagesTimeOut(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: "timeouts: {body: 4s}"})
	p := &proxytest.Peer{Says: incompleteRequests(100, 2000)}
	m.Clients.Do(func() { m.Clients.Dial("10.0.1.1:15006", time.Second, p) })
	m.W.Run(3900 * time.Millisecond)
	if n := m.Nodes[1].Proc.Held(); n < 100<<10 {
		t.Errorf("%d bytes held before timeouts.body", n)
	}
	heard := len(p.Heard)
	m.W.Run(2100 * time.Millisecond)
	if n := m.Nodes[1].Proc.Held(); n != 0 || p.Ended {
		t.Errorf("%d bytes held after timeouts.body, link closed: %t", n, p.Ended)
	}
	if n := len(p.Heard) - heard; n < 100*3 {
		t.Errorf("%d bytes received, too few to refuse 100 requests", n)
	}
	c := m.Post(10)
	m.Do(c)
	m.OK(c)
}

// An incomplete frame closes its link after timeouts.body.
func TestIncompleteFrameClosesLink(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: "timeouts: {body: 4s}"})
	whole := incompleteRequests(1, 1000)
	for _, cut := range []int{3, len(proxytest.LinkPreface(link.Dialer)) + 1, len(whole) - 1} {
		p := &proxytest.Peer{Says: whole[:cut]}
		m.Clients.Do(func() { m.Clients.Dial("10.0.1.1:15006", time.Second, p) })
		m.W.Run(3900 * time.Millisecond)
		if p.Ended {
			t.Errorf("closed early with %d bytes", cut)
		}
		m.W.Run(2200 * time.Millisecond)
		if !p.Ended {
			t.Errorf("open after timeouts.body with %d bytes", cut)
		}
	}
	m.Settled()
}

// A peer that reads none of its refusals loses its link long before they take much memory.
func TestUnreadRefusalsCloseLink(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Ingress: "rate_limit: {rate: 1}"})
	w := link.NewWriter()
	w.Preface(link.Dialer, link.Settings{})
	w.Open(1, link.Settings{})
	flood := w.Append(nil, 1<<20)
	for id := range uint64(400_000) {
		w.Request(id+1, &protocol.Request{Service: []byte("local"), Method: []byte("GET"), Path: []byte("/"), Authority: []byte("local")}, time.Minute, nil)
	}
	p := &proxytest.Peer{Says: w.Append(flood, 64<<20)}
	m.Clients.Do(func() { m.Clients.Dial(proxytest.Ingress, time.Second, p) })
	m.W.RunUntil(func() bool { return p.Conn != nil }, time.Second)
	m.W.Faults.PauseReading(p.Conn, true)
	most := int64(0)
	for range 200 {
		m.W.Run(time.Millisecond)
		most = max(most, m.Nodes[1].Proc.Held())
	}
	m.W.Faults.PauseReading(p.Conn, false)
	m.W.Run(time.Second)
	if !p.Ended || most > 2<<20 {
		t.Errorf("link closed: %t; %d bytes held at most", p.Ended, most)
	}
	m.Settled()
}

// At the hard mark the largest connection is closed, and no other.
func TestShedLargestConnection(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: "limits: {message: 1MiB, buffered: 1MiB}"})
	m.Apps[0].Body = func(req *protocol.Request) []byte {
		if string(req.Path) == "/big" {
			return bytes.Repeat([]byte{'y'}, 1<<20)
		}
		return []byte("nonce=" + string(protocol.Find(req.Headers, "x-nonce")))
	}
	m.Apps[0].Delay = func() time.Duration { return 100 * time.Millisecond }
	modest := m.Post(200_000)
	m.Do(modest)
	// All requests begin while there is no reason to refuse them.
	var lazy []*proxytest.Client
	for range 8 {
		cl := m.Do(m.Get("/big"))
		lazy = append(lazy, cl)
		m.W.RunUntil(func() bool { return cl.Conn != nil }, time.Second)
		m.W.Faults.PauseReading(cl.Conn, true)
	}
	m.OK(modest)
	m.W.Run(time.Second)
	if n := m.Consumer.Proc.Held(); n > 5<<20+64<<10 {
		t.Errorf("%d bytes held, over the hard mark of 5 MiB", n)
	}
	if n := m.Consumer.ShedConnections(); n == 0 || n > 5 {
		t.Errorf("%d of 8 connections closed, want a few: the rest fits below the mark", n)
	}
	for _, cl := range lazy {
		m.W.Faults.PauseReading(cl.Conn, false)
	}
	m.W.Run(time.Second)
	m.Settled()
}
