package http2_test

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestHalfClose: whole requests of a client that has ended its side get their responses, as far as its windows allow,
// for timeouts.half_close. Requests that are incomplete end.
func TestHalfClose(t *testing.T) {
	for name, c := range map[string]struct {
		setting string
		delay   time.Duration
		body    int // of each response; the window is 1000
		status  int // of each response
		took    time.Duration
	}{
		"served":      {"timeouts: {half_close: 4m, body: 1m}", 170 * time.Second, 10, 200, 170 * time.Second}, // the time for a PING ends after 150 s
		"late":        {"timeouts: {half_close: 5s}", 20 * time.Second, 10, 0, 5 * time.Second},
		"off":         {"timeouts: {half_close: 0}", time.Second, 10, 0, 0},
		"window shut": {"timeouts: {write: 3s}", time.Second, 5000, 0, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 5m", Limits: c.setting})
			m.Apps[0].Delay = func() time.Duration { return c.delay }
			m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, c.body) }
			came := 0
			m.Apps[0].OnRequest = func(*protocol.Request) { came++ }
			client := dial(m, 1000)
			client.deaf = true
			incomplete, first, second := client.begin(request("POST", "/", 0)), client.send(request("GET", "/", 0)), client.send(request("POST", "/", 10))
			m.RunUntil("the whole requests", func() bool { return came == 2 })
			began := m.W.Now()
			m.W.Faults.HalfClose(client.conn)
			if !m.W.RunUntil(func() bool { return client.ended }, 4*time.Minute) {
				t.Fatal("the connection stays open")
			}
			for _, a := range []*reply{first, second} {
				if served := a.done && a.Status == 200; served != (c.status == 200) {
					t.Errorf("done %t, status %d", a.done, a.Status)
				}
			}
			if took := (m.W.Now() - began).Round(time.Second); took != c.took {
				t.Errorf("the connection ended after %v, want %v", took, c.took)
			}
			if client.goAway != (c.took > 0) {
				t.Errorf("GOAWAY %t", client.goAway)
			}
			slow := m.Consumer.Report().Stats.Errors.Of("body-timeout")
			if incomplete.done || came != 2 || slow != 0 {
				t.Errorf("the incomplete request: done %t, %d requests came, %d are slow", incomplete.done, came, slow)
			}
			m.W.Run(2 * time.Minute)
			m.Settled()
		})
	}
}

// TestHalfCloseProgress: timeouts.half_close bounds the time without a response, not that of all responses.
func TestHalfCloseProgress(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 2m", Limits: "timeouts: {half_close: 5s}"})
	delays := []time.Duration{4 * time.Second, 8 * time.Second, time.Hour}
	m.Apps[0].Delay = func() time.Duration { return delays[0] }
	came := 0
	m.Apps[0].OnRequest = func(*protocol.Request) { came++ }
	client := dial(m, 1000)
	client.deaf = true
	var all []*reply
	for n := range 3 {
		all = append(all, client.send(request("GET", "/", 0)))
		m.RunUntil("the request", func() bool { return came == n+1 })
		delays = delays[1:]
	}
	began := m.W.Now()
	m.W.Faults.HalfClose(client.conn)
	m.RunUntil("the end of the connection", func() bool { return client.ended })
	for i, a := range all {
		if served := a.done && a.Status == 200; served != (i < 2) {
			t.Errorf("response %d: done %t, status %d", i, a.done, a.Status)
		}
	}
	if took := (m.W.Now() - began).Round(time.Second); took != 15*time.Second {
		t.Errorf("the connection ended after %v", took)
	}
}

// TestHalfCloseIdle: a connection without a request ends with its client's side.
func TestHalfCloseIdle(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	client := dial(m, 0)
	client.await(client.send(request("GET", "/", 0)))
	m.W.Run(time.Second)
	began := m.W.Now()
	m.W.Faults.HalfClose(client.conn)
	m.RunUntil("the end of the connection", func() bool { return client.ended })
	if took := m.W.Now() - began; took > 100*time.Millisecond || client.goAway {
		t.Errorf("the connection ended after %v, GOAWAY %t", took, client.goAway)
	}
	m.Settled()
}

