package stream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
)

// slowly is a chain that judges paces soon, by a rate that no silent client reaches.
func slowly(limits string) chainOptions {
	return chainOptions{window: 20 * time.Millisecond, more: "timeouts: {min_rate: 1GiB}", limits: limits}
}

// TestSlowUpload: a client that sends its body too slowly gets 408, and the endpoint's
// connection is reset.
func TestSlowUpload(t *testing.T) {
	a := newApp(t)
	linked(t, slowly(""), func(t *testing.T, c *chain) {
		client := c.nodes[0].dial()
		fmt.Fprintf(client, "PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: %d\r\n\r\nx", 10*longest)
		server := receive(t, a.conns, "the application to get the request")
		resp, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, "the client", resp, 408, "body-too-slow")
		client.Close()
		wantReset(t, "the application", server)
		server.Close()
		c.wantTooSlow()
	}, a.addr)
}

// TestSlowReader: a client that reads its response too slowly is reset, and so is the endpoint.
func TestSlowReader(t *testing.T) {
	a := newApp(t)
	linked(t, slowly(""), func(t *testing.T, c *chain) {
		client := c.nodes[0].dial()
		_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: app\r\n\r\n")
		server := receive(t, a.conns, "the application to get the request")
		go func() {
			_, _ = fmt.Fprintf(server, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", int64(1)<<40)
			_, _ = io.Copy(server, zeros{})
			server.Close()
		}()
		c.wantTooSlow()
		wantReset(t, "the client", client)
	}, a.addr)
}

// wantTooSlow waits until a sidecar has ended one stream as too slow: the first, or the one behind
// it, for which the first is the client.
func (c *chain) wantTooSlow() {
	c.t.Helper()
	eventually.Nil(c.t, "the slow stream to be counted", func() error {
		var all []map[string]uint64
		for _, s := range c.nodes {
			_, failures := s.counts.totals()
			all = append(all, failures)
			if failures["body-too-slow"] == 1 && len(failures) == 1 {
				return nil
			}
		}
		return fmt.Errorf("failures %v", all)
	})
}

// TestSilentSides: a client is not too slow while the other side has the turn: without a response,
// before 100 Continue, between events, and in a tunnel.
func TestSilentSides(t *testing.T) {
	const ask = "PUT / HTTP/1.1\r\nHost: app\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n"
	const events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
	for name, c := range map[string]struct{ request, response string }{
		"100 Continue": {ask, ""},
		"response":     {"PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("x", 200000), ""},
		"events":       {"GET / HTTP/1.1\r\nHost: app\r\n\r\n", events},
		"tunnel":       {"CONNECT bytes:1 HTTP/1.1\r\nHost: bytes:1\r\n\r\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t)
			o := slowly("")
			o.window = 300 * time.Millisecond // a busy machine may keep a sidecar from seeing, for so long, that the client has sent all
			chain := newChain(t, o, a.addr)
			client := chain.nodes[0].dial()
			_, _ = io.WriteString(client, c.request)
			server := receive(t, a.conns, "the application to get the request")
			go func() { _, _ = io.Copy(io.Discard, server) }()
			_, _ = io.WriteString(server, c.response)
			slow := chain.nodes[0].dial() // when it has ended, the silent one has been checked as often
			fmt.Fprintf(slow, "PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: %d\r\n\r\nx", 10*longest)
			second := receive(t, a.conns, "the application to get the slow request")
			chain.wantTooSlow()
			second.Close()
			slow.Close()
			client.Close()
			server.Close()
			chain.waitNoStreams()
		})
	}
}

// TestLateContinue: a client that has sent its whole body without waiting is not too slow when
// 100 Continue arrives, nor is one that asked for none and has no body.
func TestLateContinue(t *testing.T) {
	for name, request := range map[string]string{
		"body":    "PUT / HTTP/1.1\r\nHost: app\r\nExpect: 100-continue\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("x", 200000),
		"upgrade": "GET / HTTP/1.1\r\nHost: app\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t)
			chain := newChain(t, slowly(""), a.addr)
			client := chain.nodes[0].dial()
			_, _ = io.WriteString(client, request)
			server := receive(t, a.conns, "the application to get the request")
			r, err := http.ReadRequest(bufio.NewReader(server))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(server, "HTTP/1.1 100 Continue\r\n\r\n")
			slow := chain.nodes[0].dial() // when it has ended, the silent one has been checked as often
			fmt.Fprintf(slow, "PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: %d\r\n\r\nx", 10*longest)
			second := receive(t, a.conns, "the application to get the slow request")
			wantStatus(t, slow, http.StatusRequestTimeout)
			_, _ = io.WriteString(server, "HTTP/1.1 204 No Content\r\n\r\n")
			wantStatus(t, client, http.StatusNoContent)
			for _, c := range []net.Conn{second, slow, client, server} {
				c.Close()
			}
			chain.waitNoStreams()
		})
	}
}

// wantStatus checks the status of the final response.
func wantStatus(t *testing.T, from net.Conn, want int) {
	t.Helper()
	for r := bufio.NewReader(from); ; {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusContinue {
			if resp.StatusCode != want {
				t.Errorf("got %s, want %d", resp.Status, want)
			}
			return
		}
	}
}

