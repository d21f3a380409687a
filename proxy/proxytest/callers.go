package proxytest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/sim"
)

// Callers is the clients of a mesh: it makes calls, sends them, and waits for their ends. It knows
// addresses, and nothing of sidecars and applications.
type Callers struct {
	T       *testing.T
	W       *sim.World
	Clients *sim.Loop // of all clients
	nonces  int
}

// newCallers returns callers in a new world.
func newCallers(t *testing.T, seed uint64) *Callers {
	w := sim.New(seed)
	w.OnFailure(t)
	return &Callers{T: t, W: w, Clients: w.Loop("10.0.0.1-client")}
}

// newCall returns a call with a nonce of its own.
func (cs *Callers) newCall() *Call {
	cs.nonces++
	return &Call{by: cs, Nonce: fmt.Sprintf("n%d", cs.nonces)}
}

// Get returns a GET with a nonce of its own.
func (cs *Callers) Get(path string, headers ...string) *Call {
	c := cs.newCall()
	c.Raw = fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: compute\r\nx-nonce: %s\r\n", path, c.Nonce)
	for _, h := range headers {
		c.Raw = append(c.Raw, h+"\r\n"...)
	}
	c.Raw = append(c.Raw, "\r\n"...)
	return c
}

// Post returns a POST with a body of n bytes and a nonce of its own.
func (cs *Callers) Post(n int, headers ...string) *Call {
	c := cs.newCall()
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /compute HTTP/1.1\r\nHost: compute\r\nx-nonce: %s\r\nContent-Length: %d\r\n", c.Nonce, n)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n")
	b.WriteString(strings.Repeat("x", n))
	c.Raw = b.Bytes()
	return c
}

// Raw returns a call of literal bytes, with the call's nonce in the place of NONCE.
func (cs *Callers) Raw(text string) *Call {
	c := cs.Get("/")
	c.Raw = []byte(strings.ReplaceAll(text, "NONCE", c.Nonce))
	return c
}

// CallGRPC returns a gRPC call with a nonce of its own. The application does not know gRPC: it says
// what its Trailers say.
func (cs *Callers) CallGRPC(headers ...string) *Call {
	return cs.Post(10, append([]string{"content-type: application/grpc+proto"}, headers...)...)
}

// Do sends calls one after another on a connection of their own.
func (cs *Callers) Do(calls ...*Call) *Client {
	c := cs.Dial(Egress)
	c.Calls = calls
	return c
}

// Dial opens a client connection to addr.
func (cs *Callers) Dial(addr string) *Client {
	c := &Client{By: cs}
	cs.Clients.Do(func() { cs.Clients.Dial(addr, time.Second, c) })
	return c
}

// Burst sends n calls with bodies of size bytes at once, each on a connection of
// its own.
func (cs *Callers) Burst(n, size int) (calls []*Call) {
	for range n {
		c := cs.Post(size)
		cs.Do(c)
		calls = append(calls, c)
	}
	return calls
}

// Crowd opens a number of connections that send n calls each, one after another.
func (cs *Callers) Crowd(clients, n, size int) (all []*Call) {
	for range clients {
		var calls []*Call
		for range n {
			calls = append(calls, cs.Post(size))
		}
		cs.Do(calls...)
		all = append(all, calls...)
	}
	return all
}

// SendAtRate sends calls at random times for d, with a rate per second. It does not wait
// for responses.
func (cs *Callers) SendAtRate(seed uint64, rate float64, d time.Duration) (calls []*Call) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	for at, end := cs.W.Now(), cs.W.Now()+d; at < end; {
		c := cs.Post(10)
		calls = append(calls, c)
		cs.W.At(at, func() { cs.Do(c) })
		at += time.Duration(rnd.ExpFloat64() / rate * float64(time.Second))
	}
	return calls
}

// RunUntil runs the world until cond holds, for a minute at most.
func (cs *Callers) RunUntil(what string, cond func() bool) {
	cs.T.Helper()
	if !cs.W.RunUntil(cond, time.Minute) {
		cs.T.Fatalf("a minute has passed without %s", what)
	}
}

