package link_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// fullTable appends as many texts as a link may define, after the one of LinkRequest.
func fullTable(b []byte) []byte {
	for i := range uint64(127) {
		b = append(b, 11) // DEFINE
		b = binary.AppendUvarint(b, i+1)
		b = append(b, 64)
		b = append(b, bytes.Repeat([]byte{'a' + byte(i%26)}, 64)...)
	}
	return b
}

// outcome notes how an acceptor ended a link.
type outcome struct {
	proxytest.Refusals
	goAway bool
	last   uint64
}

func (o *outcome) OnGoAway(last uint64, _ link.Reason) { o.goAway, o.last = true, last }

func outcomeOf(t *testing.T, p *proxytest.Peer) *outcome {
	t.Helper()
	got := &outcome{Refusals: proxytest.Refusals{Why: map[link.Reason]int{}}}
	if err := link.NewDialer(link.Settings{}, link.ReaderLimits{}, got).Feed(p.Heard); err != nil {
		t.Fatal(err)
	}
	return got
}

// tablesPart is what tables may take of proxytest.SmallBudget.
const tablesPart = 512 << 10

// TestTablesAreBounded checks that tables are counted, and that links without a request in
// flight close when tables take half of limits.buffered: the largest ones first, with a GOAWAY,
// and what they have in reassembly is refused.
func TestTablesAreBounded(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallBudget})
	m.WarmUp(1)
	provider := m.Nodes[1]
	atRest := provider.Proc.Interned()
	if atRest == 0 || atRest > 8<<10 {
		t.Errorf("%d bytes of tables after one request", atRest)
	}
	m.Apps[0].Delay = func() time.Duration { return 2 * time.Second }
	request := func(w *link.Writer) { w.Request(1, proxytest.LinkRequest, time.Minute, nil) }
	busy := &proxytest.Peer{Says: fullTable(proxytest.LinkFrames(request))}
	m.DialIngress(busy)
	var idle []*proxytest.Peer
	most := int64(0) // before a link closes
	for i := range 100 {
		p := &proxytest.Peer{Says: fullTable(proxytest.LinkFrames(func(w *link.Writer) {
			long := *proxytest.LinkRequest
			if long.Body = make([]byte, 200<<10); i == 0 {
				w.Request(1, &long, time.Minute, nil)
			} else {
				w.Request(1, &protocol.Request{Codec: 99, Service: []byte("local")}, time.Minute, nil) // refused at once
			}
		}))}
		if i%2 == 1 { // a part of a frame
			p.Says = append(p.Says, 11)
		}
		idle = append(idle, p)
		m.DialIngress(p)
		m.W.Run(2 * time.Millisecond)
		if provider.ShedConnections() == 0 {
			most = max(most, provider.Proc.Interned())
		}
	}
	m.W.Run(time.Second)
	if most < tablesPart/8*7 {
		t.Errorf("links close with %d bytes of tables, of %d", most, tablesPart)
	}
	if n := provider.Proc.Interned(); n > tablesPart || n < tablesPart/2 {
		t.Errorf("%d bytes of tables, at most %d", n, tablesPart)
	}
	if n := provider.Proc.Buffered(); n < tablesPart/2 {
		t.Errorf("%d bytes are reported", n)
	}
	closed := 0
	for i, p := range idle {
		if !p.Ended {
			if all := framesOf(t, p).all; slices.Contains(all, goAway1) {
				t.Errorf("link %d stays open: %q", i, all)
			}
			continue
		}
		closed++
		if got := outcomeOf(t, p); !got.goAway || got.last != 1 || i == 0 && got.Why[link.Draining] != 1 {
			t.Fatalf("link %d closed, GOAWAY %t with %d, refused %v", i, got.goAway, got.last, got.Why)
		}
	}
	if closed < 20 || busy.Ended || int(provider.ShedConnections()) != closed {
		t.Errorf("%d of 100 idle links closed, %d counted; the busy one closed: %t", closed, provider.ShedConnections(), busy.Ended)
	}
	opened := provider.Connections()
	next := m.Post(10)
	m.Do(next)
	m.OK(next)
	if n := provider.Connections(); n > opened {
		t.Error("the link with a small table was closed")
	}
	for _, p := range append(idle, busy) {
		if !p.Ended {
			m.Clients.Do(func() { p.Conn.Close() })
		}
	}
	m.RunUntil("the tables are released", func() bool { return provider.Proc.Interned() < 8<<10 })
	m.Settled()
}

// TestReclaimLosesNoRequest checks that no request is lost when its link closes because of
// tables while it is on its way, although it must not be sent twice.
func TestReclaimLosesNoRequest(t *testing.T) {
	reclaimed := false
	for after := time.Duration(0); after < 2*time.Millisecond; after += 40 * time.Microsecond {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Seed: uint64(after), Service: "retry: {on: [connect]}", Limits: proxytest.SmallBudget})
		m.WarmUp(1)
		m.Apps[0].Delay = func() time.Duration { return 500 * time.Millisecond }
		cl := m.Dial(proxytest.Egress)
		m.W.Run(time.Millisecond)
		var busy []*proxytest.Peer
		for range 60 { // so that only the link of the consumer can give memory back
			busy = append(busy, &proxytest.Peer{Says: fullTable(proxytest.LinkFrames(func(w *link.Writer) {
				w.Request(1, proxytest.LinkRequest, time.Minute, nil)
			}))})
			m.DialIngress(busy[len(busy)-1])
		}
		m.W.Run(after)
		c := m.Post(10)
		m.Clients.Do(func() { cl.Calls = []*proxytest.Call{c}; cl.Send() })
		m.W.Run(100 * time.Millisecond)
		for _, p := range busy {
			if all := framesOf(t, p).all; p.Ended && slices.Contains(all, goAway1) { // it has taken the request
				t.Errorf("a link with a request has closed: %q", all)
			}
		}
		m.OK(c)
		reclaimed = reclaimed || m.Nodes[1].ShedConnections() > 0
		if t.Failed() {
			t.Fatalf("with a request %v after the attack", after)
		}
	}
	if !reclaimed {
		t.Error("no link was closed")
	}
}