// TestPaceOfBlocked: a client whose whole body has arrived is not too slow while the endpoint does
// not read it.
func TestPaceOfBlocked(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{more: "timeouts: {min_rate: 1GiB}"}, a.addr)
	client, down := s.pair(a)
	up := s.dialTo(a.addr) // no other goroutine may read a part late
	server := receive(t, a.conns, "the connection to the endpoint")
	p := &pair{srv: s.srv, down: &end{conn: down, tcp: down}, up: &end{conn: up, tcp: up}, client: clientUploading}
	checkWindow := func() {
		w := &watch{p: p, limit: &s.srv.config().Timeouts, began: time.Now()}
		w.checkPace(w.began.Add(paceWindow)) // the first time at which the rate counts
		w.checkPace(w.began.Add(2 * paceWindow))
	}
	s.eventually("the endpoint to take no more", func() error {
		if stall(t, up, 1<<30); p.up.unsent() == 0 {
			return errors.New("all is sent")
		}
		return nil
	})
	checkWindow()
	if f := p.why.Load(); f != nil {
		t.Errorf("ended by %s", f.Code)
	}
	go func() { _, _ = io.Copy(io.Discard, server) }()
	s.eventually("the endpoint to read", func() error {
		if n := p.up.unsent(); n > 0 {
			return fmt.Errorf("%d bytes are not sent", n)
		}
		return nil
	})
	checkWindow()
	if f := p.why.Load(); f == nil {
		t.Error("a silent client may take any time")
	}
	for _, c := range []net.Conn{client, down, server} {
		c.Close()
	}
	s.counts.waitIdle()
}

func TestPace(t *testing.T) {
	const waits, busy = true, false
	type check struct {
		at      time.Duration
		waiting bool
		moved   uint64
		tooSlow bool
	}
	for name, checks := range map[string][]check{
		"drips":               {{0, waits, 0, false}, {5, waits, 5, false}, {10, waits, 10, true}},
		"fast enough":         {{0, waits, 0, false}, {5, waits, 0, false}, {10, waits, 11_000, false}, {20, waits, 22_000, false}},
		"then drips":          {{0, waits, 0, false}, {10, waits, 90_000, false}, {15, waits, 90_001, false}, {20, waits, 90_002, true}},
		"one is awaited":      {{0, waits, 0, false}, {5, busy, 0, false}, {10, waits, 0, false}, {15, waits, 0, false}, {20, waits, 0, true}},
		"never awaited":       {{0, busy, 0, false}, {10, busy, 0, false}, {20, busy, 0, false}},
		"at the rate exactly": {{0, waits, 0, false}, {10, waits, 10_240, false}, {20, waits, 20_479, true}},
	} {
		w := &watch{p: &pair{srv: &Server{window: 10 * time.Second}}, limit: &config.Timeouts{MinRate: 1 << 10}}
		var p pace
		start := time.Unix(1700000000, 0)
		for _, c := range checks {
			if got := p.tooSlow(start.Add(c.at*time.Second), c.waiting, c.moved, w); got != c.tooSlow {
				t.Errorf("%s: after %d s too slow: %t, want %t", name, c.at, got, c.tooSlow)
			}
		}
	}
}

// TestBehind: a client that takes all within a round trip is not behind, although some is on its way at each
// check. One that has not taken what was sent before is.
func TestBehind(t *testing.T) {
	var prompt, slow watch
	for i := range uint64(10) {
		if prompt.behind(&counters{acknowledged: 900 * i, unacknowledged: 36}) {
			t.Errorf("check %d: a prompt client is behind", i)
		}
		if got, want := slow.behind(&counters{acknowledged: 900 * i, unacknowledged: 64 << 10}), i > 0; got != want {
			t.Errorf("check %d: a slow client is behind: %t", i, got)
		}
	}
	if !slow.behind(&counters{acknowledged: 9000, unacknowledged: 1}) {
		t.Error("a client that lacks a byte is not behind")
	}
	if slow.behind(&counters{}) {
		t.Error("a client is behind at the end of its connection")
	}
}

// TestInterval: only a body is checked as often as its pace needs, and timeouts.stream is exact.
func TestInterval(t *testing.T) {
	const idle, long = 5 * time.Minute, 24 * time.Hour
	for name, c := range map[string]struct {
		limit     config.Timeouts
		body      bool
		age, want time.Duration
	}{
		"a tunnel":             {config.Timeouts{Idle: idle, MinRate: 1, Stream: long}, false, time.Hour, idle / 4},
		"a body":               {config.Timeouts{Idle: idle, MinRate: 1, Stream: long}, true, time.Hour, paceWindow / 4},
		"a body of any pace":   {config.Timeouts{Idle: idle, Stream: long}, true, time.Hour, idle / 4},
		"a short idle timeout": {config.Timeouts{Idle: time.Second, MinRate: 1}, true, time.Hour, time.Second / 4},
		"the shortest limit":   {config.Timeouts{Idle: idle, Stream: 1}, false, 0, time.Millisecond},
		"near the end":         {config.Timeouts{Idle: idle, MinRate: 1, Stream: long}, true, long - time.Second, time.Second},
		"at the end":           {config.Timeouts{Idle: idle, MinRate: 1, Stream: long}, true, long, time.Millisecond},
	} {
		bodies := []*pair{{client: clientUploading}, {state: responding}, {state: finishing}}
		if !c.body {
			bodies = []*pair{{}, {client: clientUploaded}, {state: relaying}}
		}
		for _, p := range bodies {
			p.srv = &Server{window: paceWindow}
			now := time.Unix(1700000000, 0)
			w := &watch{p: p, limit: &c.limit, began: now.Add(-c.age)}
			if got := w.interval(now); got != c.want {
				t.Errorf("%s: checked after %v, want %v", name, got, c.want)
			}
		}
	}
}

