package exchange_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// tiedMesh is a mesh of two applications with one worker each, both taken by a request of another consumer. So a call and
// its hedge wait at the providers, until serve lets a worker go on.
type tiedMesh struct {
	*proxytest.Mesh
	call           *proxytest.Call
	body           int // its length
	client         *proxytest.Client
	executed       map[string]int // by application and nonce
	blocked        []bool         // the worker of the application does not go on
	others         []*link.Writer // other consumers, one at each provider
	peers          []*proxytest.Peer
	sent           int // requests of other consumers
	primary, hedge int // indices of their providers
}

func newTiedMesh(t *testing.T, o proxytest.MeshOptions) *tiedMesh {
	t.Helper()
	o.Apps = max(2, o.Apps)
	o.Service = proxytest.Fields("idempotent: true, hedge: {mode: on, delay: 5ms, max: 2}", o.Service)
	o.Provider = proxytest.Fields("max_concurrency: 1", o.Provider)
	m := &tiedMesh{Mesh: proxytest.NewMesh(t, o), executed: map[string]int{}, blocked: make([]bool, o.Apps), body: 10}
	m.WarmUpEach(1)
	for i, a := range m.Apps {
		a.OnRequest = func(req *protocol.Request) {
			m.executed[fmt.Sprint(i, string(protocol.Find(req.Headers, "x-nonce")))]++
		}
		a.Delay = func() time.Duration { return 10 * time.Microsecond }
		w, p := link.NewWriter(), &proxytest.Peer{}
		w.Preface(link.Dialer, link.Settings{})
		w.Open(1, link.Settings{})
		p.Says = w.Append(nil, 1<<20)
		m.Clients.Do(func() { m.Clients.Dial(m.Endpoint(i).Addr, time.Second, p) })
		m.RunUntil("a link", func() bool { return p.Conn != nil })
		m.others, m.peers = append(m.others, w), append(m.peers, p)
	}
	return m
}

// block keeps the worker of application i from going on. What it has is not done before serve.
func (m *tiedMesh) block(i int) {
	m.blocked[i] = true
	var extend func()
	extend = func() {
		if m.blocked[i] {
			m.Apps[i].FrozenUntil = m.W.Now() + time.Millisecond
			m.W.At(m.W.Now()+500*time.Microsecond, extend)
		}
	}
	extend()
}

// fill sends a request of another consumer to provider i.
func (m *tiedMesh) fill(i int) {
	m.sent++
	m.others[i].Request(uint64(m.sent), &protocol.Request{Service: []byte("local"), Method: []byte("GET"), Path: []byte("/"), Authority: []byte("a")}, time.Minute, nil)
	m.Clients.Do(func() { m.peers[i].Conn.Write(m.others[i].Append(nil, 1<<20)) })
}

// slots waits until the provider i has so many requests at the application and in its queue.
func (m *tiedMesh) slots(i, used, queued int) {
	m.T.Helper()
	m.RunUntil(fmt.Sprintf("%d slots and %d in the queue of provider %d", used, queued, i), func() bool {
		u, q := m.Nodes[1+i].Proc.Slots("local")
		return u == used && q == queued
	})
}

// start fills both workers, and sends the call: it waits at one provider, and its hedge at the other.
func (m *tiedMesh) start() {
	m.T.Helper()
	for i := range m.Apps {
		m.block(i)
		m.fill(i)
		m.slots(i, 1, 0)
	}
	m.send()
	m.slots(m.hedge, 1, 1)
}

// sendToWorker sends the call, which a worker takes, and then fills the other worker.
func (m *tiedMesh) sendToWorker() {
	m.T.Helper()
	m.sendUntil("the call at an application", func(i int) bool { return m.executed[fmt.Sprint(i, m.call.Nonce)] == 1 })
	m.fill(m.hedge)
	m.slots(m.hedge, 1, 0)
}

// send sends the call, and waits until it is in a queue.
func (m *tiedMesh) send() {
	m.T.Helper()
	m.sendUntil("the call in a queue", func(i int) bool {
		_, queued := m.Nodes[1+i].Proc.Slots("local")
		return queued == 1
	})
}

// sendUntil sends the call, and waits until an application or its sidecar has the call.
func (m *tiedMesh) sendUntil(what string, has func(i int) bool) {
	m.T.Helper()
	m.call = m.Post(m.body)
	m.client = m.Do(m.call)
	m.RunUntil(what, func() bool {
		for i := range m.Apps {
			if has(i) {
				m.primary, m.hedge = i, 1-i
				return true
			}
		}
		return false
	})
}

