package exchange_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// sayGRPC lets an application end its calls with a code, and with more fields.
func sayGRPC(a *proxytest.App, code protocol.GRPCCode, more string) {
	a.Trailers = fmt.Sprintf("grpc-status: %d\r\n%s", code, more)
}

// sayGRPCAlone lets it end them with headers alone.
func sayGRPCAlone(a *proxytest.App, code protocol.GRPCCode, more string) {
	a.Trailers, a.Body = "", func(*protocol.Request) []byte { return nil }
	a.ExtraHeaders = fmt.Sprintf("content-type: application/grpc\r\ngrpc-status: %d\r\n%s", code, more)
}

// TestGRPCNames: the configuration knows the codes that the exchange knows.
func TestGRPCNames(t *testing.T) {
	if !slices.Equal(config.GRPCErrors, protocol.GRPCErrorNames()) {
		t.Errorf("the configuration has %q, the exchange %q", config.GRPCErrors, protocol.GRPCErrorNames())
	}
}

// TestGRPCOutcome: each code counts, at every hop, as the status that it stands for.
func TestGRPCOutcome(t *testing.T) {
	for form, say := range map[string]func(*proxytest.App, protocol.GRPCCode, string){"trailers": sayGRPC, "headers alone": sayGRPCAlone} {
		proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.LogAll}, func(t *testing.T, m *proxytest.Mesh) {
			for code := range protocol.GRPCOther {
				say(m.Apps[0], code, "")
				c := m.Complete(m.CallGRPC())
				m.OK(c)
				if got := c.GRPCStatus(); got != fmt.Sprint(uint8(code)) {
					t.Errorf("%s: the caller got %q, want %d", form, got, code)
				}
			}
			m.Settled()
			for i, n := range m.Nodes {
				s := n.Stats([]string{"compute", "local"}[min(i, 1)])
				var outcomes [stats.Outcomes]uint64
				failed := uint64(0)
				for code := range protocol.GRPCOther {
					if s.GRPC[code] != 1 {
						t.Errorf("%s, %s: %d calls with %v", form, n.Host, s.GRPC[code], code)
					}
					outcomes[stats.OutcomeOf(fault.StatusOfGRPC(code))]++
				}
				if failed = outcomes[stats.Outcome5xx]; s.Outcomes != outcomes || failed != 5 {
					t.Errorf("%s, %s: outcomes %v, want %v", form, n.Host, s.Outcomes, outcomes)
				}
				for _, svc := range n.Report().Services {
					for _, e := range svc.Endpoints {
						if e.Stats.Ended() > 0 && e.Stats.Failed() != failed {
							t.Errorf("%s, %s: %d failures of %s, want %d", form, n.Host, e.Stats.Failed(), e.Addr, failed)
						}
					}
				}
				for j, line := range n.AccessLines() {
					if code := protocol.GRPCCode(j); line.GRPC != code.String() || line.Status != 200 {
						t.Errorf("%s, %s: the line of %v says %d %q", form, n.Host, code, line.Status, line.GRPC)
					}
				}
			}
		})
	}
}

// TestGRPCOfHTTP: gRPC calls have a code as well if the sidecar responds, or a proxy that speaks HTTP;
// HTTP requests have none.
func TestGRPCOfHTTP(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Service: "retry: {on: []}, timeout: 50ms"})
	one := func(c *proxytest.Call) {
		t.Helper()
		m.Complete(c)
	}
	a := m.Apps[0]
	one(m.Post(10))
	a.Status = 503
	one(m.Post(10))
	one(m.CallGRPC())
	a.Status = 404
	one(m.CallGRPC())
	a.Delay = func() time.Duration { return time.Second }
	one(m.CallGRPC())
	one(m.Post(10))
	gone := m.CallGRPC()
	client := m.Do(gone)
	m.W.Run(10 * time.Millisecond)
	client.Leave()
	m.Settled()
	want := stats.GRPCCodes{
		protocol.GRPCUnavailable: 1, protocol.GRPCUnimplemented: 1, protocol.GRPCDeadlineExceeded: 1, protocol.GRPCCancelled: 1,
	}
	if got := m.Consumer.Stats("compute").GRPC; got != want {
		t.Errorf("codes %v, want %v", got, want)
	}
}

// TestGRPCRetry: a call is retried if retry.on has its code, and it may be sent twice. A
// HTTP status in place of a code counts as well.
func TestGRPCRetry(t *testing.T) {
	unavailable := func(a *proxytest.App) { sayGRPC(a, protocol.GRPCUnavailable, "") }
	for _, c := range []struct {
		name, policy string
		bad          func(a *proxytest.App)
		retried      bool
	}{
		{"listed", "idempotent: true, retry: {on: [unavailable]}", unavailable, true},
		{"headers alone", "idempotent: true, retry: {on: [unavailable]}", func(a *proxytest.App) { sayGRPCAlone(a, protocol.GRPCUnavailable, "") }, true},
		{"second of a list", "idempotent: true, retry: {on: [aborted, resource-exhausted]}", func(a *proxytest.App) { sayGRPC(a, protocol.GRPCResourceExhausted, "") }, true},
		{"a status of HTTP", "idempotent: true, retry: {on: [unavailable]}", func(a *proxytest.App) { a.Status = 503 }, true},
		{"no known code", "idempotent: true, retry: {on: [unknown]}", func(a *proxytest.App) { a.Trailers = "grpc-status: 99\r\n" }, true},
		{"not listed", "idempotent: true, retry: {on: [internal]}", unavailable, false},
		{"a list of HTTP", "idempotent: true, retry: {on: [5xx]}", unavailable, false},
		{"the default", "idempotent: true", unavailable, false},
		{"not idempotent", "retry: {on: [unavailable]}", unavailable, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 2, Service: proxytest.Fields(c.policy, "hedge: {budget: 1}")}, func(t *testing.T, m *proxytest.Mesh) {
				sayGRPC(m.Apps[1], protocol.GRPCOK, "")
				c.bad(m.Apps[0])
				failed := 0
				for range 10 {
					k := m.Complete(m.CallGRPC())
					if k.GRPCStatus() != "0" {
						failed++
					}
				}
				if s := m.Consumer.Stats("compute"); c.retried != (s.Retries > 0) || c.retried != (failed == 0) {
					t.Errorf("%d calls failed, %d retries", failed, s.Retries)
				}
				m.Settled()
			})
		})
	}
}

