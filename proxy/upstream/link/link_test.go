package link_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

func TestMain(m *testing.M) { proxytest.Main(m) }

// acceptor accepts links in the place of the only provider's sidecar. The ids of the requests on a link are 1, 2 and so on.
type acceptor struct {
	m        *proxytest.Mesh
	loop     *sim.Loop
	settings link.Settings
	peer     link.Settings // of the other end, as the acceptor understands them
	links    []*accepted
	stop     func()
}

// accepted is the accepting end of one link.
type accepted struct {
	proxytest.Peer
	of *acceptor
	w  *link.Writer
}

func newMesh(t *testing.T, settings link.Settings, service string) (*proxytest.Mesh, *proxytest.Dialler, *acceptor) {
	t.Helper()
	m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, Limits: "timeouts: {drain: 2s, body: 5s}",
		Service: proxytest.Fields("connect_timeout: 1s", service)})
	a := &acceptor{m: m, loop: m.W.Loop("10.0.1.1-raw"), settings: settings}
	m.Nodes[1].Stop[0]()
	a.listen()
	return m, d, a
}

func (a *acceptor) listen() {
	a.stop = a.m.W.Net.Listen(proxytest.Ingress, a.loop, func() loop.Receiver {
		c := &accepted{of: a, w: link.NewWriter()}
		c.w.Preface(link.Acceptor, a.settings)
		c.w.Open(1, a.peer)
		c.Says = c.w.Append(nil, 1<<20)
		a.links = append(a.links, c)
		return c
	})
}

// accept replaces the acceptor of links by peers that say something else.
func (a *acceptor) accept(says string) (peers *[]*proxytest.Peer) {
	a.stop()
	peers = new([]*proxytest.Peer)
	a.stop = a.m.W.Net.Listen(proxytest.Ingress, a.loop, func() loop.Receiver {
		*peers = append(*peers, &proxytest.Peer{Says: []byte(says)})
		return (*peers)[len(*peers)-1]
	})
	return peers
}

// say sends what is written.
func (c *accepted) say(write func(w *link.Writer)) {
	c.of.loop.Do(func() {
		write(c.w)
		c.Conn.Write(c.w.Append(nil, 1<<20))
	})
	c.of.m.W.Run(10 * time.Millisecond)
}

// respond responds to the request with an id.
func (c *accepted) respond(id uint64) {
	c.say(func(w *link.Writer) {
		w.Response(id, &protocol.Response{Status: 200, DeclaredLength: -1}, protocol.CodecHTTP, nil)
	})
}

// send sends n requests whose responses have no nonce, and lets them arrive.
func (a *acceptor) send(n int) (calls []*proxytest.Call, clients []*proxytest.Client) {
	for range n {
		c := a.m.Post(10)
		c.Nonce = ""
		calls, clients = append(calls, c), append(clients, a.m.Do(c))
		a.m.W.Run(10 * time.Millisecond)
	}
	return calls, clients
}

// check checks how calls have ended: by code, "open" if one has not.
func check(t *testing.T, calls []*proxytest.Call, want ...string) {
	t.Helper()
	for i, c := range calls {
		got := c.Code
		if !c.Done {
			got = "open"
		}
		if got != want[i] {
			t.Errorf("call %d: status %d %q, want %q", i+1, c.Status, got, want[i])
		}
	}
}

// TestHandshakeFails: an endpoint that does not speak the protocol of links counts as unreachable, and the log says why.
func TestHandshakeFails(t *testing.T) {
	for _, c := range []struct {
		name, says string
		then       func(p *proxytest.Peer, a *acceptor) // nil means nothing
		log        string
	}{
		{"another protocol", "HTTP/1.1 400 Bad Request\r\n\r\n", nil, "the peer does not speak the link protocol (link_magic)"},
		{"closes", "", func(p *proxytest.Peer, a *acceptor) { a.loop.Do(p.Conn.Close) }, "it may want TLS, or speak another protocol\""},
		{"resets", "", func(p *proxytest.Peer, a *acceptor) { a.m.W.Faults.Reset(p.Conn) }, "it may want TLS, or speak another protocol: "},
		{"silence", "", nil, "the peer did not begin to speak the link protocol within connect_timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, _, a := newMesh(t, link.Settings{}, "timeout: 10s, retry: {on: []}")
			peers := a.accept(c.says)
			calls, _ := a.send(1)
			if c.then != nil {
				c.then((*peers)[0], a)
			}
			m.Finish(calls...)
			check(t, calls, "upstream-connect")
			if took := calls[0].Took; took > 1100*time.Millisecond || len(*peers) != 1 {
				t.Errorf("it took %v, and %d connections", took, len(*peers))
			}
			if text := m.Consumer.LogText.String(); !strings.Contains(text, c.log) {
				t.Errorf("the log has %q", text)
			}
			m.W.Run(10 * time.Millisecond)
			if !(*peers)[0].Ended {
				t.Error("the connection is open")
			}
			a.stop()
			a.listen()
			calls, _ = a.send(1)
			a.links[0].respond(1)
			m.OK(calls...)
			m.W.Run(2 * time.Second)
			if n := strings.Count(m.Consumer.LogText.String(), "level=WARN"); n != 1 {
				t.Errorf("%d warnings: %s", n, m.Consumer.LogText.String())
			}
			m.Settled()
		})
	}
}

