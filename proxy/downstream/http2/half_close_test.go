package http2_test

import (
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
		"served":      {"timeouts: {half_close: 1m}", 55 * time.Second, 10, 200, 55 * time.Second}, // longer than two PINGs take
		"late":        {"timeouts: {half_close: 5s}", 20 * time.Second, 10, 0, 5 * time.Second},
		"off":         {"timeouts: {half_close: 0}", time.Second, 10, 0, 0},
		"window shut": {"timeouts: {write: 3s}", time.Second, 5000, 0, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 2m", Limits: c.setting})
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
			m.RunUntil("the end of the connection", func() bool { return client.ended })
			for _, a := range []*reply{first, second} {
				if served := a.done && a.Status == 200; served != (c.status == 200) {
					t.Errorf("done %t, status %d", a.done, a.Status)
				}
			}
			if took := (m.W.Now() - began).Round(time.Second); took != c.took {
				t.Errorf("the connection ended after %v, want %v", took, c.took)
			}
			if incomplete.done || came != 2 {
				t.Errorf("the incomplete request: done %t, %d requests came", incomplete.done, came)
			}
			m.W.Run(2 * time.Minute)
			m.Settled()
		})
	}
}

// TestHalfCloseProgress: timeouts.half_close bounds the time without a response, not that of all responses.
func TestHalfCloseProgress(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 2m", Limits: "timeouts: {half_close: 5s}"})
	n := 0
	m.Apps[0].Delay = func() time.Duration { n++; return time.Duration(n) * 4 * time.Second }
	came := 0
	m.Apps[0].OnRequest = func(*protocol.Request) { came++ }
	client := dial(m, 1000)
	client.deaf = true
	first, second := client.send(request("GET", "/", 0)), client.send(request("GET", "/", 0))
	m.RunUntil("the requests", func() bool { return came == 2 })
	m.W.Faults.HalfClose(client.conn)
	m.RunUntil("the end of the connection", func() bool { return client.ended })
	for i, a := range []*reply{first, second} {
		if !a.done || a.Status != 200 {
			t.Errorf("response %d: done %t, status %d", i, a.done, a.Status)
		}
	}
}
