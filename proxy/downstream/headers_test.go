package downstream

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
)

// TestRemovedHeadersAreCleared checks that a pooled exchange does not keep the memory of headers
// that prepareRequest removed.
func TestRemovedHeadersAreCleared(t *testing.T) {
	ex := &exchange.Exchange{}
	for range 100 {
		ex.Request.Headers = append(ex.Request.Headers, protocol.Header{Name: []byte("x-remora-attempt"), Value: []byte("1")})
	}
	prepareRequest(ex, rand.NewPCG(1, 2), &Origin{Listener: &exchange.Listener{}}, protocol.Header{})
	for i, h := range ex.Request.Headers[:100] {
		if i >= len(ex.Request.Headers) && (h.Name != nil || h.Value != nil) {
			t.Fatalf("header %d of %d is %q", i, len(ex.Request.Headers), h)
		}
	}
}

// TestCredentials checks what credentials that log in a connection mean for a request. Those of a CONNECT are
// not sent on.
func TestCredentials(t *testing.T) {
	for _, c := range []struct {
		method, name, value string
		login               bool
		refusal             *fault.Failure
	}{
		{"GET", "Authorization", "Basic x", false, nil},
		{"GET", "authorization", "Negotiate YII", true, nil},
		{"GET", "Proxy-Authorization", "NTLM", true, fault.ConnectionLogin},
		{"CONNECT", "Proxy-Authorization", "NTLM", false, nil},
		{"GET", "Proxy-Authenticate", "NTLM", false, nil},
	} {
		ex := &exchange.Exchange{}
		ex.Request.Method = []byte(c.method)
		ex.Request.Headers = []protocol.Header{{Name: []byte(c.name), Value: []byte(c.value)}}
		prepareRequest(ex, rand.NewPCG(1, 2), &Origin{Listener: &exchange.Listener{}}, protocol.Header{})
		if ex.Request.Login != c.login || ex.Refusal != c.refusal {
			t.Errorf("%s with %s: %s: %t, %v", c.method, c.name, c.value, ex.Request.Login, ex.Refusal)
		}
		if string(protocol.Find(ex.Request.Headers, strings.ToLower(c.name))) != c.value {
			t.Errorf("%s: %s is left of %s", c.method, ex.Request.Headers, c.name)
		}
	}
}