// TestUntrusted: an endpoint that is not trusted any more responds to what it has, within timeouts.drain. Later requests take a new link.
func TestUntrusted(t *testing.T) {
	t.Run("idle", func(t *testing.T) {
		m, d, a := newMesh(t, link.Settings{}, "timeout: 10s")
		calls, _ := a.send(1)
		a.links[0].respond(1)
		m.OK(calls...)
		d.Distrust(m.Consumer.Loop, 0)
		m.RunUntil("the close", func() bool { return a.links[0].Ended })
		calls, _ = a.send(1)
		a.links[1].respond(1)
		m.OK(calls...)
		m.W.Run(3 * time.Second)
		if text := m.Consumer.LogText.String(); strings.Contains(text, "timeouts.drain") {
			t.Errorf("the log has %q", text)
		}
		m.Settled()
	})
	t.Run("busy", func(t *testing.T) {
		m, d, a := newMesh(t, link.Settings{}, "timeout: 10s, retry: {on: []}")
		calls, _ := a.send(2)
		d.Distrust(m.Consumer.Loop, 0)
		more, _ := a.send(1)
		a.links[1].respond(1)
		m.OK(more...)
		a.links[0].respond(1)
		check(t, calls, "", "open")
		m.W.Run(3 * time.Second)
		check(t, calls, "", "upstream-reset")
		if !a.links[0].Ended || a.links[1].Ended || len(a.links) != 2 {
			t.Errorf("%d links, the first has ended: %t", len(a.links), a.links[0].Ended)
		}
		m.Settled()
	})
	t.Run("not open yet", func(t *testing.T) {
		m, d, a := newMesh(t, link.Settings{}, "timeout: 10s, retry: {on: []}")
		a.accept("")
		calls, _ := a.send(1)
		d.Distrust(m.Consumer.Loop, 0)
		m.W.Run(10 * time.Millisecond)
		check(t, calls, "upstream-connect")
		m.Settled()
	})
}

// TestGoAway: requests that the peer has not accepted take another link, also if it says so in several steps. It responds to the others,
// and its link closes behind them.
func TestGoAway(t *testing.T) {
	m, _, a := newMesh(t, link.Settings{}, "timeout: 10s")
	calls, _ := a.send(5)
	first := a.links[0]
	first.say(func(w *link.Writer) { w.GoAway(4, link.Draining) })
	first.say(func(w *link.Writer) { w.GoAway(4, link.Draining) })
	links := func() int { return m.Consumer.Report().Services[0].Endpoints[0].Connections }
	if len(a.links) != 2 || links() != 2 {
		t.Fatalf("%d links, and %d are reported", len(a.links), links())
	}
	first.respond(2)
	first.say(func(w *link.Writer) { w.GoAway(3, link.Draining) })
	check(t, calls, "open", "", "open", "open", "open")
	a.links[1].respond(1) // the fifth call, and then the fourth
	check(t, calls, "open", "", "open", "open", "")
	a.links[1].respond(2)
	check(t, calls, "open", "", "open", "", "")
	first.respond(1)
	if first.Ended {
		t.Error("the link closes before its last response")
	}
	first.respond(3)
	m.OK(calls...)
	m.RunUntil("the close", func() bool { return first.Ended })
	if a.links[1].Ended || len(a.links) != 2 || links() != 1 {
		t.Errorf("%d links, and %d are reported", len(a.links), links())
	}
	m.Settled()
}