// TestHalfCloseStream: a response that comes in pieces lasts longer than timeouts.half_close, until no piece reaches the client from
// one multiple of that to the next.
func TestHalfCloseStream(t *testing.T) {
	for name, c := range map[string]struct {
		window int    // of the client, which does not open it again; 0 means the default, which it does
		piece  string // a chunk
		body   string
		took   time.Duration
	}{
		"long pieces":      {0, "5\r\nhello\r\n", "hellohellohellohello", 25 * time.Second},
		"pieces of a byte": {0, "1\r\nh\r\n", "hhhh", 25 * time.Second},
		"window shut":      {5, "30d40\r\n" + strings.Repeat("x", 200_000) + "\r\n", "xxxxx", 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: "timeouts: {half_close: 5s}"})
			m.Apps[0].RespondWith(proxytest.StreamResponses[1].Says)
			client := dial(m, c.window)
			client.deaf = c.window > 0
			a := client.send(request("GET", "/", 0))
			m.RunUntil("a stream", func() bool { return len(streams.Responses) == 1 })
			write := func(text string) {
				m.Consumer.Loop.Do(func() { _, _ = streams.Sockets[0].Write([]byte(text)) })
			}
			write(string(streams.Responses[0].Head))
			m.W.Run(10 * time.Millisecond)
			began := m.W.Now()
			m.W.Faults.HalfClose(client.conn)
			for range 4 {
				m.W.Run(4 * time.Second)
				if !client.ended {
					write(c.piece)
				}
			}
			m.RunUntil("the end of the connection", func() bool { return client.ended })
			if took := (client.endedAt - began).Round(time.Second); string(a.body) != c.body || took != c.took {
				t.Errorf("the connection ended after %v, with %q", took, a.body)
			}
			proxytest.CheckStreamsSettled(m, streams)
		})
	}
}

// TestHalfCloseEndOfStream: the end of a streamed response is progress, too.
func TestHalfCloseEndOfStream(t *testing.T) {
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: "timeouts: {half_close: 5s}"})
	m.Apps[0].RespondWith(proxytest.StreamResponses[1].Says)
	client := dial(m, 0)
	all := []*reply{client.send(request("GET", "/", 0)), client.send(request("GET", "/", 0))}
	m.RunUntil("the streams", func() bool { return len(streams.Responses) == 2 })
	m.W.Faults.HalfClose(client.conn)
	for i, says := range []string{"HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"} {
		m.W.Run(4 * time.Second)
		m.Consumer.Loop.Do(func() { _, _ = streams.Sockets[i].Write([]byte(says)) })
	}
	m.RunUntil("the end of the connection", func() bool { return client.ended })
	if !all[0].done || !all[1].done || all[0].Status+all[1].Status != 404 {
		t.Errorf("done %t with %d, and %t with %d", all[0].done, all[0].Status, all[1].done, all[1].Status)
	}
	proxytest.CheckStreamsSettled(m, streams)
}

// TestHalfCloseSlowReader: a client that reads its last response late gets all of it, however late that is after
// timeouts.half_close.
func TestHalfCloseSlowReader(t *testing.T) {
	const size = 600 << 10 // more than the kernels take, and less than a connection keeps beside it
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: "timeouts: {half_close: 1s, write: 1m}"})
	m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, size) }
	m.Apps[0].Delay = func() time.Duration { return 500 * time.Millisecond }
	client := dial(m, 16<<20)
	a := client.send(request("GET", "/", 0))
	m.W.Run(100 * time.Millisecond)
	m.W.Faults.HalfClose(client.conn)
	m.W.Run(100 * time.Millisecond)
	m.W.Faults.PauseReading(client.conn, true)
	m.W.Run(10 * time.Second)
	m.W.Faults.PauseReading(client.conn, false)
	m.RunUntil("the end of the connection", func() bool { return client.ended })
	if !a.done || len(a.body) != size {
		t.Errorf("done %t, %d bytes", a.done, len(a.body))
	}
	m.Settled()
}
