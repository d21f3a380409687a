package http2_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/shard"
)

const littleMemory = "limits: {buffered: 1MiB, message: 256KiB}"

// TestOverMemoryShare: when memory is short, large requests on a connection over its share are
// refused. Small ones pass, with and without a body, and those of other connections.
func TestOverMemoryShare(t *testing.T) {
	const big = 140_000
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: littleMemory})
	m.Apps[0].Delay = func() time.Duration { return 10 * time.Second }
	c, other := dial(m, 0), dial(m, 0)
	var large []*reply
	for len(large) == 0 || !large[len(large)-1].done {
		large = append(large, c.send(request("POST", "/", big)))
		m.W.Run(10 * time.Millisecond)
	}
	if last := large[len(large)-1]; last.Status != 503 || code(last) != "overloaded" {
		t.Errorf("request %d: %d %s", len(large), last.Status, code(last))
	}
	for i, a := range []*reply{c.send(request("POST", "/", 1000)), c.send(request("GET", "/", 0)), other.send(request("POST", "/", big))} {
		if c.await(a); a.Status != 200 {
			t.Errorf("request %d beside the large ones: %d %s", i, a.Status, code(a))
		}
	}
	c.await(large...)
	for _, a := range large[:len(large)-1] {
		if a.Status != 200 {
			t.Errorf("a request within the share: %d %s", a.Status, code(a))
		}
	}
	m.Settled()
}

// TestQuietWithoutMemory: a request that pauses becomes no stream while memory is short, since that
// would be refused.
func TestQuietWithoutMemory(t *testing.T) {
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1})
	c := dial(m, 0)
	m.Consumer.Proc.Charge(1 << 30)
	pauses, stops := c.begin(request("POST", "/", 0)), c.begin(request("POST", "/", 0))
	m.W.Run(time.Second)
	c.do(func() {
		c.codec.Send(pauses.stream, []byte("the rest"))
		c.codec.Finish(pauses.stream, nil)
	})
	if c.await(pauses); pauses.Status != 200 || stops.done || len(streams.Requests) != 0 {
		t.Errorf("status %d %s after a pause, the other is over: %t, %d streams", pauses.Status, code(pauses), stops.done, len(streams.Requests))
	}
	m.Consumer.Proc.Charge(-1 << 30)
	m.RunUntil("a stream", func() bool { return len(streams.Requests) == 1 })
	proxytest.CheckStreamsSettled(m, streams)
}

// TestShedLargest: when memory is full, the connection with the most gives up its largest responses,
// and goes on. Others lose nothing.
func TestShedLargest(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: littleMemory})
	m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, 100<<10) }
	c, other := dial(m, 1000), dial(m, 0)
	c.deaf = true
	var unread []*reply
	for range 40 {
		unread = append(unread, c.send(request("GET", "/", 0)))
	}
	for range 40 {
		a := other.send(request("GET", "/", 0))
		if c.await(a); a.Status != 200 || len(a.body) != 100<<10 {
			t.Fatalf("a response that is read: status %d %s, %d bytes", a.Status, code(a), len(a.body))
		}
	}
	shed := 0
	for _, a := range unread {
		if a.reset && a.code == http2.EnhanceYourCalm || code(a) == "shed" {
			shed++
		}
	}
	if shed < 40-2<<20/(100<<10) || shed > 30 || c.ended {
		t.Errorf("%d of 40 responses were given up, the connection ended: %t", shed, c.ended)
	}
	m.Settled()
	if n := m.Consumer.WriteTimeouts(); n != uint64(40-shed) {
		t.Errorf("%d responses have timed out, and %d were given up before", n, shed)
	}
}

