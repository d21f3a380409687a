package shard_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// Past the hard mark, answers that wait for their link are given up one by one
// until the rest fits; the link goes on.
func TestGreedyAnswersOfALinkAreGivenUp(t *testing.T) {
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
	m.W.Pause(m.Consumer.Loop, time.Second)
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
		t.Errorf("%d of 8 answered, fewer than fit", served)
	}
	m.Settled()
}

// So are requests in reassembly.
func TestGreedyRequestsOfALinkAreGivenUp(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallBudget})
	p := &proxytest.Peer{Says: halves(8, 900<<10)}
	m.Clients.Do(func() { m.Clients.Dial(proxytest.Ingress, time.Second, p) })
	m.W.Run(time.Second)
	m.Nodes[1].CheckBelowHardMark()
	m.Nodes[1].CheckShedRequests(8)
	if p.Ended {
		t.Error("the link is closed")
	}
}

// And answers in reassembly that no client waits for any more.
func TestGreedyAnswersToNobodyAreGivenUp(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallBudget})
	a := m.LinkResponder()
	var clients []*proxytest.Client
	for range 8 {
		clients = append(clients, m.Do(m.Post(10)))
	}
	a.QueueResponses(8)
	a.Send(4 << 20)
	for _, c := range clients {
		m.W.Reset(c.Conn)
	}
	m.W.Run(10 * time.Millisecond)
	a.Send(3 << 20)
	m.Consumer.CheckBelowHardMark()
	if a.Ended {
		t.Error("the link is closed")
	}
}

// Clients whose answers come over one link pay for them one by one: what one of them
// waited for is free at once.
func TestNoMoreClientsAreClosedThanItTakes(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallBudget})
	a := m.LinkResponder()
	greedy := m.Burst(8, 10)
	m.W.Run(10 * time.Millisecond)
	m.Burst(200, 10) // so that the link holds little for each of its requests
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
	for _, c := range greedy {
		if !c.Done {
			left++
		}
	}
	if left != 7 {
		t.Errorf("%d of 8 wait for their answers, want 7", left)
	}
}

// A link on which no request takes much is closed for all of them together.
func TestGreediestLinkIsClosed(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallBudget})
	p := &proxytest.Peer{Says: halves(3000, 2000)}
	m.Clients.Do(func() { m.Clients.Dial(proxytest.Ingress, time.Second, p) })
	m.W.Run(time.Second)
	if n := m.Nodes[1].ShedConnections(); n != 1 || !p.Ended {
		t.Errorf("%d links closed, want 1", n)
	}
	m.Settled()
	after := m.Post(10)
	m.Do(after)
	m.Finish(after)
	m.OK(after)
}
