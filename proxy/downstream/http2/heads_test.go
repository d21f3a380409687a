package http2_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// longHead is a request whose head of about 60 KB is much shorter on the wire.
func longHead(method string) *protocol.Request {
	return request(method, "/", 0, slices.Repeat([]string{"a: " + strings.Repeat("x", 3900)}, 15)...)
}

// trailed is a request that ends with trailers of about 60 KB.
func trailed() *protocol.Request {
	r := request("POST", "/", 10)
	r.Trailers = longHead("POST").Headers
	return r
}

// TestHeadsOverMemoryShare: heads count as they are decoded, before more arrive. Those of a connection
// over its share are refused while memory is short, also in one turn of the loop. Other connections lose
// nothing, and all is given back.
func TestHeadsOverMemoryShare(t *testing.T) {
	for name, begin := range map[string]func(c *client) *reply{
		"open":     func(c *client) *reply { return c.begin(longHead("POST")) },
		"whole":    func(c *client) *reply { return c.send(longHead("GET")) },
		"trailers": func(c *client) *reply { return c.send(trailed()) },
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: "limits: {buffered: 1MiB, message: 256KiB, requests: 91}"})
		m.Apps[0].Delay = func() time.Duration { return time.Second }
		c, other := dial(m, 0), dial(m, 0)
		var all []*reply
		for range 90 {
			all = append(all, begin(c))
		}
		m.RunUntil("a refusal", func() bool { return slices.ContainsFunc(all, func(a *reply) bool { return a.done }) })
		// The first mark, the share of one of two connections, and a head that was under way.
		if most := int64(1<<20 + 512<<10 + 72<<10); m.Consumer.Proc.Held() > most {
			t.Errorf("%s: %d bytes, more than %d", name, m.Consumer.Proc.Held(), most)
		}
		for range 3 {
			a := other.send(request("GET", "/", 0, "b: "+strings.Repeat("y", 3900)))
			if other.await(a); a.Status != 200 {
				t.Errorf("%s: %d %s on another connection", name, a.Status, code(a))
			}
		}
		refused := 0
		for _, a := range all {
			if a.Status == 503 && code(a) == "overloaded" {
				refused++
			}
		}
		if refused < 60 || refused == len(all) || c.ended {
			t.Errorf("%s: %d of %d heads were refused, the connection ended: %t", name, refused, len(all), c.ended)
		}
		before := c.goAway
		if c.await(c.send(request("GET", "/", 0))); before || !c.goAway { // those that are refused count in limits.requests, too
			t.Errorf("%s: GOAWAY before the last request %t, behind it %t", name, before, c.goAway)
		}
		c.do(func() { c.conn.Close() })
		m.RunUntil("the end of the connection", func() bool { return c.ended })
		m.RunUntil("all memory", func() bool { return m.Consumer.Proc.Held() < 16<<10 })
		m.Settled()
	}
}

// TestOpenRequestsOverShare: requests that wait for their bodies count with all memory that they take, however short they are.
// A connection over its share can't open more while memory is short.
func TestOpenRequestsOverShare(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: littleMemory})
	c, other := dial(m, 0), dial(m, 0)
	for range 6 { // so that a share is 128 KiB
		dial(m, 0)
	}
	c.awaitSettings()
	m.Consumer.Proc.Charge(1 << 20)
	var all []*reply
	for range 120 {
		all = append(all, c.begin(request("POST", "/", 0, slices.Repeat([]string{"a: b"}, 30)...)))
	}
	m.W.Run(time.Second)
	refused := 0
	for _, a := range all {
		if a.done && code(a) == "overloaded" {
			refused++
		}
	}
	if refused == 0 || refused == len(all) {
		t.Errorf("%d of %d requests were refused", refused, len(all))
	}
	a := other.begin(request("POST", "/", 0, "a: b"))
	m.W.Run(time.Second)
	if other.end(a); a.done {
		t.Errorf("%d %s on another connection", a.Status, code(a))
	}
	if other.await(a); a.Status != 200 {
		t.Errorf("%d %s on another connection", a.Status, code(a))
	}
	m.Consumer.Proc.Charge(-1 << 20)
	c.do(func() { c.conn.Close() })
	m.Settled()
}