// TestLeastShed: a response that its client does not read is dropped when memory is full if it holds shard.LeastShed bytes. If it holds less, the
// connection closes.
func TestLeastShed(t *testing.T) {
	const (
		full      = 1 << 40
		callBytes = 2 << 10 // of calls.go
	)
	// The many short lines hold far more memory than they have bytes. So pad is short, and a byte more in it is one more that is held: a
	// long head would take its memory in steps.
	respond := func(pad, charged int) *turns {
		s := newTurns(t)
		s.Conn.Deliver(proxytest.Frame(proxytest.FrameSettings, 0, "\x00\x04\x00\x00\x00\x00")) // no window for bodies
		s.begin(get, proxytest.FlagEnd)
		s.Proc.Charge(charged)
		s.Respond("HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", pad) + "\r\n" + strings.Repeat("b: c\r\n", 450) +
			"Content-Length: 30000\r\n\r\n" + strings.Repeat("y", 30_000))
		return s
	}
	pad := 1 + shard.LeastShed - int(respond(1, 0).Proc.Held()-callBytes)
	for _, less := range []int{0, 1} {
		if held := int(respond(pad-less, 0).Proc.Held() - callBytes); held != shard.LeastShed-less {
			t.Fatalf("the response holds %d bytes", held)
		}
		s, reset := respond(pad-less, full), false
		s.Mesh.Net.Pump()
		proxytest.EachFrame(s.Conn.Out, func(f []byte) {
			reset = reset || f[3] == proxytest.FrameReset && http2.Code(f[12]) == http2.EnhanceYourCalm
		})
		if s.Conn.Closed != (less > 0) || reset == s.Conn.Closed || s.Proc.Held() != full {
			t.Errorf("a response of %d bytes: reset %t, the connection closed: %t, %d bytes are held", shard.LeastShed-less, reset, s.Conn.Closed, s.Proc.Held()-full)
		}
	}
}

// TestShedStream: of the responses that are streams, and that the client does not read, as many end as memory is short of. Their
// goroutines learn of that.
func TestShedStream(t *testing.T) {
	const all, part = 8, 64 << 10 // responses, and what the loop holds of each
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: littleMemory})
	c, other := dial(m, 1000), dial(m, 0)
	c.deaf = true
	var replies []*reply
	for range all {
		replies = append(replies, c.begin(request("POST", "/", 0)))
	}
	m.RunUntil("the streams", func() bool { return len(streams.Sockets) == all })
	m.Consumer.Loop.Do(func() {
		for _, s := range streams.Sockets {
			_, _ = s.Write([]byte("HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n"))
			_, _ = s.Write(make([]byte, 200_000))
		}
	})
	m.W.Run(100 * time.Millisecond)
	const hardMark = 2 << 20 // of littleMemory
	free := hardMark - int(m.Consumer.Proc.Held())
	if free > hardMark-all*part {
		t.Fatalf("%d bytes are free", free)
	}
	m.Consumer.Proc.Charge(free - 10<<10)
	other.send(request("POST", "/", 60<<10))
	m.W.Run(10 * time.Millisecond)
	ended := 0
	for i, a := range replies {
		if !a.reset {
			continue
		}
		if ended++; a.code != http2.EnhanceYourCalm || streams.Pipes[i].Closed == nil {
			t.Errorf("reset with %d, the pipe was closed with %v", a.code, streams.Pipes[i].Closed)
		}
	}
	if ended == 0 || ended > all/2 || c.ended {
		t.Errorf("%d of %d responses have ended, and the connection %t", ended, all, c.ended)
	}
	if n := m.Consumer.Report().Stats.Errors.Of("shed"); n != uint64(ended) {
		t.Errorf("%d are counted", n)
	}
	m.Consumer.Proc.Charge(-(free - 10<<10))
	c.do(c.conn.Close)
	proxytest.CheckStreamsSettled(m, streams)
}

