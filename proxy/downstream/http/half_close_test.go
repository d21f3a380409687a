package http_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestHalfCloseTimeout: a client that has ended its side waits for each next response for timeouts.half_close.
// Then it has left, and its request is cancelled.
func TestHalfCloseTimeout(t *testing.T) {
	for _, c := range []struct {
		setting   string
		delay     time.Duration // of each response
		pipelined int
		responses int
		took      time.Duration
	}{
		{"timeouts: {half_close: 10s}", 9 * time.Second, 1, 1, 9 * time.Second},
		{"timeouts: {half_close: 10s}", 9 * time.Second, 3, 3, 27 * time.Second},
		{"timeouts: {half_close: 10s}", 21 * time.Second, 2, 0, 10 * time.Second},
		{"timeouts: {half_close: 0}", time.Second, 2, 0, 0},
		{"timeouts: {idle: 1m}", 14 * time.Second, 2, 2, 28 * time.Second}, // half_close is 15s
		{"timeouts: {idle: 1m}", 16 * time.Second, 1, 0, 15 * time.Second},
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 1m", Limits: c.setting})
		came := false
		m.Apps[0].Delay = func() time.Duration { return c.delay }
		m.Apps[0].OnRequest = func(*protocol.Request) { came = true }
		calls := make([]*proxytest.Call, c.pipelined)
		var raw []byte
		for i := range calls {
			calls[i] = m.Get("/")
			raw = append(raw, calls[i].Raw...)
		}
		calls[0].Raw = raw
		for _, k := range calls[1:] {
			k.Raw = nil // sent with the first
		}
		client := m.Do(calls...)
		m.RunUntil("the first request", func() bool { return came })
		began := m.W.Now()
		m.W.Faults.HalfClose(client.Conn)
		m.RunUntil("the end of the connection", func() bool { return client.Ended })
		got := 0
		for _, k := range calls {
			if k.Err == nil && k.Status == 200 {
				got++
			}
		}
		if took := (m.W.Now() - began).Round(time.Second); got != c.responses || took != c.took {
			t.Errorf("%s, responses after %v: %d of %d in %v", c.setting, c.delay, got, c.pipelined, took)
		}
		m.W.Run(time.Minute)
		m.Settled()
	}
}

// TestHalfClosedTunnel: a client that ends its side before the first bytes in a tunnel are complete may wait for a
// server: the tunnel leaves the loop, which passes the end on.
func TestHalfClosedTunnel(t *testing.T) {
	for _, first := range []string{"", "GE"} {
		m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Match: "match: {method: [CONNECT, GET]}"})
		p := m.DialAndSend(proxytest.Egress, connectCompute)
		m.RunUntil("the tunnel", func() bool { return string(p.Heard) == downstream.Connected })
		m.Clients.Do(func() { p.Conn.Write([]byte(first)) })
		m.W.Faults.HalfClose(p.Conn)
		m.W.Run(50 * time.Millisecond) // less than timeouts.detect
		if len(streams.Requests) != 1 {
			t.Fatalf("%q: %d tunnels left the loop", first, len(streams.Requests))
		}
		if rest := string(streams.Requests[0].Rest); rest != first {
			t.Errorf("left with %q, want %q", rest, first)
		}
		proxytest.CheckStreamsSettled(m, streams)
	}
}

// TestHalfCloseBeforeHandoff: a client may end its side while its request, or the response to it, waits to leave the
// loop. The connection still leaves.
func TestHalfCloseBeforeHandoff(t *testing.T) {
	t.Run("request", func(t *testing.T) {
		m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallMessages})
		m.Apps[0].Delay = func() time.Duration { return 100 * time.Millisecond }
		l := handoffCases()[0]
		p := m.DialAndSend(proxytest.Egress, proxytest.StreamRequest+l.head+l.body[:1000])
		m.W.Run(50 * time.Millisecond)
		m.W.Faults.HalfClose(p.Conn)
		m.RunUntil("a stream", func() bool { return len(streams.Requests) == 1 })
		if body := string(proxytest.WholeBody(t, streams.Requests[0], nil)); body != l.body[:1000] {
			t.Errorf("left with %d bytes", len(body))
		}
		proxytest.CheckStreamsSettled(m, streams)
	})
	t.Run("response", func(t *testing.T) {
		m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallMessages})
		m.Apps[0].RespondWith(proxytest.StreamResponses[0].Says)
		tries, none := 0, true
		m.W.Options.OnDetach = func() error {
			if tries++; tries > 1 && none { // the application's connection leaves first
				return errors.New("too many open files")
			}
			return nil
		}
		p := m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
		m.RunUntil("another try", func() bool { return tries == 3 })
		m.W.Faults.HalfClose(p.Conn)
		m.W.Run(time.Second)
		none = false
		m.RunUntil("a stream", func() bool { return len(streams.Responses) == 1 })
		proxytest.CheckStreamsSettled(m, streams)
	})
}

// TestHalfCloseUnread: a client that has ended its side gets all of a response that it has not read yet. Then the connection
// closes. With timeouts.half_close of 0 the client has left, and the rest of the response is dropped.
func TestHalfCloseUnread(t *testing.T) {
	const size = 2 << 20
	for limits, whole := range map[string]bool{"": true, "timeouts: {half_close: 0}": false} {
		m, _ := newLongResponseMesh(t, limits)
		p := m.DialAndSend(proxytest.Egress, known)
		m.RunUntil("a connection", func() bool { return p.Conn != nil })
		m.W.Faults.PauseReading(p.Conn, true)
		m.W.Run(time.Second)
		m.W.Faults.HalfClose(p.Conn)
		m.W.Run(time.Second)
		m.W.Faults.PauseReading(p.Conn, false)
		heard := m.RunUntilClosed(p)
		if _, body, _ := strings.Cut(heard, "\r\n\r\n"); len(body) == size != whole {
			t.Errorf("%q: the client got %d of %d bytes", limits, len(body), size)
		}
		m.Settled()
	}
}
