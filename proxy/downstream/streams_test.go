package downstream

import (
	"testing"

	"github.com/remora-proxy/remora/proxy/config"
)

// TestSetHost: a stream keeps the host of its request, in its canonical form, only for a service that needs it for TLS.
func TestSetHost(t *testing.T) {
	for _, c := range []struct{ sni, authority, want string }{
		{config.SNIHost, "A.Test:443", "a.test"}, {config.SNIHost, "a.test.", "a.test"}, {config.SNIHost, "[::1]:443", "::1"}, {config.SNIHost, "", ""},
		{"b.test", "a.test", ""}, {"", "a.test", ""},
	} {
		var r StreamRequest
		r.SetHost(&config.Service{TLS: config.ServiceTLS{SNI: c.sni}}, []byte(c.authority))
		if r.Host != c.want {
			t.Errorf("sni %q, host %q: %q, want %q", c.sni, c.authority, r.Host, c.want)
		}
	}
}
