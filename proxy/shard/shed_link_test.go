package shard_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// At the hard mark, responses that wait for their link are shed one by one until the rest
// is below the mark. The link stays open.
func TestShedResponsesOfLink(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallBudget})
	m.Apps[0].Delay = func() time.Duration { return 100 * time.Millisecond }
	m.Apps[0].Body = func(req *protocol.Request) []byte {
		if len(req.Body) == 10 {
			return bytes.Repeat([]byte{'y'}, 1<<20)
		}
		return nil
	}
	calls := m.Burst(8, 10)
	modest := m.Post(11)
	m.Do(modest)
	m.W.Run(50 * time.Millisecond)
	m.W.Faults.Pause(m.Consumer.Loop, time.Second)
	m.W.Run(500 * time.Millisecond)
	m.Nodes[1].CheckBelowHardMark()
	m.Nodes[1].CheckShedRequests(8)
	m.Finish(append(calls, modest)...)
	m.OK(modest)
	served := 0
	for _, c := range calls {
		switch {
		case c.Status == 200:
			served++
		case c.Status != 502 || c.Code != "upstream-reset":
			t.Errorf("status %d %s, want 502 upstream-reset: the application has seen it", c.Status, c.Code)
		}
	}
	if served < 4 {
		t.Errorf("%d of 8 got a response, fewer than fit below the mark", served)
	}
	m.Settled()
}

// Requests of a link that are not complete yet are shed, too.
func TestShedRequestsOfLink(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallBudget})
	p := &proxytest.Peer{Says: incompleteRequests(8, 900<<10)}
	m.Clients.Do(func() { m.Clients.Dial(proxytest.Ingress, time.Second, p) })
	m.W.Run(time.Second)
	m.Nodes[1].CheckBelowHardMark()
	m.Nodes[1].CheckShedRequests(8)
	if p.Ended {
		t.Error("the link is closed")
	}
}

// So are incomplete responses for which no client waits any more.
func TestShedResponsesOfCancelledRequests(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallBudget})
	a := m.LinkResponder()
	var clients []*proxytest.Client
	for range 8 {
		clients = append(clients, m.Do(m.Post(10)))
	}
	a.QueueResponses(8)
	a.Send(4 << 20)
	for _, c := range clients {
		m.W.Faults.Reset(c.Conn)
	}
	m.W.Run(10 * time.Millisecond)
	a.Send(3 << 20)
	m.Consumer.CheckBelowHardMark()
	if a.Ended {
		t.Error("the link is closed")
	}
}

// So are those on a link that drains. It counts as a connection until it closes.
func TestShedResponsesOfDrainingLink(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallBudget})
	a := m.LinkResponder()
	var clients []*proxytest.Client
	for range 8 {
		clients = append(clients, m.Do(m.Post(10)))
	}
	m.RunUntil("a link", func() bool { return a.Conn != nil })
	m.W.Run(10 * time.Millisecond)
	a.GoAway(8)
	if n := m.Consumer.Report().Services[0].Endpoints[0].Connections; n != 1 {
		t.Errorf("%d connections count, want one", n)
	}
	a.QueueResponses(8)
	a.Send(4 << 20)
	for _, c := range clients {
		m.W.Faults.Reset(c.Conn)
	}
	m.W.Run(10 * time.Millisecond)
	a.Send(3 << 20)
	m.Consumer.CheckBelowHardMark()
	if a.Ended {
		t.Error("the link is closed")
	}
}

// Of the clients whose responses arrive over one link, one at a time is closed: its memory
// is released at once.
func TestShedOneClientOfLink(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallBudget})
	a := m.LinkResponder()
	clients := m.Burst(8, 10)
	m.W.Run(10 * time.Millisecond)
	m.Burst(200, 10) // so that the link holds few bytes per request
	a.QueueResponses(8)
	for m.Consumer.ShedConnections() == 0 && m.Consumer.Proc.Held() < proxytest.HardMark+256<<10 {
		a.Send(64 << 10)
	}
	if n := m.Consumer.ShedConnections(); n != 1 || a.Ended {
		t.Errorf("%d of 8 clients closed, want 1; link closed: %t", n, a.Ended)
	}
	if held, most := m.Consumer.Proc.Held(), int64(proxytest.HardMark-256<<10); held > most {
		t.Errorf("%d bytes held after that, want %d at most", held, most)
	}
	left := 0
	for _, c := range clients {
		if !c.Done {
			left++
		}
	}
	if left != 7 {
		t.Errorf("%d of 8 wait for their responses, want 7", left)
	}
}

// A link is closed if it holds the most and none of its requests holds much.
func TestShedLink(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallBudget})
	p := &proxytest.Peer{Says: incompleteRequests(3000, 2000)}
	m.Clients.Do(func() { m.Clients.Dial(proxytest.Ingress, time.Second, p) })
	m.W.Run(time.Second)
	if n := m.Nodes[1].ShedConnections(); n != 1 || !p.Ended {
		t.Errorf("%d links closed, want 1", n)
	}
	m.Settled()
	after := m.Post(10)
	m.Do(after)
	m.OK(after)
}
