package link_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestOpaqueServiceRefusesRequests checks that a request from a link is refused at once if
// the service has protocol tcp. With http the service dials its endpoint, which is closed.
func TestOpaqueServiceRefusesRequests(t *testing.T) {
	for _, c := range []struct {
		protocol string
		why      link.Reason
	}{{"tcp", link.NoService}, {"http", link.UpstreamConnect}} {
		t.Run(c.protocol, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{})
			node := m.Node("10.0.1.9", fmt.Sprintf(`
listeners: [{name: ingress, address: "127.0.0.1:15006", protocol: link, service: local}]
services: {local: {discover: static, endpoints: ["127.0.0.1:1"], protocol: %s}}`, c.protocol))
			node.Listen(15006)
			p := m.DialAndSend("10.0.1.9:15006", string(proxytest.LinkFrames(func(w *link.Writer) {
				w.Request(1, proxytest.LinkRequest, time.Minute, nil)
			})))
			m.W.Run(100 * time.Millisecond)
			got := &proxytest.Refusals{Why: map[link.Reason]int{}}
			if err := link.NewDialer(link.Settings{}, link.ReaderLimits{}, got).Feed(p.Heard); err != nil {
				t.Fatal(err)
			}
			if got.Why[c.why] != 1 || len(got.Why) != 1 {
				t.Errorf("refused: %v, want one for %s", got.Why, c.why)
			}
		})
	}
}

// TestLoginInStepsRefused checks that a login which needs one connection for several requests is refused,
// if an older sidecar has let it pass.
func TestLoginInStepsRefused(t *testing.T) {
	for value, refused := range map[string]int{"NTLM TlRM": 1, "Negotiate oYI": 1, "Negotiate YII": 0, "Basic eA==": 0} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
		req := *proxytest.LinkRequest
		req.Headers = append(slices.Clip(req.Headers), protocol.Header{Name: []byte("authorization"), Value: []byte(value)})
		p := &proxytest.Peer{Says: proxytest.LinkFrames(func(w *link.Writer) { w.Request(1, &req, time.Minute, nil) })}
		m.DialIngress(p)
		m.W.Run(100 * time.Millisecond)
		got := outcomeOf(t, p)
		if got.Why[link.ConnectionLogin] != refused || len(got.Why) != refused || m.Apps[0].Served != 1-refused {
			t.Errorf("%s: refused: %v, served %d", value, got.Why, m.Apps[0].Served)
		}
	}
}

// acks are the states of cancelled requests that an acceptor has sent.
type acks struct {
	proxytest.Refusals
	all []link.Dropped
}

func (a *acks) OnCancelAck(_ uint64, what link.Dropped) { a.all = append(a.all, what) }

func acksOf(t *testing.T, p *proxytest.Peer) []link.Dropped {
	t.Helper()
	var a acks
	if err := link.NewDialer(link.Settings{}, link.ReaderLimits{}, &a).Feed(p.Heard); err != nil {
		t.Fatal(err)
	}
	return a.all
}

// TestCancelQueued checks that a link forgets a request which is cancelled while it waits for a slot: a second CANCEL
// finds none.
func TestCancelQueued(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "max_concurrency: 1, max_queue: 4"})
	m.Apps[0].Delay = func() time.Duration { return time.Second }
	w, p := m.DialLink()
	w.Request(1, proxytest.LinkRequest, time.Minute, nil)
	w.Request(3, proxytest.LinkRequest, time.Minute, nil)
	out := w.Append(nil, 1<<20)
	w.Cancel(3)
	w.Cancel(3)
	m.Clients.Do(func() { p.Conn.Write(w.Append(out, 1<<20)) })
	m.W.Run(100 * time.Millisecond)
	if got, want := acksOf(t, p), []link.Dropped{link.CancelDropped, link.CancelDropped}; !slices.Equal(got, want) {
		t.Errorf("the CANCELs are acknowledged by %v, want %v", got, want)
	}
}

// cancelFrame returns the CANCEL of a request. The writer that has begun the request would drop the rest of it.
func cancelFrame(id uint64) []byte {
	w := link.NewWriter()
	w.Preface(link.Dialer, link.Settings{})
	w.Open(1, link.Settings{})
	_ = w.Append(nil, 1<<20) // the greeting
	w.Cancel(id)
	return w.Append(nil, 1<<20)
}

// TestCancelInPart checks that a link drops a request which is cancelled while it arrives, with what follows of it.
func TestCancelInPart(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	w, p := m.DialLink()
	long := *proxytest.LinkRequest
	long.Body = make([]byte, 100<<10)
	w.Request(1, &long, time.Minute, nil)
	m.Clients.Do(func() { p.Conn.Write(w.Append(nil, 50<<10)) })
	m.W.Run(10 * time.Millisecond)
	before := m.Nodes[1].Proc.Held()
	m.Clients.Do(func() { p.Conn.Write(cancelFrame(1)) })
	m.W.Run(10 * time.Millisecond)
	if held := m.Nodes[1].Proc.Held(); before < 50<<10 || held != 0 {
		t.Errorf("%d bytes are held before, %d behind the CANCEL", before, held)
	}
	send(m, p, w) // the rest
	w.Request(3, proxytest.LinkRequest, time.Minute, nil)
	send(m, p, w)
	checkFrames(t, "the peer", p, fmt.Sprintf("cancelled 1 %d", link.CancelDropped), "response 3 200")
	checkDrains(m, "in the end", p)
	m.Settled()
}