// Finish runs the world until all calls are done.
func (cs *Callers) Finish(calls ...*Call) {
	cs.T.Helper()
	all := func() bool { // called after each event, so it checks each call once
		for len(calls) > 0 && calls[0].Done {
			calls = calls[1:]
		}
		return len(calls) == 0
	}
	if !cs.W.RunUntil(all, 2*time.Minute) {
		cs.T.Fatal("a call has no response after two minutes")
	}
}

// FinishAfter runs the world for d, and then until all calls are done.
func (cs *Callers) FinishAfter(d time.Duration, calls []*Call) {
	cs.T.Helper()
	cs.W.Run(d) // checking every call after each event would take long
	cs.Finish(calls...)
}

// Complete makes a call on a connection of its own, and waits for its response. It returns the call.
func (cs *Callers) Complete(c *Call) *Call {
	cs.T.Helper()
	cs.Do(c)
	cs.Finish(c)
	return c
}

// OK waits for the responses of calls, and checks that their status is 200.
func (cs *Callers) OK(calls ...*Call) {
	cs.T.Helper()
	cs.Finish(calls...)
	for _, c := range calls {
		if c.Err != nil || c.Status != 200 {
			cs.T.Errorf("call %s: status %d %s, error %v", c.Nonce, c.Status, c.Code, c.Err)
		}
	}
}

// WarmUp sends n calls one after another, so that latency estimates are valid.
func (cs *Callers) WarmUp(n int) {
	cs.T.Helper()
	var calls []*Call
	for range n {
		calls = append(calls, cs.Post(10))
	}
	cs.Do(calls...)
	cs.OK(calls...)
}

// CheckExecutedOnce checks that no request of calls was executed twice.
func (cs *Callers) CheckExecutedOnce(executed map[string]int, calls ...*Call) {
	cs.T.Helper()
	for _, c := range calls {
		if n := executed[c.Nonce]; n > 1 {
			cs.T.Errorf("call %s, which is not idempotent, was executed %d times", c.Nonce, n)
		}
	}
}

// DialAndSend opens a connection to addr that sends b.
func (cs *Callers) DialAndSend(addr, b string) *Peer {
	p := &Peer{Says: []byte(b)}
	cs.Clients.Do(func() { cs.Clients.Dial(addr, time.Second, p) })
	return p
}

// RunUntilClosed runs the world until p's connection is closed. It returns the bytes that p
// has received.
func (cs *Callers) RunUntilClosed(p *Peer) string {
	cs.T.Helper()
	cs.RunUntil("the end of a connection", func() bool { return p.Ended })
	return string(p.Heard)
}

// CheckClosesAfter runs the world until p's connection is closed, and checks that this
// takes at least the time least and at most slack longer.
func (cs *Callers) CheckClosesAfter(p *Peer, least, slack time.Duration) {
	cs.T.Helper()
	cs.W.RunUntil(func() bool { return p.Conn != nil }, time.Second)
	began := cs.W.Now()
	cs.W.RunUntil(func() bool { return p.Ended }, least+slack+time.Minute)
	if took := cs.W.Now() - began; !p.Ended || took < least || took > least+slack {
		cs.T.Errorf("closed %t after %v, want closed after %v to %v", p.Ended, took, least, least+slack)
	}
}

// DialIngress connects p to the first provider's link listener.
func (cs *Callers) DialIngress(p *Peer) {
	cs.Clients.Do(func() { cs.Clients.Dial(Ingress, time.Second, p) })
}

// DialLink opens a link to the first provider, and returns what writes the frames of its peer.
func (cs *Callers) DialLink() (*link.Writer, *Peer) {
	cs.T.Helper()
	w := link.NewWriter()
	w.Preface(link.Dialer, link.Settings{})
	w.Open(1, link.Settings{})
	p := &Peer{Says: w.Append(nil, 1<<20)}
	cs.DialIngress(p)
	cs.RunUntil("a link", func() bool { return p.Conn != nil })
	return w, p
}