// TestGoAwayAtOnce: a peer that accepts no request counts as unreachable.
func TestGoAwayAtOnce(t *testing.T) {
	m, _, a := newMesh(t, link.Settings{}, "timeout: 10s, retry: {on: []}")
	calls, _ := a.send(1)
	a.links[0].say(func(w *link.Writer) { w.GoAway(0, link.Draining) })
	for i := 1; i < len(a.links) && i < 10; i++ {
		a.links[i].say(func(w *link.Writer) { w.GoAway(0, link.Draining) })
	}
	m.Finish(calls...)
	check(t, calls, "upstream-connect")
	m.Settled()
}

// TestRetired: the link to an endpoint that has left the service closes behind its last response, and at once without a request.
func TestRetired(t *testing.T) {
	for _, busy := range []bool{true, false} {
		m, _, a := newMesh(t, link.Settings{}, "timeout: 10s")
		calls, _ := a.send(1)
		if !busy {
			a.links[0].respond(1)
		}
		m.Consumer.Update("compute")
		m.W.Run(10 * time.Millisecond)
		if a.links[0].Ended == busy {
			t.Errorf("busy %t: the link has ended: %t", busy, a.links[0].Ended)
		}
		if busy {
			a.links[0].respond(1)
		}
		m.OK(calls...)
		m.RunUntil("the close", func() bool { return a.links[0].Ended })
		m.Settled()
	}
	m, _, a := newMesh(t, link.Settings{}, "timeout: 100ms")
	peers := a.accept("")
	calls, _ := a.send(1)
	m.Finish(calls...)
	m.Consumer.Update("compute")
	w := link.NewWriter()
	w.Preface(link.Acceptor, link.Settings{})
	w.Open(1, link.Settings{})
	a.loop.Do(func() { (*peers)[0].Conn.Write(w.Append(nil, 1<<20)) })
	if m.W.Run(10 * time.Millisecond); !(*peers)[0].Ended {
		t.Error("a link is open that was not when its endpoint left")
	}
	m.Settled()
}

// TestRetriedOnceRetired: a request whose service has left with a reload is sent again over another link than the one that closes.
func TestRetriedOnceRetired(t *testing.T) {
	m, _, a := newMesh(t, link.Settings{}, "timeout: 10s, retry: {on: [reset], per_try_timeout: 1s}")
	call := m.Get("/")
	call.Nonce = ""
	m.Do(call)
	m.W.Run(10 * time.Millisecond)
	m.Consumer.Reload(proxytest.ReloadYAML(m, "{service: other}", "other: {%s}"))
	m.RunUntil("another link", func() bool { return len(a.links) == 2 })
	m.W.Run(10 * time.Millisecond)
	a.links[1].respond(1)
	m.OK(call)
	a.links[0].respond(1)
	m.RunUntil("the close of both", func() bool { return a.links[0].Ended && a.links[1].Ended })
	m.Settled()
}

// TestSilentPeer: requests take another link once a request has reached its deadline at a peer that was silent, also while others wait
// for that peer.
func TestSilentPeer(t *testing.T) {
	m, _, a := newMesh(t, link.Settings{}, "timeout: 3s")
	calls, _ := a.send(1)
	a.links[0].respond(1)
	m.OK(calls...)
	m.W.Faults.PauseReading(a.links[0].Conn, true)
	calls, _ = a.send(1)
	m.W.Run(time.Second)
	late, _ := a.send(1)
	m.Finish(calls...)
	check(t, append(calls, late...), "deadline", "open")
	calls, _ = a.send(1)
	if len(a.links) != 2 {
		t.Fatalf("%d links", len(a.links))
	}
	a.links[1].respond(1)
	m.OK(calls...)
	m.Finish(late...)
	check(t, late, "deadline")
	m.W.Faults.PauseReading(a.links[0].Conn, false)
	m.W.Run(time.Second)
	if !a.links[0].Ended || a.links[1].Ended {
		t.Errorf("the silent link has ended: %t, the other: %t", a.links[0].Ended, a.links[1].Ended)
	}
	m.Settled()
}

