package http_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// silentApp is an application that responds only when it is told to.
type silentApp struct {
	m     *proxytest.Mesh
	conns []*proxytest.Peer
}

func newSilentApp(t *testing.T, cancel string) *silentApp {
	return silentAppIn(t, proxytest.MeshOptions{OneHop: true, Service: "timeout: 10s, cancel: " + cancel})
}

func silentAppIn(t *testing.T, o proxytest.MeshOptions) *silentApp {
	o.Apps = 1
	a := &silentApp{m: proxytest.NewMesh(t, o)}
	a.m.Apps[0].Stop()
	a.m.W.Net.Listen(a.m.Apps[0].Addr, a.m.Apps[0].Loop, func() loop.Receiver {
		p := &proxytest.Peer{}
		a.conns = append(a.conns, p)
		return p
	})
	return a
}

// abandon sends n requests, whose clients leave after the time.
func (a *silentApp) abandon(n int, after time.Duration) {
	clients := a.send(n)
	a.m.W.Run(after)
	for _, c := range clients {
		a.m.W.Faults.Reset(c.Conn)
	}
	a.m.W.Run(time.Millisecond)
}

// send sends the first n requests, and returns their clients once the application has the requests.
func (a *silentApp) send(n int) (clients []*proxytest.Peer) {
	for range n {
		clients = append(clients, a.m.DialAndSend(proxytest.Egress, "GET / HTTP/1.1\r\nHost: compute\r\n\r\n"))
	}
	a.m.RunUntil("the requests", func() bool {
		heard := 0
		for _, c := range a.conns {
			if len(c.Heard) > 0 {
				heard++
			}
		}
		return heard == n
	})
	return clients
}

// working returns the connections with a request that are open.
func (a *silentApp) working() (open []*proxytest.Peer) {
	for _, c := range a.conns {
		if len(c.Heard) > 0 && !c.Ended {
			open = append(open, c)
		}
	}
	return open
}

// respond responds on the connections, and waits until no attempt is pending.
func (a *silentApp) respond(to []*proxytest.Peer) {
	for _, c := range to {
		a.m.Apps[0].Loop.Do(func() { c.Conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) })
	}
	a.m.RunUntil("the attempts to end", func() bool { return a.pending() == 0 })
	a.m.Settled()
}

func (a *silentApp) pending() (n int) { return a.endpoint().Pending }

// endpoint returns the endpoint of the consumer: the application, or the sidecar beside it.
func (a *silentApp) endpoint() (r stats.EndpointReport) {
	a.m.Consumer.Loop.Do(func() { r = a.m.Consumer.Proc.Workers()[0].Report(stats.Counters).Services[0].Endpoints[0] })
	return r
}

// TestUnwantedConnection: an attempt whose connection was closed is pending for about as long as the application would
// have worked on. A new connection waits for the next request.
func TestUnwantedConnection(t *testing.T) {
	a := newSilentApp(t, "close")
	a.abandon(1, 20*time.Millisecond)
	if len(a.working()) > 0 || len(a.conns) != 2 {
		t.Fatalf("%d connections are open with a request, and there were %d, want 0 and 2", len(a.working()), len(a.conns))
	}
	a.m.W.Run(10 * time.Millisecond)
	if n := a.pending(); n != 1 {
		t.Errorf("%d attempts are pending, want 1: the application may work on", n)
	}
	a.m.W.Run(10 * time.Millisecond)
	if n := a.pending(); n != 0 {
		t.Errorf("%d attempts are pending, want none: the application would have responded", n)
	}
	if a.conns[1].Ended {
		t.Error("the new connection has ended")
	}
	a.m.Settled()
}

// TestSilentEndpointKeepsOne: of the attempts at an endpoint that is silent one is left to finish. The others are pending
// until the endpoint has responded to it.
func TestSilentEndpointKeepsOne(t *testing.T) {
	a := newSilentApp(t, "close")
	for range 2 {
		a.abandon(3, time.Second)
		open := a.working()
		if len(open) != 1 {
			t.Fatalf("%d connections are open with a request, want 1", len(open))
		}
		a.m.W.Run(2 * time.Second)
		if n := a.pending(); n != 3 {
			t.Errorf("%d attempts are pending while the endpoint is silent, want 3", n)
		}
		began := a.m.W.Now()
		if a.respond(open); a.m.W.Now()-began > 500*time.Millisecond {
			t.Errorf("they are pending for %v after the endpoint has responded", a.m.W.Now()-began)
		}
		a.m.W.Run(6 * time.Second) // the idle timeout
		a.conns = nil
	}
}

// TestClosedIsNoResponse: the end of an attempt whose connection was closed says nothing about whether the application is
// alive. So the silence of an application goes on, also for the sidecar of its consumers.
func TestClosedIsNoResponse(t *testing.T) {
	const settings = "timeout: 10s, hedge: {mode: off, max_delay: 50ms}"
	for name, o := range map[string]proxytest.MeshOptions{
		"one hop":  {OneHop: true, Service: settings + ", cancel: close"},
		"two hops": {Service: settings, Provider: "cancel: close"},
	} {
		t.Run(name, func(t *testing.T) {
			a := silentAppIn(t, o)
			began := a.m.W.Now()
			clients := a.send(3)
			a.m.W.Run(20 * time.Millisecond)
			a.m.W.Faults.Reset(clients[0].Conn)
			a.m.RunUntil("the attempt to end", func() bool { return a.pending() == 2 })
			if e := a.endpoint(); e.Stats.Outcomes[stats.AttemptClosed] != 1 {
				t.Errorf("attempts by how they ended: %v, want one that was closed", e.Stats.Outcomes)
			}
			a.m.W.Run(began + 55*time.Millisecond - a.m.W.Now())
			if !a.endpoint().Stalled {
				t.Error("an endpoint that has never responded for 55 ms does not count as stalled")
			}
			a.respond(a.working())
		})
	}
}

// TestFinishClosesNothing: with cancel: finish, a request whose client has left goes on.
func TestFinishClosesNothing(t *testing.T) {
	a := newSilentApp(t, "finish")
	a.abandon(3, time.Second)
	open := a.working()
	if len(open) != 3 {
		t.Fatalf("%d connections are open with a request, want 3", len(open))
	}
	a.respond(open)
}

// TestSilentEndpointWithoutAttempt: once the deadline of the attempt has passed that was left to finish, nobody learns any more when the
// endpoint responds. So the others end, too.
func TestSilentEndpointWithoutAttempt(t *testing.T) {
	a := newSilentApp(t, "close")
	a.abandon(3, time.Second)
	a.m.W.Run(20 * time.Second)
	if n, open := a.pending(), len(a.working()); n != 0 || open != 0 {
		t.Errorf("%d attempts are pending after the deadline, %d connections are open", n, open)
	}
	a.m.Settled()
}