// TestGRPCEjection: endpoints whose calls fail are ejected, and those are not that refuse the calls of
// a caller who is wrong.
func TestGRPCEjection(t *testing.T) {
	for code, ejected := range map[protocol.GRPCCode]uint64{
		protocol.GRPCInternal: 1, protocol.GRPCUnavailable: 1, protocol.GRPCUnknown: 1,
		protocol.GRPCNotFound: 0, protocol.GRPCUnimplemented: 0, protocol.GRPCResourceExhausted: 0,
	} {
		proxytest.EachTopology(t, proxytest.MeshOptions{Service: fmt.Sprintf(outlierConfig, "1h", 0.5)}, func(t *testing.T, m *proxytest.Mesh) {
			for _, a := range m.Apps {
				sayGRPC(a, protocol.GRPCOK, "")
			}
			sayGRPC(m.Apps[0], code, "")
			m.CountServed(20, 100)
			if n := m.Consumer.Stats("compute").Ejections[outlier.ByConsecutive]; n != ejected {
				t.Errorf("%v: %d ejections, want %d", code, n, ejected)
			}
			m.Settled()
		})
	}
}

// TestGRPCBreaker: calls that fail open the breaker.
func TestGRPCBreaker(t *testing.T) {
	for code, opens := range map[protocol.GRPCCode]bool{
		protocol.GRPCUnavailable: true, protocol.GRPCDataLoss: true, protocol.GRPCOther: true,
		protocol.GRPCInvalidArgument: false, protocol.GRPCPermissionDenied: false,
	} {
		proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1, Service: "retry: {on: []}, breaker: {consecutive: 3, open: 2s}"},
			func(t *testing.T, m *proxytest.Mesh) {
				sayGRPCAlone(m.Apps[0], code, "")
				for range 3 {
					m.Complete(m.CallGRPC())
				}
				if got := m.Consumer.BreakerState("compute") == stats.BreakerOpen; got != opens {
					t.Errorf("%v: open is %v", code, got)
				}
				m.Settled()
			})
	}
}

// TestGRPCPreviousAttempts: the application sees how many attempts came before, its client's and the
// sidecar's.
func TestGRPCPreviousAttempts(t *testing.T) {
	const name = protocol.HeaderGRPCPrevious
	for said, want := range map[string]string{
		"":                              "-,1,2",
		name + ": 2":                    "2,3,4",
		name + ": some":                 "some,1,2",
		"content-type: text/plain":      "-,-,-",
		"x-remora-attempt: 0":           "-,1,2",
		"Grpc-Previous-Rpc-Attempts: 1": "1,2,3",
	} {
		proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 3, Service: "idempotent: true, retry: {attempts: 2, on: [unavailable, 5xx]}, hedge: {budget: 1}"},
			func(t *testing.T, m *proxytest.Mesh) {
				var seen []string
				for _, a := range m.Apps {
					sayGRPC(a, protocol.GRPCUnavailable, "")
					a.Status = 503
					a.OnRequest = func(req *protocol.Request) {
						value := "-"
						for _, h := range req.Headers {
							if protocol.EqualFold(h.Name, name) {
								value = string(h.Value)
							}
						}
						seen = append(seen, value)
					}
				}
				k := m.CallGRPC(said)
				if strings.HasPrefix(said, "content") {
					k = m.Post(10, said)
				} else if said == "" {
					k = m.CallGRPC()
				}
				m.Complete(k)
				if got := strings.Join(seen, ","); got != want {
					t.Errorf("%q: %s, want %s", said, got, want)
				}
				m.Settled()
			})
	}
}

// TestGRPCTimeout: the time that a client gives the call is up at every hop, and the application gets
// what is left of it.
func TestGRPCTimeout(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1}, func(t *testing.T, m *proxytest.Mesh) {
		var left time.Duration
		m.Apps[0].OnRequest = func(req *protocol.Request) {
			left, _ = protocol.ParseTimeout(protocol.GRPCTimeout, protocol.Find(req.Headers, protocol.HeaderGRPCTimeout))
		}
		sayGRPC(m.Apps[0], protocol.GRPCOK, "")
		k := m.Complete(m.CallGRPC("grpc-timeout: 100m"))
		if k.GRPCStatus() != "0" || left <= 0 || left >= 100*time.Millisecond {
			t.Errorf("status %s, the application had %v", k.GRPCStatus(), left)
		}
		m.Apps[0].Delay = func() time.Duration { return time.Second }
		late := m.Complete(m.CallGRPC("grpc-timeout: 100m"))
		if late.Code != "deadline" || late.Took < 90*time.Millisecond || late.Took > 120*time.Millisecond {
			t.Errorf("%d %s after %v", late.Status, late.Code, late.Took)
		}
		m.Settled()
	})
}