// TestShedLarger: of two connections with the same request the one that holds more beside it loses the request when memory is full.
func TestShedLarger(t *testing.T) {
	const hardMark = 2 << 20 // of littleMemory
	filling := request("GET", "/", 0)
	for i := range 30 {
		filling.Headers = append(filling.Headers, field(fmt.Sprint("x-", i), strings.Repeat("v", 80)))
	}
	for name, fill := range map[string]struct {
		before func(c *client) // the requests
		behind func(c *client)
	}{
		"tables": {before: func(c *client) {
			for range 2 {
				c.await(c.send(filling))
			}
		}},
		"a frame": {behind: func(c *client) {
			c.do(func() { c.raw = append([]byte{0, 60, 0, 1, 4, 0, 0, 1, 1}, make([]byte, 15_000)...) }) // a part of HEADERS
		}},
		"open requests": {behind: func(c *client) {
			for range 20 {
				c.begin(request("POST", "/", 0))
			}
		}},
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: littleMemory, Service: "timeout: 1m"})
		var all []*client
		for range 3 {
			all = append(all, dial(m, 0))
		}
		all[0].await(all[0].send(request("GET", "/", 0)))
		if fill.before != nil {
			fill.before(all[1])
		}
		began := 0
		m.Apps[0].OnRequest = func(*protocol.Request) { began++ }
		m.Apps[0].Delay = func() time.Duration { return time.Minute / 2 }
		var replies []*reply
		for _, c := range all {
			replies = append(replies, c.send(request("POST", "/", 200<<10)))
		}
		m.RunUntil("the requests", func() bool { return began == 3 })
		if fill.behind != nil {
			fill.behind(all[1])
		}
		m.W.Run(20 * time.Millisecond)
		free := hardMark - int(m.Consumer.Proc.Buffered())
		m.Consumer.Proc.Charge(free - 60<<10)
		next := dial(m, 0) // whose request has the loop look for the largest
		next.send(request("POST", "/", 70<<10))
		m.W.Run(20 * time.Millisecond)
		for i, a := range replies {
			if a.done != (i == 1) || i == 1 && code(a) != "shed" {
				t.Errorf("%s: request %d: done %t, %d %s", name, i, a.done, a.Status, code(a))
			}
		}
		m.Consumer.Proc.Charge(60<<10 - free)
		for _, c := range append(all, next) {
			c.do(c.conn.Close)
		}
		m.Settled()
	}
}

// TestShedConnectionSuffices: a connection that closes when memory is full gives back what its client has not read, too. So
// no other request ends.
func TestShedConnectionSuffices(t *testing.T) {
	const hardMark = 2 << 20 // of littleMemory
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: littleMemory, Service: "timeout: 5m"})
	m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, 30<<10) }
	c, other := dial(m, 16<<20), dial(m, 0)
	c.await(c.send(request("GET", "/", 0)))
	m.W.Faults.PauseReading(c.conn, true)
	for m.Consumer.Proc.Held() < 220<<10 { // all of which is output
		c.send(request("GET", "/", 0))
		m.W.Run(300 * time.Millisecond)
	}
	m.Apps[0].Delay = func() time.Duration { return 10 * time.Second }
	beside := other.send(request("POST", "/", 100<<10))
	m.W.Run(100 * time.Millisecond)
	free := hardMark - int(m.Consumer.Proc.Buffered())
	m.Consumer.Proc.Charge(free - 60<<10)
	next := dial(m, 0) // whose request has the loop look for the largest
	third := next.send(request("POST", "/", 70<<10))
	m.W.Run(20 * time.Millisecond)
	if n := m.Consumer.ShedConnections(); n != 1 || beside.done || third.done {
		t.Errorf("%d connections are counted; other requests: %d %s, %d %s", n, beside.Status, code(beside), third.Status, code(third))
	}
	m.Consumer.Proc.Charge(60<<10 - free)
	for _, c := range []*client{c, other, next} {
		if !c.ended {
			c.do(c.conn.Close)
		}
	}
	m.Settled()
}

