package exchange_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestFirstRefusal: a login in several steps is no reason to forget an earlier one.
func TestFirstRefusal(t *testing.T) {
	for _, first := range []*fault.Failure{nil, fault.BadPath, fault.ConnectionLogin} {
		ex := &exchange.Exchange{}
		ex.Refusal = first
		ex.NoteLogin(protocol.LoginSteps)
		if want := cmp.Or(first, fault.ConnectionLogin); ex.Refusal != want || !ex.Request.Login {
			t.Errorf("refused as %v, want %v", ex.Refusal, want)
		}
	}
}

const logsIn = "Authorization: Negotiate YII"

// TestLoginSentOnce: a request whose credentials log in a connection reaches one application, once, where
// others are hedged, retried, sent again, collapsed or served from the cache.
func TestLoginSentOnce(t *testing.T) {
	for name, c := range map[string]struct {
		service, provider, match string
		setup                    func(a *proxytest.App)
		calls                    int
		others                   int // requests at the applications without credentials
		want                     int // with them
	}{
		"hedge": {service: proxytest.HedgeOn, setup: func(a *proxytest.App) {
			a.Delay = func() time.Duration { return 100 * time.Millisecond }
		}, calls: 1, others: 2, want: 1},
		"retry of a status": {service: "idempotent: true, retry: {attempts: 1, on: [5xx]}", setup: func(a *proxytest.App) {
			a.Status = 503
		}, calls: 1, others: 2, want: 1},
		"retry after a reset": {service: "idempotent: true, retry: {attempts: 1, on: [reset]}", provider: "retry: {on: []}", setup: func(a *proxytest.App) {
			a.ResetAll = true
		}, calls: 1, others: 2, want: 1},
		"retry after per_try_timeout": {service: "idempotent: true, timeout: 1s, retry: {attempts: 1, on: [reset], per_try_timeout: 300ms}", setup: func(a *proxytest.App) {
			a.Delay = func() time.Duration { return 10 * time.Second }
		}, calls: 1, others: 2, want: 1},
		"collapse": {service: "hedge: {mode: off, delay: 10s}, timeout: 1m", match: "collapse: true", setup: func(a *proxytest.App) {
			a.Delay = func() time.Duration { return 100 * time.Millisecond }
		}, calls: 3, others: 1, want: 3},
		"cache": {match: "cache: {bytes: 1MiB}", setup: func(a *proxytest.App) {
			a.ExtraHeaders = "cache-control: public, max-age=60\r\n"
		}, calls: 3, others: 1, want: 3},
	} {
		for _, header := range []string{"X-Other: Negotiate YII", logsIn} {
			want := c.others
			if header == logsIn {
				want = c.want
			}
			t.Run(name+" "+header, func(t *testing.T) {
				proxytest.EachTopology(t, proxytest.MeshOptions{Service: c.service, Provider: c.provider, Match: c.match}, func(t *testing.T, m *proxytest.Mesh) {
					got := 0
					for _, a := range m.Apps {
						a.OnRequest = func(*protocol.Request) { got++ }
						c.setup(a)
					}
					for range c.calls {
						call := m.Get("/x", header).Same()
						m.Do(call)
						if name == "cache" {
							m.Finish(call)
						}
					}
					m.W.Run(20 * time.Second)
					m.Settled()
					if got != want {
						t.Errorf("the applications got %d requests, want %d", got, want)
					}
				})
			})
		}
	}
}

// TestLoginInSteps: credentials that need several requests on one connection are refused, before any
// application gets them.
func TestLoginInSteps(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{}, func(t *testing.T, m *proxytest.Mesh) {
		for _, a := range m.Apps {
			a.OnRequest = func(req *protocol.Request) { t.Errorf("an application got %s", req.Headers) }
		}
		c := m.Complete(m.Get("/x", "Proxy-Authorization: NTLM TlRM"))
		if c.Status != 501 || c.Code != "connection-login" {
			t.Errorf("status %d %s", c.Status, c.Code)
		}
		m.Settled()
	})
}