// serve lets the worker of application i go on until it is done with one request.
func (m *tiedMesh) serve(i int) {
	m.T.Helper()
	before := m.Apps[i].Served
	m.blocked[i] = false
	m.Apps[i].FrozenUntil = 0
	m.RunUntil("an application to serve", func() bool { return m.Apps[i].Served > before })
	m.block(i)
}

// release lets both applications go on.
func (m *tiedMesh) release() {
	for i := range m.Apps {
		m.blocked[i], m.Apps[i].FrozenUntil = false, 0
	}
}

// tiedWant is what is expected of the call and its hedges.
type tiedWant struct {
	hedges, missed, won uint64
	queued, withdrawn   uint64 // at both providers
	primary, hedge      int    // how often the application of each got the call
	gone                bool   // the caller has left
	eitherMissed        bool   // a refusal of the hedge may or may not come before its cancellation
}

func (m *tiedMesh) check(want tiedWant) {
	m.T.Helper()
	m.release()
	if !want.gone {
		m.Finish(m.call)
		m.OK(m.call)
	}
	m.W.Run(20 * time.Millisecond)
	m.Settled()
	s := m.Consumer.Stats("compute")
	got := tiedWant{hedges: s.Hedges, missed: s.HedgesMissed, won: s.HedgesWon, gone: want.gone,
		primary: m.executed[fmt.Sprint(m.primary, m.call.Nonce)], hedge: m.executed[fmt.Sprint(m.hedge, m.call.Nonce)]}
	got.queued, got.withdrawn = m.tied()
	if want.eitherMissed {
		got.missed, got.eitherMissed = want.missed, true
	}
	if got != want {
		m.T.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// tied returns how many hedges have waited, and how many of these were withdrawn.
func (m *tiedMesh) tied() (queued, withdrawn uint64) {
	for i := range m.Apps {
		p := m.Nodes[1+i].Stats("local")
		queued += p.TiedQueued
		withdrawn += p.TiedWithdrawn
	}
	return queued, withdrawn
}

// TestTied: a hedge waits at its provider until the primary has started, or has ended.
func TestTied(t *testing.T) {
	withdrawn := func(m *tiedMesh) {
		m.T.Helper()
		m.RunUntil("the hedge to be withdrawn", func() bool { return m.Nodes[1+m.hedge].Stats("local").TiedWithdrawn == 1 })
	}
	for _, c := range []struct {
		name string
		o    proxytest.MeshOptions
		do   func(m *tiedMesh)
		want tiedWant
	}{
		{"the primary starts first", proxytest.MeshOptions{}, func(m *tiedMesh) {
			m.start()
			m.serve(m.primary)
			withdrawn(m)
		}, tiedWant{hedges: 1, missed: 1, queued: 1, withdrawn: 1, primary: 1}},
		{"the hedge starts first, and wins", proxytest.MeshOptions{}, func(m *tiedMesh) {
			m.start()
			m.serve(m.hedge)
			m.slots(m.hedge, 1, 0)
			m.serve(m.hedge)
			m.RunUntil("the response", func() bool { return m.call.Done })
			m.slots(m.primary, 1, 0)
		}, tiedWant{hedges: 1, won: 1, queued: 1, hedge: 1}},
		{"the hedge starts first, and is not withdrawn when the primary starts", proxytest.MeshOptions{}, func(m *tiedMesh) {
			m.start()
			m.serve(m.hedge)
			m.slots(m.hedge, 1, 0)
			m.serve(m.primary)
			m.slots(m.primary, 1, 0)
			m.W.Run(2 * time.Millisecond)
			m.serve(m.hedge)
			m.RunUntil("the response", func() bool { return m.call.Done })
		}, tiedWant{hedges: 1, won: 1, queued: 1, primary: 1, hedge: 1}},
		{"the primary has started before", proxytest.MeshOptions{}, func(m *tiedMesh) {
			m.block(0)
			m.block(1)
			m.sendToWorker()
			withdrawn(m)
		}, tiedWant{hedges: 1, missed: 1, queued: 1, withdrawn: 1, primary: 1}},
		{"no room in the queue", proxytest.MeshOptions{Provider: "max_queue: 1"}, func(m *tiedMesh) {
			m.start0()
			m.fill(m.hedge)
			m.slots(m.hedge, 1, 1)
			m.RunUntil("the hedge", func() bool { return m.Consumer.Stats("compute").HedgesMissed == 1 })
		}, tiedWant{hedges: 1, missed: 1, primary: 1}},
		{"the hedge is not sent when the primary starts", proxytest.MeshOptions{}, func(m *tiedMesh) {
			m.body = 1 << 20
			m.start0()
			m.W.Faults.Partition(m.Consumer.Host, m.Nodes[1+m.hedge].Host) // so there is no credit for its body
			m.RunUntil("the hedge", func() bool { return m.Consumer.Stats("compute").Hedges == 1 })
			m.serve(m.primary)
			m.RunUntil("its end", func() bool { return m.Consumer.Stats("compute").HedgesMissed == 1 })
			m.W.Faults.Heal(m.Consumer.Host, m.Nodes[1+m.hedge].Host)
		}, tiedWant{hedges: 1, missed: 1, primary: 1}},
		{"the link of the primary breaks", proxytest.MeshOptions{Service: "retry: {on: [connect, reset]}"}, func(m *tiedMesh) {
			m.start()
			m.W.Faults.ResetAll(m.Consumer.Host, m.Nodes[1+m.primary].Host)
			withdrawn(m)
			m.release()
		}, tiedWant{hedges: 1, missed: 1, queued: 1, withdrawn: 1, hedge: 1}},
		{"the link of the hedge breaks", proxytest.MeshOptions{}, func(m *tiedMesh) {
			m.start()
			m.W.Faults.ResetAll(m.Consumer.Host, m.Nodes[1+m.hedge].Host)
			m.slots(m.hedge, 1, 0)
		}, tiedWant{hedges: 1, queued: 1, withdrawn: 1, primary: 1}},
		{"the provider of the primary gets more workers", proxytest.MeshOptions{}, func(m *tiedMesh) {
			m.start()
			m.reload(m.primary, "max_concurrency: 2")
			withdrawn(m)
		}, tiedWant{hedges: 1, missed: 1, queued: 1, withdrawn: 1, primary: 1}},
		{"the provider of the hedge gets more workers", proxytest.MeshOptions{}, func(m *tiedMesh) {
			m.start()
			m.reload(m.hedge, "max_concurrency: 2")
			m.slots(m.hedge, 2, 0)
			m.serve(m.hedge)
			m.serve(m.hedge)
			m.RunUntil("the response", func() bool { return m.call.Done })
		}, tiedWant{hedges: 1, won: 1, queued: 1, hedge: 1}},
		{"the provider of the primary drains", proxytest.MeshOptions{}, func(m *tiedMesh) {
			m.start()
			m.Nodes[1+m.primary].Proc.Drain()
			m.W.Run(time.Millisecond)
			m.serve(m.primary)
			withdrawn(m)
		}, tiedWant{hedges: 1, missed: 1, queued: 1, withdrawn: 1, primary: 1}},
		{"the provider of the hedge drains", proxytest.MeshOptions{}, func(m *tiedMesh) {
			m.start()
			m.Nodes[1+m.hedge].Proc.Drain()
			m.W.Run(time.Millisecond)
			m.serve(m.primary)
			withdrawn(m)
		}, tiedWant{hedges: 1, missed: 1, queued: 1, withdrawn: 1, primary: 1}},
		{"the provider of the primary dies", proxytest.MeshOptions{Service: "retry: {on: [connect, reset]}"}, func(m *tiedMesh) {
			m.start()
			m.Nodes[1+m.primary].Crash()
			withdrawn(m)
			m.Nodes[1+m.primary].Restart(m.Apps[m.primary])
		}, tiedWant{hedges: 1, missed: 1, queued: 1, withdrawn: 1, hedge: 1}},
		{"the caller leaves while both wait", proxytest.MeshOptions{}, func(m *tiedMesh) {
			m.start()
			m.client.Leave()
			withdrawn(m)
		}, tiedWant{hedges: 1, queued: 1, withdrawn: 1, gone: true}},
		{"the caller leaves while the hedge is withdrawn", proxytest.MeshOptions{}, func(m *tiedMesh) {
			m.start()
			m.serve(m.primary)
			m.slots(m.primary, 1, 0)
			m.client.Leave()
			withdrawn(m)
		}, tiedWant{hedges: 1, eitherMissed: true, queued: 1, withdrawn: 1, primary: 1, gone: true}},
		{"the caller leaves after the hedge was withdrawn", proxytest.MeshOptions{}, func(m *tiedMesh) {
			m.start()
			m.serve(m.primary)
			withdrawn(m)
			m.W.Run(time.Millisecond)
			m.client.Leave()
		}, tiedWant{hedges: 1, missed: 1, queued: 1, withdrawn: 1, primary: 1, gone: true}},
		{"the caller leaves while the hedge works", proxytest.MeshOptions{}, func(m *tiedMesh) {
			m.start()
			m.serve(m.hedge)
			m.slots(m.hedge, 1, 0)
			m.client.Leave()
			m.slots(m.primary, 1, 0)
		}, tiedWant{hedges: 1, queued: 1, hedge: 1, gone: true}},
		{"the deadline passes", proxytest.MeshOptions{Service: "timeout: 30ms"}, func(m *tiedMesh) {
			m.start()
			m.RunUntil("the deadline", func() bool { return m.call.Done })
			if m.call.Code != "deadline" {
				m.T.Errorf("got %s", m.call.Code)
			}
		}, tiedWant{hedges: 1, queued: 1, withdrawn: 1, gone: true}},
		{"the primary takes too long", proxytest.MeshOptions{Service: "retry: {per_try_timeout: 20ms, on: [reset]}"}, func(m *tiedMesh) {
			m.start()
			withdrawn(m)
		}, tiedWant{hedges: 1, missed: 1, queued: 1, withdrawn: 1, hedge: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newTiedMesh(t, c.o)
			c.do(m)
			m.check(c.want)
		})
	}
}

// start0 is start without the hedge.
func (m *tiedMesh) start0() {
	m.T.Helper()
	for i := range m.Apps {
		m.block(i)
		m.fill(i)
		m.slots(i, 1, 0)
	}
	m.send()
}

// reload gives provider i other settings.
func (m *tiedMesh) reload(i int, settings string) {
	m.Nodes[1+i].Reload(fmt.Sprintf(`
listeners: [{name: ingress, address: "127.0.0.1:15006", protocol: link, service: local}]
services:
  local: {discover: static, endpoints: [%q], protocol: http, %s}`, m.Apps[i].Addr, settings))
}

// TestTiedStartAtOnce: the primary and its hedge start at about the same time. The hedge is withdrawn, or goes on.
func TestTiedStartAtOnce(t *testing.T) {
	for seed := range uint64(10) {
		m := newTiedMesh(t, proxytest.MeshOptions{Seed: seed})
		m.start()
		m.release()
		m.Finish(m.call)
		m.OK(m.call)
		m.Settled()
		at := m.executed[fmt.Sprint(m.hedge, m.call.Nonce)]
		if queued, withdrawn := m.tied(); queued != 1 || int(withdrawn)+at != 1 {
			t.Errorf("seed %d: %d hedges queued, %d withdrawn, %d at the application", seed, queued, withdrawn, at)
		}
	}
}

// TestTiedToRetry: when the primary has started, and has failed, a hedge is tied to the retry in its place.
func TestTiedToRetry(t *testing.T) {
	m := newTiedMesh(t, proxytest.MeshOptions{Apps: 4, Service: "retry: {on: [connect, reset]}"})
	m.body = 100_000 // a refused hedge is not replaced
	for i := range m.Apps {
		m.block(i)
	}
	m.sendToWorker()
	for i := range m.Apps {
		if i != m.primary && i != m.hedge {
			m.fill(i)
		}
	}
	m.RunUntil("the first hedge to be withdrawn", func() bool { return m.Consumer.Stats("compute").HedgesMissed == 1 })
	m.W.Faults.ResetAll(m.Consumer.Host, m.Nodes[1+m.primary].Host)
	retry := -1
	m.RunUntil("the retry in a queue", func() bool {
		for i := range m.Apps {
			if _, q := m.Nodes[1+i].Proc.Slots("local"); q == 1 && i != m.primary {
				retry = i
			}
		}
		return retry >= 0
	})
	m.RunUntil("the second hedge in a queue", func() bool { n, _ := m.tied(); return n == 2 })
	m.serve(retry)
	m.RunUntil("the second hedge to be withdrawn", func() bool { _, n := m.tied(); return n == 2 })
	m.release()
	m.Finish(m.call)
	m.OK(m.call)
	m.Settled()
}

// TestTiedCrossing: the response of the primary comes around the time at which its start is asked for. Whatever crosses,
// the call succeeds, and nothing is left behind.
func TestTiedCrossing(t *testing.T) {
	withdrawn := uint64(0)
	for took := 4 * time.Millisecond; took < 7*time.Millisecond; took += 25 * time.Microsecond {
		m := newTiedMesh(t, proxytest.MeshOptions{})
		for _, a := range m.Apps {
			a.Delay = func() time.Duration { return took }
		}
		m.sendToWorker()
		m.block(m.hedge)
		m.Finish(m.call)
		m.OK(m.call)
		m.slots(m.hedge, 1, 0) // no hedge waits any longer
		m.release()
		m.Settled()
		p := m.Nodes[1+m.hedge].Stats("local")
		if withdrawn += p.TiedWithdrawn; p.TiedQueued != p.TiedWithdrawn {
			t.Errorf("%v: %d hedges queued, %d withdrawn", took, p.TiedQueued, p.TiedWithdrawn)
		}
	}
	if withdrawn < 10 {
		t.Errorf("%d hedges were withdrawn, want many", withdrawn)
	}
}

// olderPeer hides from the sidecars that dial provider which that it knows tied hedges, and records what they send.
type olderPeer struct {
	loop.Loop
	which string // address
	sent  *[]byte
}

func (o olderPeer) Dial(addr string, timeout time.Duration, r loop.Receiver) {
	if strings.HasSuffix(addr, ":15006") && addr == o.which {
		r = &olderLink{Receiver: r, sent: o.sent}
	}
	o.Loop.Dial(addr, timeout, r)
}

type olderLink struct {
	loop.Receiver
	sent *[]byte
	at   int // bytes that were read
}

func (l *olderLink) OnOpen(c loop.Conn) { l.Receiver.OnOpen(olderConn{c, l.sent}) }

func (l *olderLink) OnData(b []byte) {
	const features = 16 // where they are in an acceptor's preface
	if i := features - l.at; i >= 0 && i < len(b) {
		b[i] &^= link.FeatureStarts
	}
	l.at += len(b)
	l.Receiver.OnData(b)
}

// olderConn records what is written.
type olderConn struct {
	loop.Conn
	sent *[]byte
}

func (c olderConn) Write(b []byte) {
	*c.sent = append(*c.sent, b...)
	c.Conn.Write(b)
}

func (c olderConn) WriteParts(parts [][]byte) {
	for _, b := range parts {
		*c.sent = append(*c.sent, b...)
	}
	c.Conn.WriteParts(parts)
}

// tiedFrames counts what only a peer that knows tied hedges may get.
type tiedFrames struct {
	link.RequestHandler
	n   int
	req protocol.Request
}

func (f *tiedFrames) OnPreface(uint8, link.Settings)      {}
func (f *tiedFrames) OnStart(uint64)                      { f.n++ }
func (f *tiedFrames) OnWithdraw(uint64)                   { f.n++ }
func (f *tiedFrames) OnCancel(uint64)                     {}
func (f *tiedFrames) NewRequest(uint64) *protocol.Request { return &f.req }
func (f *tiedFrames) OnRequest(_ uint64, req *protocol.Request, _ time.Duration, _ *bytebufferpool.ByteBuffer) {
	if req.Tied {
		f.n++
	}
}

// TestTiedOlderPeers: beside a provider that knows no tied hedges, of the primary or of the hedge, a hedge is refused as before.
// The provider gets no frame that it does not know.
func TestTiedOlderPeers(t *testing.T) {
	roles := 0
	for older := range 2 {
		var sent []byte
		addr := fmt.Sprintf("10.0.1.%d:15006", 1+older)
		m := newTiedMesh(t, proxytest.MeshOptions{Dialler: func(l loop.Loop) loop.Loop { return olderPeer{l, addr, &sent} }})
		m.start0()
		if m.primary == older {
			roles++
		}
		m.RunUntil("the refusal", func() bool { return m.Consumer.Stats("compute").HedgesMissed == 1 })
		m.check(tiedWant{hedges: 1, missed: 1, primary: 1})
		got := &tiedFrames{}
		if err := link.NewAcceptor(link.Settings{}, link.ReaderLimits{}, got).Feed(sent); err != nil || got.n > 0 || len(sent) == 0 {
			t.Errorf("%d frames of tied hedges in %d bytes, error %v", got.n, len(sent), err)
		}
	}
	if roles != 1 {
		t.Error("not each role was that of the older peer")
	}
}