// TestUnreadOverShare: while memory is short, a connection whose client leaves more than its share unread gets no response to
// other requests, however small they are. Other connections do.
func TestUnreadOverShare(t *testing.T) {
	for name, is := range map[string]struct {
		window int
		deaf   bool
	}{
		"no window":     {1000, true},
		"no room ahead": {16 << 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: littleMemory})
			m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, 100<<10) }
			c, other, third := dial(m, is.window), dial(m, 0), dial(m, 0)
			c.deaf = is.deaf
			c.await(c.send(request("HEAD", "/", 0)))
			m.W.Faults.PauseReading(c.conn, !is.deaf)
			for range 9 {
				c.send(request("GET", "/", 0))
			}
			m.W.Run(time.Second)
			m.Consumer.Proc.Charge(1 << 20)
			m.Apps[0].Body = nil
			over := c.send(request("GET", "/", 0))
			for _, beside := range []*client{other, third} {
				a := beside.send(request("GET", "/", 0))
				if beside.await(a); a.Status != 200 {
					t.Errorf("%d %s on another connection", a.Status, code(a))
				}
			}
			m.W.Faults.PauseReading(c.conn, false)
			m.RunUntil("the head of a response", func() bool { return over.Status != 0 })
			if over.Status != 503 || code(over) != "overloaded" {
				t.Errorf("%d %s", over.Status, code(over))
			}
			m.Consumer.Proc.Charge(-1 << 20)
			m.Settled()
		})
	}
}

// TestLeftRequests: requests that have left the loop no longer count as ones that wait for their bodies there.
func TestLeftRequests(t *testing.T) {
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1})
	c := dial(m, 0)
	const requests = 50
	for range requests {
		c.begin(request("POST", "/", 0))
	}
	m.W.Run(10 * time.Millisecond)
	before := m.Consumer.Proc.Held()
	m.RunUntil("the streams", func() bool { return len(streams.Requests) == requests })
	m.W.Run(time.Millisecond)
	if held := m.Consumer.Proc.Held(); before < requests<<11 || held > requests<<9 {
		t.Errorf("%d bytes are held before, %d after the requests have left", before, held)
	}
	proxytest.CheckStreamsSettled(m, streams)
}

// TestStreamCountsOnce: a request that pauses leaves the loop although its own bytes fill limits.buffered: they are no
// reason to refuse it.
func TestStreamCountsOnce(t *testing.T) {
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: littleMemory})
	c := dial(m, 0)
	a := c.begin(request("POST", "/", 0))
	m.Consumer.Proc.Charge(1<<20 - 100<<10)
	c.add(a, strings.Repeat("x", 200<<10))
	m.W.Run(time.Second)
	if len(streams.Requests) != 1 || a.done {
		t.Errorf("%d streams, %d %s", len(streams.Requests), a.Status, code(a))
	}
	m.Consumer.Proc.Charge(-(1<<20 - 100<<10))
	proxytest.CheckStreamsSettled(m, streams)
}

// TestRequestCountsOnce: the bytes of a request are no reason to refuse the request itself, when memory would not be short without them.
func TestRequestCountsOnce(t *testing.T) {
	const free = 60 << 10 // of littleMemory
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: littleMemory})
	c := dial(m, 0)
	for range 9 { // so that the request is above the share of its connection
		dial(m, 0)
	}
	m.Consumer.Proc.Charge(1<<20 - free)
	a := c.send(request("POST", "/", 200<<10))
	if c.await(a); a.Status != 200 {
		t.Errorf("%d %s", a.Status, code(a))
	}
	m.Consumer.Proc.Charge(free - 1<<20)
	m.Settled()
}

// TestFewBytesOverShare: while memory is short, a connection with many requests that are incomplete may send no others, however few
// bytes it has sent. Another connection may.
func TestFewBytesOverShare(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: littleMemory})
	c, other := dial(m, 0), dial(m, 0)
	for range 8 { // so that a share is 102 KiB
		dial(m, 0)
	}
	for range 70 { // fewer than a client may send before the SETTINGS
		c.begin(request("POST", "/", 0))
	}
	m.W.Run(10 * time.Millisecond)
	m.Consumer.Proc.Charge(1 << 20)
	over, beside := c.send(request("POST", "/", 20<<10)), other.send(request("POST", "/", 20<<10))
	c.await(over, beside)
	if over.Status != 503 || code(over) != "overloaded" || beside.Status != 200 {
		t.Errorf("%d %s, on another connection %d %s", over.Status, code(over), beside.Status, code(beside))
	}
	m.Consumer.Proc.Charge(-1 << 20)
	c.do(c.conn.Close)
	m.Settled()
}