// TestCancelUnread checks that a link drops a response that waits for credit, once the peer cancels the request.
func TestCancelUnread(t *testing.T) {
	const size = 1 << 20 // more than the credit
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: "limits: {message: 2MiB}"})
	m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, size) }
	w, p := m.DialLink()
	w.Request(1, proxytest.LinkRequest, time.Minute, nil)
	send(m, p, w)
	m.W.Run(100 * time.Millisecond)
	before := m.Nodes[1].Proc.Held()
	w.Cancel(1)
	send(m, p, w)
	if held := m.Nodes[1].Proc.Held(); before < size || held != 0 {
		t.Errorf("%d bytes are held before, %d behind the CANCEL", before, held)
	}
	m.Apps[0].Body = nil
	w.Request(3, proxytest.LinkRequest, time.Minute, nil)
	send(m, p, w)
	checkFrames(t, "the peer", p, fmt.Sprintf("cancelled 1 %d", link.CancelDropped), "response 3 200")
	checkDrains(m, "in the end", p)
	m.Settled()
}

// TestStreamHeadCounted checks that the head of a response whose body is a stream counts while it waits for credit. The body does not:
// whoever keeps that counts it.
func TestStreamHeadCounted(t *testing.T) {
	const long, part = 40_000, 60_000 // of the head, and of the body so far
	m, _, provider := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1})
	says := []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("x", 200_000), // more than the credit
		"HTTP/1.1 200 OK\r\nx-long: " + strings.Repeat("v", long) + "\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n", part, strings.Repeat("y", part)),
	}
	m.Apps[0].RespondWithFunc(func() (next string) {
		next, says = says[0], says[1:]
		return next
	})
	w := link.NewWriter()
	w.Preface(link.Dialer, link.Settings{Features: link.FeatureStreams})
	w.Open(1, link.Settings{})
	w.Request(1, proxytest.LinkRequest, time.Minute, nil)
	p := &proxytest.Peer{Says: w.Append(nil, 1<<20)}
	m.DialIngress(p)
	m.W.Run(time.Second)
	before := m.Nodes[1].Proc.Held()
	w.Request(2, proxytest.LinkRequest, time.Minute, nil)
	send(m, p, w)
	m.RunUntil("a stream", func() bool { return len(provider.Parked) == 1 })
	m.W.Run(time.Second)
	if held := m.Nodes[1].Proc.Held() - before; held < long || held > 2*long { // a buffer may be longer than a head
		t.Errorf("%d bytes are counted for a head of %d, and %d of a body", held, long, part)
	}
	m.Clients.Do(func() { p.Conn.Close() })
	proxytest.CheckStreamsSettled(m, provider)
}

// TestCancelAtApplication checks what a link says of a cancelled request that the application has: it has finished the
// request only if it has responded. A request that ends early is dropped. A dialer that does not know "closed" gets
// "finished".
func TestCancelAtApplication(t *testing.T) {
	const cancelled = 20 * time.Millisecond
	for name, c := range map[string]struct {
		provider string
		speaks   string
		takes    time.Duration
		reset    bool
		features uint64
		want     link.Dropped
	}{
		"it responds":                       {"cancel: finish", "http", 2 * cancelled, false, link.FeatureCloses, link.CancelFinished},
		"its connection is closed":          {"cancel: close", "http", time.Second, false, link.FeatureCloses, link.CancelClosed},
		"its connection breaks":             {"cancel: finish", "http", time.Second, true, link.FeatureCloses, link.CancelDropped},
		"it is told over HTTP/2":            {"", "http2", time.Second, false, link.FeatureCloses, link.CancelDropped},
		"the deadline passes":               {"cancel: finish", "http", time.Second, false, link.FeatureCloses, link.CancelClosed},
		"closed, and the dialer is older":   {"cancel: close", "http", time.Second, false, 0, link.CancelFinished},
		"told, and the dialer is older":     {"", "http2", time.Second, false, 0, link.CancelDropped},
		"deadline, and the dialer is older": {"cancel: finish", "http", time.Second, false, 0, link.CancelFinished},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Speaks: c.speaks, Provider: c.provider})
			app := m.Apps[0]
			app.Delay = func() time.Duration { return c.takes }
			broken := &proxytest.Peer{}
			if c.reset || c.speaks == "http2" {
				app.Stop()
				m.W.Net.Listen(app.Addr, app.Loop, func() loop.Receiver {
					if c.reset {
						return broken
					}
					return proxytest.NewHTTP2Conn(0, func(*proxytest.HTTP2Conn, *http2.Stream) {})
				})
			}
			w := link.NewWriter()
			w.Preface(link.Dialer, link.Settings{Features: c.features})
			w.Open(1, link.Settings{})
			w.Request(1, proxytest.LinkRequest, 5*cancelled, nil)
			p := &proxytest.Peer{Says: w.Append(nil, 1<<20)}
			m.DialIngress(p)
			m.W.Run(cancelled)
			w.Cancel(1)
			m.Clients.Do(func() { p.Conn.Write(w.Append(nil, 1<<20)) })
			m.W.Run(time.Millisecond)
			if c.reset {
				m.W.Faults.Reset(broken.Conn)
			}
			m.W.Run(10 * cancelled)
			if got, want := acksOf(t, p), []link.Dropped{link.CancelAtApp, c.want}; !slices.Equal(got, want) {
				t.Errorf("acknowledged by %v, want %v", got, want)
			}
			m.Nodes[1].Proc.Drain() // nothing of the request keeps the link open
			if m.W.Run(time.Second); !p.Ended {
				t.Error("the link stays open")
			}
		})
	}
}