// TestStreamLimit: a stream ends at its limit of time. Without a limit it goes on.
func TestStreamLimit(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	for limit, ends := range map[time.Duration]bool{0: false, 1: true, time.Hour: true, 48 * time.Hour: false} {
		client, down := s.pair(a)
		defer client.Close()
		p := &pair{srv: s.srv, down: &end{conn: down, tcp: down}}
		w := &watch{p: p, limit: &config.Timeouts{Idle: time.Hour, Stream: limit}, began: time.Now().Add(-24 * time.Hour), timer: time.NewTimer(time.Hour)}
		if w.check(); w.ended != ends || p.isAborted() != ends {
			t.Errorf("limit %v: ended %t, aborted %t", limit, w.ended, p.isAborted())
		}
		w.stop()
		down.Close()
	}
}

// TestRearmEnded: a body that begins late does not revive the checks of a stream.
func TestRearmEnded(t *testing.T) {
	p := &pair{srv: &Server{window: time.Hour}}
	p.watch = &watch{p: p, limit: &config.Timeouts{Idle: time.Hour}, timer: time.NewTimer(time.Hour)}
	p.watch.stop()
	p.enter(responding)
	if p.watch.timer.Stop() {
		t.Error("another check is due")
	}
}

// TestSlowAfterContinue: a client that was told to send its body is judged from then on.
func TestSlowAfterContinue(t *testing.T) {
	a := newApp(t)
	chain := newChain(t, slowly(""), a.addr)
	client := chain.nodes[0].dial()
	_, _ = io.WriteString(client, "PUT / HTTP/1.1\r\nHost: app\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
	server := receive(t, a.conns, "the application to get the request")
	_, _ = io.WriteString(server, "HTTP/1.1 100 Continue\r\n\r\n")
	wantStatus(t, client, http.StatusRequestTimeout)
	client.Close()
	server.Close()
	chain.waitNoStreams()
}

// TestLeastRate: any least rate counts, for a body whose sides do not talk.
func TestLeastRate(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	s.srv.window = 1
	for _, c := range []struct {
		rate        int64
		interactive bool
		want        *fault.Failure
	}{{0, false, nil}, {1, false, fault.BodyTooSlow}, {1, true, nil}} {
		client, up := s.dialTo(a.addr), s.dialTo(a.addr)
		down, server := receive(t, a.conns, "the connection of the client"), receive(t, a.conns, "the connection of the endpoint")
		p := &pair{srv: s.srv, down: &end{conn: down, tcp: down}, up: &end{conn: up, tcp: up}, client: clientUploading}
		p.interactive.Store(c.interactive)
		limit := config.Timeouts{Idle: time.Hour, MinRate: c.rate}
		w := &watch{p: p, limit: &limit, began: time.Now().Add(-time.Hour), change: time.Now(), timer: time.NewTimer(time.Hour)}
		w.check()
		w.check()
		w.stop()
		if got := p.why.Load(); got != c.want {
			t.Errorf("rate %d, interactive %t: %+v", c.rate, c.interactive, got)
		}
		for _, c := range []net.Conn{client, down, up, server} {
			c.Close()
		}
	}
}

// TestIdleExactly: a stream is idle when it has made no progress for exactly timeouts.idle. One without an endpoint is not.
func TestIdleExactly(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	nc := s.dialTo(a.addr)
	other := receive(t, a.conns, "the connection")
	began := time.Now()
	for _, c := range []struct {
		up    *end
		moved uint64
		state pairState
		after time.Duration
		want  bool
	}{
		{&end{conn: nc, tcp: nc}, 0, responding, time.Hour, true},
		{&end{conn: nc, tcp: nc}, 0, responding, time.Hour - 1, false},
		{&end{conn: nc, tcp: nc}, 1, responding, time.Hour, false},
		{&end{conn: nc, tcp: nc}, 0, awaitingHead, time.Hour, false},
		{nil, 0, responding, time.Hour, false},
	} {
		p := &pair{srv: s.srv, down: &end{conn: other, tcp: other}, up: c.up, state: c.state}
		w := &watch{p: p, limit: &config.Timeouts{Idle: time.Hour}, change: began, moved: p.moved() + c.moved}
		if got := w.idle(began.Add(c.after)); got != c.want {
			t.Errorf("%+v: idle %t", c, got)
		}
	}
	nc.Close()
	other.Close()
}