// TestCancelAcks: what the peer says of a cancelled request ends it, or not.
func TestCancelAcks(t *testing.T) {
	for _, c := range []struct {
		acks  []link.Dropped
		ends  bool
		saved uint64
		as    stats.AttemptOutcome
	}{
		{[]link.Dropped{link.CancelDropped}, true, 1, stats.AttemptNone},
		{[]link.Dropped{link.CancelFinished}, true, 0, stats.AttemptUnseen},
		{[]link.Dropped{link.CancelClosed}, true, 0, stats.AttemptClosed},
		{[]link.Dropped{link.CancelAtApp}, false, 0, stats.AttemptUnseen},
		{[]link.Dropped{link.CancelAtApp, link.CancelDropped}, true, 0, stats.AttemptNone},
		{nil, false, 0, stats.AttemptUnseen},
	} {
		m, _, a := newMesh(t, link.Settings{}, "timeout: 10s")
		_, clients := a.send(2)
		clients[0].Leave()
		m.W.Run(10 * time.Millisecond)
		for _, ack := range c.acks {
			a.links[0].say(func(w *link.Writer) { w.CancelAck(1, ack) })
		}
		stats := m.Consumer.Report().Stats
		left := m.Consumer.Report().Services[0].Endpoints[0].Pending
		if stats.Cancels != 1 || stats.CancelsSaved != c.saved || (left == 1) != c.ends {
			t.Errorf("%v: %d cancels, %d saved, %d pending", c.acks, stats.Cancels, stats.CancelsSaved, left)
		}
		a.links[0].respond(2)
		if !c.ends {
			a.links[0].respond(1) // crosses the CANCEL
		}
		to := &m.Consumer.Report().Services[0].Endpoints[0]
		if to.Pending != 0 || to.Stats.Outcomes[c.as] != 1 || to.Stats.Ended() != 2 || to.Stats.BytesOut == 0 {
			t.Errorf("%v: %d are pending in the end, outcomes %v, %d bytes", c.acks, to.Pending, to.Stats.Outcomes, to.Stats.BytesOut)
		}
		m.Settled()
	}
}

// TestUnaskedAck: a request that was not cancelled fails if the peer says that it was.
func TestUnaskedAck(t *testing.T) {
	m, _, a := newMesh(t, link.Settings{}, "timeout: 10s, retry: {on: []}")
	calls, _ := a.send(2)
	a.links[0].say(func(w *link.Writer) { w.CancelAck(1, link.CancelDropped); w.CancelAck(7, link.CancelDropped) })
	check(t, calls, "upstream-malformed", "open")
	a.links[0].respond(2)
	check(t, calls, "upstream-malformed", "")
	m.Settled()
}

// TestRejected: responses that can't be taken fail, and the link goes on.
func TestRejected(t *testing.T) {
	m, _, a := newMesh(t, link.Settings{}, "timeout: 10s, retry: {on: []}")
	a.peer.Features = link.FeatureStreams // the dialling end does not have it
	calls, _ := a.send(4)
	token := link.Token{1}
	a.links[0].say(func(w *link.Writer) {
		w.Response(4, &protocol.Response{Status: 200, DeclaredLength: -1, StreamToken: token[:]}, protocol.CodecHTTP, nil)
	})
	a.links[0].say(func(w *link.Writer) { w.Refused(1, link.Overload) })
	a.links[0].say(func(w *link.Writer) {
		w.Response(2, &protocol.Response{Status: 200, DeclaredLength: -1, Body: make([]byte, proxytest.MaxMessage+1)}, protocol.CodecHTTP, nil)
	})
	m.W.Run(100 * time.Millisecond)
	check(t, calls, "overloaded", "response-too-large", "open", "upstream-malformed")
	a.links[0].say(func(w *link.Writer) { w.CancelAck(2, link.CancelDropped) })
	a.links[0].respond(3)
	check(t, calls, "overloaded", "response-too-large", "", "upstream-malformed")
	if n := m.Consumer.Report().Stats.Cancels; n != 2 {
		t.Errorf("%d requests were cancelled, want those whose responses were not taken", n)
	}
	if a.links[0].Ended {
		t.Error("the link is closed")
	}
	m.Settled()
}

// TestSlowResponse: a response that stops arriving fails once timeouts.body has passed, and the link goes on.
func TestSlowResponse(t *testing.T) {
	m, _, a := newMesh(t, link.Settings{}, "timeout: 5m, retry: {on: []}")
	calls, _ := a.send(2)
	a.loop.Do(func() {
		w := a.links[0].w
		w.Response(1, &protocol.Response{Status: 200, DeclaredLength: -1, Body: make([]byte, 4*shard.LeastShed)}, protocol.CodecHTTP, nil)
		a.links[0].Conn.Write(w.Append(nil, 2*shard.LeastShed))
	})
	m.FinishAfter(8*time.Second, calls[:1])
	check(t, calls, "deadline", "open")
	a.links[0].respond(2)
	check(t, calls, "deadline", "")
	m.Settled()
}

