package http2_test

import (
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// losing is a mesh of two applications whose requests are hedged after 20 ms. The requests of the first application get no response.
type losing struct {
	*proxytest.Mesh
	slow   *app
	got    int                                            // requests of the slow application
	onSlow func(c *proxytest.HTTP2Conn, st *http2.Stream) // of each; nil means nothing
}

func newLosing(t *testing.T, service string) *losing {
	t.Helper()
	m, apps := newMesh(t, 2, "idempotent: true, hedge: {mode: on, delay: 20ms, budget: 1}, lb: {policy: weighted_round_robin}, "+service)
	l := &losing{Mesh: m, slow: apps[0]}
	l.slow.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		if l.got++; l.onSlow != nil {
			l.onSlow(c, st)
		}
	}
	return l
}

// pending returns how many attempts count at the slow application.
func (l *losing) pending() int { return l.Consumer.Report().Services[0].Endpoints[0].Pending }

// TestManyLosersEnd: attempts that lose together all end once the endpoint has read their resets. Their connection is idle then, and
// closes after idle_timeout.
func TestManyLosersEnd(t *testing.T) {
	l := newLosing(t, "timeout: 60s, idle_timeout: 5s")
	l.OK(do(l.Mesh), do(l.Mesh)) // each application has a connection then
	before := l.got
	calls := l.Burst(8, 10)
	l.Finish(calls...)
	l.OK(calls...)
	l.W.Run(100 * time.Millisecond)
	if n := l.got - before; n < 3 {
		t.Fatalf("%d attempts lose, which is too few to test anything", n)
	}
	if n, cancels := l.pending(), l.Consumer.Report().Stats.Cancels; n != 0 || cancels != uint64(l.got) {
		t.Errorf("%d attempts are pending, %d of %d were cancelled", n, cancels, l.got)
	}
	if n := len(l.slow.conns[0].Resets); len(l.slow.conns) != 1 || n != l.got {
		t.Errorf("%d connections, %d resets for %d attempts", len(l.slow.conns), n, l.got)
	}
	l.W.Run(6 * time.Second)
	if n := len(l.slow.open()); n != 0 {
		t.Errorf("%d connections are open after their idle timeout", n)
	}
	l.Settled()
}

// TestLoserUntilDeadline: an attempt that has lost at a frozen endpoint holds no memory, and counts until its deadline.
func TestLoserUntilDeadline(t *testing.T) {
	const size = 30_000
	l := newLosing(t, "timeout: 3s")
	l.onSlow = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		c.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: 2 * size})
		c.H2.Send(st, make([]byte, size))
		l.onSlow = nil
		l.W.At(l.W.Now()+5*time.Millisecond, func() { l.W.Faults.Pause(l.slow.of.Loop, 5*time.Second) })
	}
	var calls []*proxytest.Call
	for len(calls) < 10 && l.got == 0 {
		calls = append(calls, l.Get("/"))
		l.Do(calls[len(calls)-1])
		l.W.Run(10 * time.Millisecond)
	}
	if l.got != 1 {
		t.Fatalf("the slow application got %d of %d requests", l.got, len(calls))
	}
	if n := l.Consumer.Proc.Held(); n < size {
		t.Errorf("%d bytes are held of a response with %d so far", n, size)
	}
	l.Finish(calls...)
	l.OK(calls...)
	l.W.Run(100 * time.Millisecond)
	if n, held := l.pending(), l.Consumer.Proc.Held(); n != 1 || held != 0 {
		t.Errorf("before the deadline %d attempts are pending, %d bytes are held", n, held)
	}
	l.W.Run(3 * time.Second)
	if n := l.pending(); n != 0 {
		t.Errorf("after the deadline %d attempts are pending", n)
	}
	l.Settled()
}

// TestDeadlineResets: the endpoint of a request whose time is up gets a reset.
func TestDeadlineResets(t *testing.T) {
	m, apps := newMesh(t, 1, "timeout: 1s")
	a := apps[0]
	a.onCall = func(*proxytest.HTTP2Conn, *http2.Stream) {}
	call := do(m)
	m.W.Run(10 * time.Millisecond)
	if got := a.conns[0].Resets; call.Code != "deadline" || !slices.Equal(got, []http2.Code{http2.Cancel}) {
		t.Errorf("status %d %s, the endpoint got resets %v", call.Status, call.Code, got)
	}
	m.Settled()
}

// TestLosersResetAtOnce: each attempt that loses is reset at once, also while the endpoint does not say that it has read the resets before.
func TestLosersResetAtOnce(t *testing.T) {
	l := newLosing(t, "timeout: 5s")
	l.slow.stop()
	p := &proxytest.Peer{Says: []byte(settings)}
	l.W.Net.Listen(l.slow.of.Addr, l.slow.of.Loop, func() loop.Receiver { return p })
	for range 12 {
		l.OK(do(l.Mesh))
		l.W.Run(10 * time.Millisecond)
	}
	if len(p.Heard) < len(http2.Preface) {
		t.Fatalf("the endpoint got %q", p.Heard)
	}
	var heads, resets int
	proxytest.EachFrame(p.Heard[len(http2.Preface):], func(f []byte) {
		switch f[3] {
		case proxytest.FrameHeaders:
			heads++
		case frameReset:
			resets++
		}
	})
	if n := l.pending(); heads < 3 || resets != heads || n != heads {
		t.Errorf("the endpoint got %d requests and %d resets, %d are pending", heads, resets, n)
	}
	l.W.Run(5 * time.Second) // until their deadline
	l.Settled()
}
