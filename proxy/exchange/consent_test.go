package exchange_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// Requests of TestConsent, and whether each setting of idempotent lets them be sent twice.
var consentCases = []struct {
	request string // method and further headers
	allowed map[string]bool
}{
	{"GET", map[string]bool{"false": true, "true": true, "methods": true, "key": true, "[methods, key]": true}},
	{"PUT", map[string]bool{"true": true, "methods": true, "[methods, key]": true}},
	{"DELETE", map[string]bool{"true": true, "methods": true, "[methods, key]": true}},
	{"OPTIONS", map[string]bool{"true": true, "methods": true, "[methods, key]": true}},
	{"TRACE", map[string]bool{"true": true, "methods": true, "[methods, key]": true}},
	{"POST", map[string]bool{"true": true}},
	{"PATCH", map[string]bool{"true": true}},
	{"put", map[string]bool{"true": true}}, // methods are case-sensitive (RFC 9110 section 9.1)
	{"POST\r\nidempotency-KEY: \"8e03978e\"", map[string]bool{"true": true, "key": true, "[methods, key]": true}},
	{"POST\r\nidempotency-key: bare", map[string]bool{"true": true, "key": true, "[methods, key]": true}},
	{"POST\r\nidempotency-key: ", map[string]bool{"true": true}},
	{"POST\r\nidempotency-key: \"\"", map[string]bool{"true": true}},
	{"POST\r\nidempotency-key: a\r\nidempotency-key: b", map[string]bool{"true": true}},
	{"PUT\r\nauthorization: Negotiate YII", nil}, // a login takes one request
}

// TestConsent: which requests are hedged, retried after a reset, and sent again after their connection, used
// before, was closed.
func TestConsent(t *testing.T) {
	const budget = "timeout: 2s, hedge: {mode: on, delay: 5ms, budget: 1}"
	for how, c := range map[string]struct {
		service string
		setup   func(a *proxytest.App)
	}{
		"hedge":  {budget, func(a *proxytest.App) { a.Delay = func() time.Duration { return 100 * time.Millisecond } }},
		"reset":  {"hedge: {mode: off, budget: 1}", func(a *proxytest.App) { a.ResetAll = true }},
		"replay": {noResets, func(a *proxytest.App) { a.DropNext = true }},
	} {
		for _, k := range consentCases {
			for _, setting := range []string{"false", "true", "methods", "key", "[methods, key]"} {
				o := proxytest.MeshOptions{Service: proxytest.Fields("idempotent: "+setting, c.service), Provider: "retry: {on: []}"}
				if how == "replay" {
					o.Apps, o.Provider = 1, noResets
				}
				proxytest.EachTopology(t, o, func(t *testing.T, m *proxytest.Mesh) {
					m.WarmUpEach(20)
					sent := 0
					for _, a := range m.Apps {
						c.setup(a)
						a.OnRequest = func(*protocol.Request) { sent++ }
					}
					call := m.Get("/")
					call.Raw = bytes.Replace(call.Raw, []byte("GET / HTTP/1.1"), requestLine(k.request), 1)
					m.Complete(call)
					if want := k.allowed[setting]; (sent > 1) != want {
						t.Errorf("idempotent: %s, %s of %q: sent %d times", setting, how, k.request, sent)
					}
					m.Settled()
				})
			}
		}
	}
}

// requestLine returns the request line of a case, and its headers but for the last CRLF.
func requestLine(request string) []byte {
	method, headers, more := strings.Cut(request, "\r\n")
	line := method + " / HTTP/1.1"
	if more {
		line += "\r\n" + headers
	}
	return []byte(line)
}

// TestConsentCrossesLinks: the provider sends a request twice that the consumer may, and those that its own
// service allows.
func TestConsentCrossesLinks(t *testing.T) {
	for _, c := range []struct {
		consumer, provider string
		sent               int
	}{
		{"false", "false", 1}, {"methods", "false", 2}, {"false", "methods", 2},
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Service: "retry: {on: []}, idempotent: " + c.consumer, Provider: "idempotent: " + c.provider})
		m.WarmUpEach(20)
		sent := 0
		m.Apps[0].DropNext = true
		m.Apps[0].OnRequest = func(*protocol.Request) { sent++ }
		call := m.Get("/")
		call.Raw = bytes.Replace(call.Raw, []byte("GET"), []byte("PUT"), 1)
		m.Complete(call)
		if sent != c.sent {
			t.Errorf("consumer %s, provider %s: sent %d times, want %d", c.consumer, c.provider, sent, c.sent)
		}
		m.Settled()
	}
}

// TestKeyInUse: 409 says that another attempt with the same Idempotency-Key is being processed. It wins
// only if that attempt has no response, or without a key.
func TestKeyInUse(t *testing.T) {
	const slow, quick = 50 * time.Millisecond, 10 * time.Millisecond
	type response struct {
		status int
		took   time.Duration
	}
	for _, c := range []struct {
		name, idempotent, key string
		primary, hedge        response
		want                  int
	}{
		{"hedge refused", "key", "a", response{200, slow}, response{409, quick}, 200},
		{"hedge refused, primary fails", "key", "a", response{503, slow}, response{409, quick}, 503},
		{"hedge refused late, primary fails", "key", "a", response{503, quick}, response{409, slow}, 503},
		{"primary refused", "key", "a", response{409, quick}, response{200, slow}, 200},
		{"both refused", "key", "a", response{409, slow}, response{409, quick}, 409},
		{"no key", "[methods, key]", "", response{200, slow}, response{409, quick}, 409},
		{"no key asked for", "true", "a", response{200, slow}, response{409, quick}, 409},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := proxytest.MeshOptions{Apps: 2, Service: "timeout: 2s, hedge: {mode: on, delay: 5ms, budget: 1}, idempotent: " + c.idempotent}
			proxytest.EachTopology(t, o, func(t *testing.T, m *proxytest.Mesh) {
				m.WarmUpEach(20)
				next, after := c.primary, c.hedge
				for _, a := range m.Apps {
					a.OnRequest = func(*protocol.Request) {
						took := next.took
						a.Delay, a.Status = func() time.Duration { return took }, next.status
						next = after
					}
				}
				call := m.Get("/", "idempotency-key: "+c.key)
				call.Raw = bytes.Replace(call.Raw, []byte("GET"), []byte("PUT"), 1)
				m.Complete(call)
				if call.Status != c.want {
					t.Errorf("status %d, want %d", call.Status, c.want)
				}
				m.Settled()
			})
		})
	}
}