// TestBestOfTwo: the client gets the better one of two bad responses that came over one link.
func TestBestOfTwo(t *testing.T) {
	m, _, a := newMesh(t, link.Settings{}, "timeout: 10s, idempotent: true, retry: {on: [503], attempts: 1}")
	calls, _ := a.send(1)
	for id, status := range []int{503, 500} {
		a.links[0].say(func(w *link.Writer) {
			w.Response(uint64(id+1), &protocol.Response{Status: status, DeclaredLength: -1, Body: fmt.Appendf(nil, "says %d", status)}, protocol.CodecHTTP, nil)
		})
	}
	if m.Finish(calls...); calls[0].Status != 500 || string(calls[0].Body) != "says 500" {
		t.Errorf("status %d, %q", calls[0].Status, calls[0].Body)
	}
	m.Settled()
}

// TestUnsentOnDrainingLink: a link that drains closes once the client of its last request leaves, if nothing of the request was sent.
func TestUnsentOnDrainingLink(t *testing.T) {
	m, _, a := newMesh(t, link.Settings{}, "timeout: 10s, retry: {on: []}")
	calls, _ := a.send(1)
	a.links[0].respond(1)
	m.OK(calls...)
	m.W.Faults.PauseReading(a.links[0].Conn, true)
	var clients []*proxytest.Client
	for range 100 { // more than the link takes
		c := m.Get("/", "X: "+strings.Repeat("x", 20<<10))
		c.Nonce = ""
		clients = append(clients, m.Do(c))
	}
	m.W.Run(100 * time.Millisecond)
	m.Consumer.Update("compute")
	a.links[0].say(func(w *link.Writer) {
		for id := range uint64(99) {
			w.Response(id+2, &protocol.Response{Status: 200, DeclaredLength: -1}, protocol.CodecHTTP, nil)
		}
	})
	for _, c := range clients { // one of them without a response
		c.Leave()
	}
	m.W.Run(10 * time.Millisecond)
	m.W.Faults.PauseReading(a.links[0].Conn, false)
	m.W.Run(100 * time.Millisecond)
	if !a.links[0].Ended {
		t.Error("the link is open")
	}
	m.Settled()
}

// TestLostLink: requests on a lost link fail, those of which nothing was sent as ones without a connection.
func TestLostLink(t *testing.T) {
	m, d, a := newMesh(t, link.Settings{}, "timeout: 10s, retry: {on: []}")
	first, _ := a.send(1)
	m.W.Faults.PauseReading(a.links[0].Conn, true)
	var calls []*proxytest.Call
	for range 100 { // more than the link takes
		c := m.Get("/", "X: "+strings.Repeat("x", 20<<10))
		m.Do(c)
		calls = append(calls, c)
	}
	m.W.Run(100 * time.Millisecond)
	m.W.Faults.Reset(a.links[0].Conn)
	m.Finish(append(calls, first...)...)
	check(t, first, "upstream-reset")
	if n := proxytest.CountCodes(calls); n["upstream-reset"] == 0 || n["upstream-connect"] == 0 || n["upstream-reset"]+n["upstream-connect"] != len(calls) {
		t.Errorf("responses %v", n)
	}
	if n := d.Receivers[0].(interface{ InFlight() int }).InFlight(); n != 0 {
		t.Errorf("%d requests are in flight on the link", n)
	}
	m.Settled()
}

// TestShedLargest: a link drops the largest of its incomplete responses, unless all are small. Their memory is free at once.
func TestShedLargest(t *testing.T) {
	m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, Service: "timeout: 10s, retry: {on: []}"})
	a := m.LinkResponder()
	calls := m.Burst(2, 10)
	m.W.Run(10 * time.Millisecond)
	a.QueueResponses(2)
	a.Send(3 * shard.LeastShed)
	holder := d.Receivers[0].(shard.Holder)
	for i, want := range []bool{true, true, false} {
		dropped, before, after := false, int64(0), int64(0)
		m.Consumer.Loop.Do(func() {
			before = m.Consumer.Proc.Held()
			dropped = holder.ShedLargest()
			after = m.Consumer.Proc.Held()
		})
		m.W.Run(10 * time.Millisecond)
		if n := proxytest.CountCodes(calls)["shed"]; dropped != want || n != min(i+1, 2) || (before-after > shard.LeastShed) != want {
			t.Errorf("step %d: dropped %t, %d calls were shed, %d bytes are held of %d", i, dropped, n, after, before)
		}
	}
	if a.Ended {
		t.Error("the link is closed")
	}
	more := m.Post(10)
	m.Do(more)
	m.W.Run(10 * time.Millisecond)
	m.Consumer.Loop.Do(holder.CloseNow)
	m.Finish(more)
	if more.Code != "upstream-reset" {
		t.Errorf("status %d %s after the close", more.Status, more.Code)
	}
	m.Settled()
}

