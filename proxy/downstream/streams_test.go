package downstream

import (
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
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

// TestFailureOfStream: the failure of a stream is the last response of its connection, and has the id of the request.
func TestFailureOfStream(t *testing.T) {
	for _, toHead := range []bool{false, true} {
		r := StreamRequest{Minor: 1, ToHead: toHead, RequestID: []byte("7")}
		got := string(r.AppendFailure([]byte("before "), fault.Deadline, []byte("now")))
		want := string(AppendFailure([]byte("before "), fault.Deadline, []byte("now"), []byte("7"), http1.ResponseFlags{Minor: 1, Close: true, ToHead: toHead}))
		if got != want || !strings.Contains(got, "Connection: close\r\n") || strings.HasSuffix(got, "\r\n\r\n") != toHead {
			t.Errorf("to HEAD %t: %q, want %q", toHead, got, want)
		}
	}
}
