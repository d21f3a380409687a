package mesh

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/sim"
)

// Sizes of request bodies in bytes, and the longest time after which a caller abandons a
// request.
const (
	smallBody  = 100
	largeBody  = 100_000
	maxAbandon = 20 * time.Millisecond
	samePaths  = 2
)

// callerSuffix gives a consumer's callers a host of their own, so that a fault can take the
// sidecar off the network without them.
const callerSuffix = "-caller"

var body = bytes.Repeat([]byte{'x'}, largeBody)

// caller is the load on one consumer's sidecar: requests at random times that don't wait
// for responses, over as many keep-alive connections as they need.
type caller struct {
	m        *mesh
	consumer int
	batch    bool // of its requests
	loop     *sim.Loop
	rnd      *rand.Rand
	next     loop.Timer
	idle     []*callerConn
	http2    [][]*callerHTTP2 // by loops of the sidecar
}

// addCaller adds the caller of a consumer's online requests, or of its batch requests.
func (m *mesh) addCaller(i int, batch bool) {
	name, purpose := consumerHost(i)+callerSuffix, forArrivals
	if batch {
		name, purpose = name+"/batch", forBatch
	}
	c := &caller{m: m, consumer: i, batch: batch, loop: m.w.Loop(name), rnd: m.random(purpose, i), http2: make([][]*callerHTTP2, m.spec.Loops)}
	c.next.Fire = c.send
	m.callers = append(m.callers, c)
}

// arrive sets the time of the next request. It is called again when the load changes.
func (c *caller) arrive() {
	rate := c.m.spec.Load * c.m.loadBy / float64(c.m.spec.Consumers)
	if c.batch {
		rate = c.m.spec.Batch / float64(c.m.spec.Consumers)
	}
	if c.m.over || rate <= 0 {
		c.loop.Stop(&c.next)
		return
	}
	c.loop.After(time.Duration(c.rnd.ExpFloat64()/rate*float64(time.Second)), &c.next)
}

func (c *caller) send() {
	if c.m.over {
		return
	}
	c.arrive()
	unsafe, size := c.rnd.Float64() < c.m.spec.Unsafe, smallBody
	if c.rnd.Float64() < c.m.spec.Large {
		size = largeBody
	}
	abandonAfter := time.Duration(0)
	if c.rnd.Float64() < c.m.spec.Abandon {
		abandonAfter = 1 + time.Duration(c.rnd.Int64N(int64(maxAbandon)))
	}
	same := 0
	if c.m.spec.Same > 0 && c.rnd.Float64() < c.m.spec.Same {
		same, unsafe, size = 1+c.rnd.IntN(samePaths), false, 0
	}
	nonce := c.m.journal.begin(c.consumer, call{unsafe: unsafe, size: size, batch: c.batch, same: same})
	if c.m.spec.HTTP2Callers {
		c.sendHTTP2(nonce, abandonAfter)
		return
	}
	var k *callerConn
	if n := len(c.idle); n > 0 {
		k, c.idle = c.idle[n-1], c.idle[:n-1]
		k.call(nonce)
	} else {
		k = &callerConn{c: c, nonce: nonce}
		k.leave.Fire = k.giveUp
		c.dial(nonce, k)
	}
	if abandonAfter > 0 {
		c.loop.After(abandonAfter, &k.leave)
	}
}

// dial connects to the loop of the sidecar that gets the request.
func (c *caller) dial(nonce int, r loop.Receiver) {
	c.loop.Dial(fmt.Sprintf("%s:%d", consumerHost(c.consumer), egressPort+nonce%c.m.spec.Loops), 0, r)
}

// noCall is the nonce of a connection without a request.
const noCall = -1

// callerConn is one connection of a caller, for one request at a time.
type callerConn struct {
	c     *caller
	conn  loop.Conn
	nonce int
	in    []byte
	out   []byte
	leave loop.Timer
}

func (k *callerConn) OnOpen(conn loop.Conn) {
	k.conn = conn
	if k.nonce == noCall {
		conn.Close()
		return
	}
	k.call(k.nonce)
}

func (k *callerConn) call(nonce int) {
	k.nonce = nonce
	call := &k.c.m.journal.calls[nonce]
	method, path := k.c.m.journal.target(nonce)
	b := append(append(append(k.out[:0], method...), ' '), path...)
	b = append(b, " HTTP/1.1\r\nhost: compute\r\nx-nonce: "...)
	b = strconv.AppendInt(b, int64(nonce), 10)
	if !call.unsafe {
		b = append(b, "\r\nx-remora-idempotent: 1"...)
	}
	if call.batch {
		b = append(b, "\r\nx-remora-priority: batch"...)
	}
	if call.same == 0 {
		b = append(b, "\r\ncontent-length: "...)
		b = strconv.AppendInt(b, int64(call.size), 10)
	}
	b = append(b, "\r\n\r\n"...)
	b = append(b, body[:call.size]...)
	if call.size <= smallBody {
		k.out = b
	}
	k.conn.Write(b)
}

func (k *callerConn) giveUp() {
	if k.nonce == noCall {
		return
	}
	k.c.m.journal.ended(k.nonce, abandoned, 0)
	k.nonce = noCall
	if k.conn != nil {
		k.conn.Close()
	}
}

func (k *callerConn) OnData(b []byte) {
	journal := &k.c.m.journal
	k.in = append(k.in, b...)
	for len(k.in) > 0 {
		if k.nonce == noCall {
			journal.wrong("consumer %d: a response without a request", k.c.consumer+1)
			k.conn.Close()
			return
		}
		var resp protocol.Response
		var head http1.Head
		n, err := http1.DecodeResponse(k.in, false, &resp, &head, &limits)
		if err == http1.ErrIncomplete || err == nil && len(k.in) < n+int(head.Length) {
			return
		}
		if err != nil {
			journal.wrong("consumer %d: a malformed response: %v", k.c.consumer+1, err)
			k.conn.Close()
			return
		}
		nonce := k.nonce
		k.nonce = noCall
		k.c.loop.Stop(&k.leave)
		k.c.answered(nonce, &resp, k.in[n:n+int(head.Length)])
		k.in = k.in[:copy(k.in, k.in[n+int(head.Length):])]
		if !head.KeepAlive {
			k.conn.Close()
			return
		}
		k.c.idle = append(k.c.idle, k)
	}
}

// answered records the response to a request.
func (c *caller) answered(nonce int, resp *protocol.Response, body []byte) {
	journal := &c.m.journal
	to, err := strconv.Atoi(string(protocol.Find(resp.Headers, "x-nonce")))
	failure := protocol.Find(resp.Headers, "x-remora-error")
	if failure == nil && (err != nil || !journal.mayShare(nonce, to) || string(body) != strconv.Itoa(to)) {
		journal.wrong("request %d got the response to %q: %q", nonce, protocol.Find(resp.Headers, "x-nonce"), body)
	}
	journal.ended(nonce, answered, resp.Status)
}

func (k *callerConn) OnClose(error) {
	k.c.loop.Stop(&k.leave)
	for i, other := range k.c.idle {
		if other == k {
			k.c.idle = append(k.c.idle[:i], k.c.idle[i+1:]...)
			break
		}
	}
	if k.nonce != noCall {
		k.c.m.journal.ended(k.nonce, closed, 0)
		k.nonce = noCall
	}
	k.conn = nil
}