// TestShedUnasked: a link also drops the part of a response to a request of which the peer then says that it has not accepted it.
func TestShedUnasked(t *testing.T) {
	m, d, a := newMesh(t, link.Settings{}, "timeout: 10s")
	calls, _ := a.send(2)
	first := a.links[0]
	a.loop.Do(func() {
		first.w.Response(2, &protocol.Response{Status: 200, DeclaredLength: -1, Body: make([]byte, 4*shard.LeastShed)}, protocol.CodecHTTP, nil)
		first.Conn.Write(first.w.Append(nil, 2*shard.LeastShed))
	})
	first.say(func(w *link.Writer) { w.GoAway(1, link.Draining) })
	m.Consumer.Loop.Do(func() {
		before := m.Consumer.Proc.Held()
		dropped := d.Receivers[0].(shard.Holder).ShedLargest()
		if after := m.Consumer.Proc.Held(); !dropped || before-after < shard.LeastShed {
			t.Errorf("dropped %t, %d bytes are held of %d", dropped, after, before)
		}
	})
	first.respond(1)
	a.links[1].respond(1)
	m.OK(calls...)
	m.Settled()
}

// TestBatches: of the requests of one turn, the first leaves at once on a link without output, and the others leave together. So do the CANCELs
// of requests that are left in one turn.
func TestBatches(t *testing.T) {
	m, _, a := newMesh(t, link.Settings{}, "timeout: 10s, retry: {on: []}")
	m.W.Options.Cut = 0
	calls, clients := a.send(3)
	for id := range uint64(3) {
		a.links[0].respond(id + 1)
	}
	m.OK(calls...)
	writes := func(do func()) uint64 {
		before := m.Consumer.Report().Stats.LinkFlushes
		m.W.Faults.Pause(m.Consumer.Loop, 50*time.Millisecond)
		do()
		m.W.Run(100 * time.Millisecond)
		return m.Consumer.Report().Stats.LinkFlushes - before
	}
	again := func() {
		for _, c := range clients {
			c.Calls = append(c.Calls, m.Post(10))
			c.Send()
		}
	}
	if n := writes(func() { m.Clients.Do(again) }); n != 2 {
		t.Errorf("%d writes of three requests", n)
	}
	if n := writes(func() { clients[0].Leave(); clients[1].Leave() }); n != 1 {
		t.Errorf("%d writes of two CANCELs", n)
	}
	if n := writes(func() { clients[2].Leave() }); n != 1 {
		t.Errorf("%d writes of a CANCEL", n)
	}
	for id := range uint64(3) {
		a.links[0].respond(id + 4)
	}
	m.Settled()
}

// TestStreamLimit: a peer gets at most as many requests at a time as it allows. The others fail, and the peer is not blamed.
func TestStreamLimit(t *testing.T) {
	m, _, a := newMesh(t, link.Settings{MaxStreams: 2}, "timeout: 10s, retry: {on: []}")
	first, _ := a.send(1) // before the preface of the peer
	more, _ := a.send(2)
	check(t, append(first, more...), "open", "open", "connection-full")
	a.links[0].respond(1)
	last, _ := a.send(1)
	check(t, last, "open")
	a.links[0].respond(2)
	a.links[0].respond(3)
	m.OK(append(first, more[0], last[0])...)
	m.Settled()
}

// TestInterim: the client gets interim responses of the peer. One to a request that is over is ignored.
func TestInterim(t *testing.T) {
	m, _, a := newMesh(t, link.Settings{}, "timeout: 10s")
	client := m.DialAndSend(proxytest.Egress, "GET / HTTP/1.1\r\nHost: compute\r\n\r\n")
	m.RunUntil("the request", func() bool { return len(a.links) == 1 && len(a.links[0].Heard) > 0 })
	hint := func(id uint64) {
		a.links[0].say(func(w *link.Writer) {
			w.Interim(id, &protocol.Response{Status: 103, DeclaredLength: -1, Headers: []protocol.Header{{Name: []byte("link"), Value: []byte("</a>")}}})
		})
	}
	hint(1)
	a.links[0].respond(1)
	hint(1)
	hint(2)
	if text := string(client.Heard); !strings.HasPrefix(text, "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n") || strings.Count(text, "HTTP/1.1") != 2 {
		t.Errorf("the client got %q", text)
	}
	if a.links[0].Ended {
		t.Error("the link is closed")
	}
	m.Settled()
}