// TestHeadCountsOnce: a head that moves while it is decoded is judged by the memory that it will take, not
// by what it leaves, too.
func TestHeadCountsOnce(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: "limits: {buffered: 4MiB, message: 256KiB}"})
	came := 0
	m.Apps[0].OnRequest = func(*protocol.Request) { came++ }
	m.Apps[0].Delay = func() time.Duration { return 10 * time.Second }
	c := dial(m, 0)
	const others = 11
	for range others { // over a share, which is 1 MiB
		c.send(request("POST", "/", 100<<10))
	}
	m.RunUntil("the other requests", func() bool { return came == others })
	m.Consumer.Proc.Charge(3 << 20)
	// A head takes 72 KiB, after 36 KiB. A share of 14 requests is 73 KiB.
	for n, passes := range []bool{true, true, true, false} {
		a := c.send(longHead("GET"))
		m.RunUntil("a request or a refusal", func() bool { return came == others+n+1 || a.done })
		if a.done == passes {
			t.Errorf("head %d of a connection over its share: done %t, %d %s", n, a.done, a.Status, code(a))
		}
	}
	m.Consumer.Proc.Charge(-3 << 20)
	c.do(func() { c.conn.Close() })
	m.RunUntil("all memory", func() bool { return m.Consumer.Proc.Held() < 16<<10 })
	m.Settled()
}

// TestNoRoomForFields: a head and trailers that take a connection over its share while memory is short are refused before anything else is
// decided about the request, such as that it has no route.
func TestNoRoomForFields(t *testing.T) {
	fields := slices.Repeat(longHead("POST").Headers, 3)
	for name, c := range map[string]struct {
		r      *protocol.Request
		body   int
		memory int // that others hold
		code   string
		beside int // requests in flight on the connection, of 140,000 bytes in all
	}{
		"a head":             {&protocol.Request{Headers: fields}, 0, 1 << 20, "overloaded", 0},
		"trailers":           {&protocol.Request{Trailers: fields}, 10, 1 << 20, "overloaded", 1},
		"a body":             {&protocol.Request{}, 15_000, 1 << 20, "overloaded", 10},
		"neither":            {&protocol.Request{}, 10, 1 << 20, "no-route", 0},
		"a head, and room":   {&protocol.Request{Headers: fields}, 0, 0, "no-route", 0},
		"trailers, and room": {&protocol.Request{Trailers: fields}, 10, 0, "no-route", 1},
		"a body, and room":   {&protocol.Request{}, 15_000, 0, "no-route", 10},
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Match: "match: {path: /served}",
			Limits: "limits: {buffered: 1MiB, message: 256KiB, header: 256KiB}"})
		m.Apps[0].Delay = func() time.Duration { return time.Second }
		client := dial(m, 0)
		for range 7 { // so that a share is 128 KiB
			dial(m, 0)
		}
		m.W.Run(100 * time.Millisecond)
		for range c.beside {
			client.send(request("POST", "/served", 140_000/c.beside))
		}
		m.RunUntil("the requests beside", func() bool { return m.Consumer.Proc.Pending() == c.beside })
		m.W.Options.Cut = 0 // the body comes in one piece
		m.Consumer.Proc.Charge(c.memory)
		r := request("POST", "/other", c.body)
		r.Headers, r.Trailers = c.r.Headers, c.r.Trailers
		a := client.send(r)
		if client.await(a); code(a) != c.code {
			t.Errorf("%s: %d %s, want %s", name, a.Status, code(a), c.code)
		}
		m.Consumer.Proc.Charge(-c.memory)
		m.Settled()
	}
}

// TestFieldsCounted: fields and trailers count by their number, too, and open requests without any.
func TestFieldsCounted(t *testing.T) {
	for name, of := range map[string]struct{ fields, trailers int }{"many fields": {fields: 120}, "many trailers": {trailers: 120}, "none": {}} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: littleMemory})
		m.Apps[0].Delay = func() time.Duration { return time.Second }
		c := dial(m, 0)
		var open []*reply
		for range 90 {
			r := request("POST", "/", 0, slices.Repeat([]string{"a: b"}, of.fields)...)
			if r.Trailers = request("", "", 0, slices.Repeat([]string{"c: d"}, of.trailers)...).Headers; of.trailers > 0 {
				c.send(r)
			} else {
				open = append(open, c.begin(r))
			}
		}
		m.W.Run(50 * time.Millisecond)
		held := m.Consumer.Proc.Held()
		if least := int64(90 * (2<<10 + (of.fields+of.trailers)*50)); held < least {
			t.Errorf("%s: %d bytes counted, want at least %d", name, held, least)
		}
		for _, a := range open {
			c.end(a)
		}
		m.W.Run(50 * time.Millisecond)
		if less := held - m.Consumer.Proc.Held(); less < int64(len(open)*(2<<10)) {
			t.Errorf("%s: the ends of %d requests gave back %d bytes", name, len(open), less)
		}
		c.do(func() { c.conn.Close() })
		m.RunUntil("all memory", func() bool { return m.Consumer.Proc.Held() < 16<<10 })
		m.Settled()
	}
}