// TestShedIdle: an idle connection closes in order when the process wants it, and one with a request
// in flight stays.
func TestShedIdle(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	idle, busy := dial(m, 0), dial(m, 0)
	idle.await(idle.send(request("GET", "/", 0)))
	m.Apps[0].Delay = func() time.Duration { return 5 * time.Second }
	a := busy.send(request("GET", "/", 0))
	m.W.Run(2 * time.Second)
	for range 3 {
		m.Consumer.Proc.ShedIdle()
		m.W.Run(100 * time.Millisecond)
	}
	if !idle.ended || !idle.goAway || idle.last != 1 || idle.err != nil {
		t.Errorf("the idle connection: ended %t, GOAWAY %t up to stream %d, %v", idle.ended, idle.goAway, idle.last, idle.err)
	}
	if busy.await(a); a.Status != 200 || busy.goAway {
		t.Errorf("status %d of a request in flight, GOAWAY %t", a.Status, busy.goAway)
	}
	m.Settled()
}

// TestReserve: connections with many requests leave the last eighth of max_pending to connections with one.
// A connection that is alone may take all places.
func TestReserve(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "max_pending: 16"})
	m.Apps[0].Delay = func() time.Duration { return time.Second }
	many := func(c *client, n int) (all []*reply) {
		for range n {
			all = append(all, c.send(request("GET", "/", 0)))
		}
		return all
	}
	check := func(what string, over int, all []*reply) {
		t.Helper()
		for _, a := range all {
			if a.Status == 503 && code(a) == "overloaded" {
				over--
			} else if a.Status != 200 {
				t.Errorf("%s: %d %s", what, a.Status, code(a))
			}
		}
		if over != 0 {
			t.Errorf("%s: %d fewer were refused than expected", what, over)
		}
	}
	c := dial(m, 0)
	alone := many(c, 17)
	c.await(alone...)
	check("alone", 1, alone)

	singles := many(dial(m, 0), 1)
	m.RunUntil("a request", func() bool { return m.Consumer.Proc.Pending() == 1 })
	beside := many(c, 14)
	m.RunUntil("the unreserved places to be taken", func() bool { return m.Consumer.Proc.Pending() == 14 && beside[13].done })
	for range 3 {
		singles = append(singles, many(dial(m, 0), 1)...)
	}
	c.await(append(singles, beside...)...)
	check("many requests beside others", 1, beside)
	check("one request", 1, singles)
	m.Settled()
}

// TestReserveCancelled: requests that their client has cancelled count as its connection's for as long as the
// application works on them. Otherwise a client could take all places of max_pending, one after another.
func TestReserveCancelled(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "max_pending: 16"})
	m.Apps[0].Delay = func() time.Duration { return time.Second }
	c, other := dial(m, 0), dial(m, 0)
	first := other.send(request("GET", "/", 0))
	m.RunUntil("a request", func() bool { return m.Consumer.Proc.Pending() == 1 })
	for range 20 {
		a := c.send(request("GET", "/", 0))
		m.W.Run(5 * time.Millisecond)
		if !a.done {
			c.do(func() { c.codec.Reset(a.stream, http2.Cancel) })
		}
		m.W.Run(5 * time.Millisecond)
	}
	if n := m.Consumer.Proc.Pending(); n != 14 {
		t.Errorf("%d requests pending, want 14", n)
	}
	third := dial(m, 0)
	a := third.send(request("GET", "/", 0))
	if third.await(first, a); a.Status != 200 {
		t.Errorf("the request of another connection: %d %s", a.Status, code(a))
	}
	m.W.Run(2 * time.Second)
	a = c.send(request("GET", "/", 0)) // nothing is left of those that were cancelled
	if c.await(a); a.Status != 200 {
		t.Errorf("the next request: %d %s", a.Status, code(a))
	}
	m.Settled()
}