// TestStreamOfToken: a response with a token is a stream, whose body is fetched from the peer. To a HEAD it is malformed.
func TestStreamOfToken(t *testing.T) {
	for _, c := range []struct {
		method, mime string
		streams      int
		interactive  bool
	}{{"GET", "text/plain", 1, false}, {"GET", "application/grpc", 1, true}, {"HEAD", "text/plain", 0, false}} {
		m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Service: "timeout: 7s, retry: {on: []}"})
		token := link.Token{1, 2, 3}
		m.RespondOverLink(&protocol.Response{Status: 200, DeclaredLength: -1, StreamToken: token[:],
			Headers: []protocol.Header{{Name: protocol.NameContentType, Value: []byte(c.mime)}}})
		client := m.DialAndSend(proxytest.Egress, c.method+" /s HTTP/1.1\r\nHost: compute\r\n\r\n")
		m.W.Run(time.Second)
		if len(consumer.Responses) != c.streams || strings.Contains(string(client.Heard), "upstream-malformed") != (c.streams == 0) {
			t.Errorf("%s: %d streams, and the client got %q", c.method, len(consumer.Responses), client.Heard)
		}
		for _, r := range consumer.Responses {
			if src := r.Source; src.Token != token || src.Addr != proxytest.Ingress || src.Service != "compute" || src.Timeout != 7*time.Second ||
				src.Interactive != c.interactive || src.Socket != nil {
				t.Errorf("%s: the body comes from %+v", c.mime, src)
			}
		}
		m.W.Faults.Reset(client.Conn)
		proxytest.CheckStreamsSettled(m, consumer)
	}
}

// TestClosedWhileDialled: a link that is closed for its memory before it has opened takes its requests with it, and its connection
// closes as it opens.
func TestClosedWhileDialled(t *testing.T) {
	m, d, a := newMesh(t, link.Settings{}, "timeout: 10s, retry: {on: []}")
	m.W.Net.SetPaths(func(from, to string) sim.Path { return sim.Path{Latency: 300 * time.Millisecond} })
	var calls []*proxytest.Call
	for range 20 {
		c := m.Get("/", "X: "+strings.Repeat("x", 20<<10))
		m.Do(c)
		calls = append(calls, c)
	}
	m.RunUntil("a dial", func() bool { return d.Dials == 1 && m.Consumer.Proc.Pending() == len(calls) })
	if n := m.Consumer.Proc.Buffered(); n < 400<<10 {
		t.Errorf("%d bytes are counted of requests with more", n)
	}
	m.Consumer.Loop.Do(d.Receivers[0].(shard.Holder).CloseNow)
	m.Finish(calls...)
	if n := proxytest.CountCodes(calls); n["upstream-connect"] != len(calls) {
		t.Errorf("responses %v", n)
	}
	m.W.Net.SetPaths(sim.DefaultPaths)
	m.W.Run(5 * time.Second)
	for _, l := range a.links {
		if !l.Ended {
			t.Error("the connection is open")
		}
	}
	more, _ := a.send(1)
	a.links[len(a.links)-1].respond(1)
	m.OK(more...)
	m.Settled()
}

