package exchange_test

import (
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestGRPCPushback: a server says when the next attempt may follow, or that none may. A retry that
// can't end in time is not made.
func TestGRPCPushback(t *testing.T) {
	for _, c := range []struct {
		says     string
		attempts int
		least    time.Duration
	}{
		{"", 2, 0},
		{"0", 2, 0},
		{"50", 2, 50 * time.Millisecond},
		{"-1", 1, 0},
		{"soon", 1, 0},
		{"2000", 1, 0},
	} {
		t.Run(c.says, func(t *testing.T) {
			proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 2, Service: "idempotent: true, timeout: 1s, retry: {on: [unavailable]}, hedge: {mode: on, delay: 20ms}"},
				func(t *testing.T, m *proxytest.Mesh) {
					seen := 0
					for _, a := range m.Apps {
						a.OnRequest = func(*protocol.Request) {
							seen++
							more := ""
							if c.says != "" {
								more = "grpc-retry-pushback-ms: " + c.says + "\r\n"
							}
							sayGRPC(a, protocol.GRPCUnavailable, more)
							if seen > 1 {
								sayGRPC(a, protocol.GRPCOK, "")
							}
						}
					}
					k := m.Complete(m.CallGRPC())
					want := map[bool]string{true: "0", false: "14"}[c.attempts > 1]
					if seen != c.attempts || k.GRPCStatus() != want || k.Took < c.least || k.Took > c.least+15*time.Millisecond {
						t.Errorf("%d attempts, status %s after %v, want %d, %s after %v", seen, k.GRPCStatus(), k.Took, c.attempts, want, c.least)
					}
					m.Settled()
				})
		})
	}
}

// TestGRPCPushbackEnds: a caller leaves, or its time is up, while a retry waits.
func TestGRPCPushbackEnds(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 2, Service: "idempotent: true, timeout: 1s, retry: {attempts: 9, on: [unavailable]}, hedge: {budget: 1, mode: on, delay: 5ms}"},
		func(t *testing.T, m *proxytest.Mesh) {
			for _, a := range m.Apps {
				sayGRPC(a, protocol.GRPCUnavailable, "grpc-retry-pushback-ms: 400\r\n")
			}
			gone, late := m.CallGRPC(), m.CallGRPC()
			client := m.Do(gone)
			m.Do(late)
			m.W.Run(100 * time.Millisecond)
			client.Leave()
			m.Finish(late)
			// Tries at 0, 400 and 800 ms; none can follow.
			if s := m.Consumer.Stats("compute"); late.GRPCStatus() != "14" || late.Took > 900*time.Millisecond || s.Retries != 2 || s.Hedges != 0 {
				t.Errorf("status %s after %v; %d retries, %d hedges", late.GRPCStatus(), late.Took, s.Retries, s.Hedges)
			}
			m.Settled()
		})
}

// TestGRPCHedge: a response with a code that another attempt may better does not win while one is
// in flight; with any other code it wins at once.
func TestGRPCHedge(t *testing.T) {
	for _, c := range []struct {
		name   string
		hedge  protocol.GRPCCode
		on     string
		status string
		took   time.Duration // about
	}{
		{"ok", protocol.GRPCOK, "[]", "0", 6 * time.Millisecond},
		{"fatal", protocol.GRPCInvalidArgument, "[]", "3", 6 * time.Millisecond},
		{"fatal, too", protocol.GRPCResourceExhausted, "[unavailable]", "8", 6 * time.Millisecond},
		{"not fatal", protocol.GRPCResourceExhausted, "[resource-exhausted]", "0", 50 * time.Millisecond},
		{"a failure of the server", protocol.GRPCInternal, "[]", "0", 50 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 3, Service: "idempotent: true, timeout: 2s, hedge: {mode: on, delay: 5ms, budget: 1}, retry: {on: " + c.on + "}"},
				func(t *testing.T, m *proxytest.Mesh) {
					seen := 0
					for _, a := range m.Apps {
						a.OnRequest = func(*protocol.Request) {
							sayGRPC(a, protocol.GRPCOK, "")
							wait := 50 * time.Millisecond
							if seen++; seen > 1 {
								sayGRPC(a, c.hedge, "")
								wait = time.Millisecond
							}
							a.Delay = func() time.Duration { return wait }
						}
					}
					k := m.Complete(m.CallGRPC())
					if k.GRPCStatus() != c.status || k.Took < c.took || k.Took > c.took+5*time.Millisecond {
						t.Errorf("status %s after %v, want %s after %v", k.GRPCStatus(), k.Took, c.status, c.took)
					}
					if s := m.Consumer.Stats("compute"); s.Hedges != 1 || seen != 2 {
						t.Errorf("%d hedges, %d attempts", s.Hedges, seen)
					} else if won := c.took < 50*time.Millisecond; won != (s.HedgesWon == 1) {
						t.Errorf("%d hedges won", s.HedgesWon)
					}
					m.Settled()
				})
		})
	}
}

// TestGRPCHedgePushback: what one hedge is told holds for the next one.
func TestGRPCHedgePushback(t *testing.T) {
	for says, want := range map[string][]time.Duration{
		"":   {0, 5 * time.Millisecond, 10 * time.Millisecond},
		"30": {0, 5 * time.Millisecond, 37 * time.Millisecond}, // after the response, at 7 ms
		"-1": {0, 5 * time.Millisecond},
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 4, OneHop: true,
			Service: "idempotent: true, timeout: 2s, hedge: {mode: on, delay: 5ms, budget: 1, max: 2}, retry: {on: [unavailable]}"})
		var began time.Duration
		var at []time.Duration
		for _, a := range m.Apps {
			a.OnRequest = func(*protocol.Request) {
				if len(at) == 0 {
					began = m.W.Now()
				}
				at = append(at, (m.W.Now() - began).Round(time.Millisecond))
				wait := time.Millisecond
				if len(at) == 1 {
					wait = 100 * time.Millisecond
				}
				a.Delay = func() time.Duration { return wait }
				sayGRPC(a, protocol.GRPCOK, "")
				if len(at) > 1 {
					more := ""
					if says != "" {
						more = "grpc-retry-pushback-ms: " + says + "\r\n"
					}
					sayGRPC(a, protocol.GRPCUnavailable, more)
				}
			}
		}
		k := m.Complete(m.CallGRPC())
		if k.GRPCStatus() != "0" || !slices.Equal(at, want) {
			t.Errorf("pushback %q: status %s, attempts at %v, want %v", says, k.GRPCStatus(), at, want)
		}
		m.Settled()
	}
}