// TestProbes: requests that are rare ask each peer for its load, one probe at a time. One that was not answered for a tenth of a second
// is lost, and another may follow.
func TestProbes(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: "probe: on, timeout: 10s"})
	call := func(n int) {
		for range n {
			m.Do(m.Post(10))
		}
		m.W.Run(2 * time.Millisecond)
	}
	for range 4 { // has links to all
		m.W.Run(2 * time.Second)
		call(1)
	}
	counts := func() (sent, answers, waits uint64) {
		p := &m.Consumer.Stats("compute").Probes
		return p.Sent, p.Answers, p.Waits
	}
	pause := func(d time.Duration) {
		for _, n := range m.Nodes[1:] {
			m.W.Faults.Pause(n.Loop, d)
		}
	}
	for _, c := range []struct {
		name                 string
		do                   func()
		sent, answers, waits uint64
	}{
		{"a request", func() { call(1) }, 3, 3, 1},
		{"requests at once", func() { pause(50 * time.Millisecond); call(4); m.W.Run(time.Second) }, 3, 3, 4},
		{"a lost probe", func() {
			pause(200 * time.Millisecond)
			call(1)
			m.W.Run(90 * time.Millisecond)
			call(1)
			m.W.Run(20 * time.Millisecond)
			call(1)
			m.W.Run(time.Second)
		}, 6, 3, 0},
	} {
		m.W.Run(2 * time.Second)
		sent, answers, waits := counts()
		c.do()
		m.Settled()
		s, n, w := counts()
		if s, w = s-sent, w-waits; s != c.sent || n-answers < c.answers || w != c.waits {
			t.Errorf("%s: %d probes, %d answers, %d requests waited; want %d, %d, %d", c.name, s, n-answers, w, c.sent, c.answers, c.waits)
		}
	}
}

// TestUnreachable: requests fail at once if the endpoint refuses connections, or if the driver refuses the dial.
func TestUnreachable(t *testing.T) {
	for _, c := range []struct {
		prepare func(d *proxytest.Dialler, a *acceptor)
		code    string
		log     string
	}{
		{func(_ *proxytest.Dialler, a *acceptor) { a.stop() }, "upstream-connect", `error="connection refused"`},
		{func(d *proxytest.Dialler, _ *acceptor) { d.MaxDials, d.Dialling = 1, 1 }, "too-many-dials", "code=too-many-dials"},
	} {
		m, d, a := newMesh(t, link.Settings{}, "timeout: 10s, retry: {on: []}")
		c.prepare(d, a)
		calls, _ := a.send(2)
		check(t, calls, c.code, c.code)
		if text := m.Consumer.LogText.String(); !strings.Contains(text, c.log) {
			t.Errorf("the log has %q", text)
		}
		d.Dialling = 0
		a.stop()
		a.listen()
		calls, _ = a.send(1)
		a.links[0].respond(1)
		m.OK(calls...)
		m.Settled()
	}
}

// TestUnasked: what the peer says of requests that are over, or that nobody has sent, is ignored.
func TestUnasked(t *testing.T) {
	m, _, a := newMesh(t, link.Settings{}, "timeout: 10s")
	calls, _ := a.send(1)
	a.links[0].respond(1)
	m.OK(calls...)
	for _, id := range []uint64{1, 7} {
		a.links[0].respond(id)
		a.links[0].say(func(w *link.Writer) {
			w.Response(id, &protocol.Response{Status: 200, DeclaredLength: -1, Body: make([]byte, proxytest.MaxMessage+1)}, protocol.CodecHTTP, nil)
		})
		a.links[0].say(func(w *link.Writer) { w.Refused(id, link.Overload); w.CancelAck(id, link.CancelFinished) })
		a.links[0].say(func(w *link.Writer) { w.Answer(link.Load{}) })
	}
	if n := m.Consumer.Stats("compute").Probes.Answers; n != 0 {
		t.Errorf("%d answers count, and nothing was asked", n)
	}
	m.W.Run(100 * time.Millisecond)
	calls, _ = a.send(1)
	a.links[0].respond(2)
	m.OK(calls...)
	if len(a.links) != 1 || a.links[0].Ended {
		t.Errorf("%d links, the first has ended: %t", len(a.links), a.links[0].Ended)
	}
	m.Settled()
}

// TestIdle: a link that carries nothing closes, which is no fault. The next request takes a new link.
func TestIdle(t *testing.T) {
	m, _, a := newMesh(t, link.Settings{}, "timeout: 10s, retry: {on: []}")
	for n := range 2 {
		calls, _ := a.send(1)
		if len(a.links) != n+1 {
			t.Fatalf("%d links", len(a.links))
		}
		a.links[n].respond(1)
		m.OK(calls...)
		for range 20 { // the peer answers pings, so that the link is not lost
			m.W.Run(5 * time.Second)
			if !a.links[n].Ended {
				a.links[n].say(func(w *link.Writer) { w.Pong(0) })
			}
		}
		if !a.links[n].Ended || m.Consumer.Report().Services[0].Endpoints[0].Connections != 0 {
			t.Errorf("link %d is open", n+1)
		}
	}
	if text := m.Consumer.LogText.String(); strings.Contains(text, "level=WARN") {
		t.Errorf("the log has %q", text)
	}
	m.Settled()
}
