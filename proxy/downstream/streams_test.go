package downstream

import (
	"testing"

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
	for toHead, body := range map[bool]string{false: "no answer in time\n", true: ""} {
		r := StreamRequest{Minor: 1, ToHead: toHead, RequestID: []byte("7")}
		want := "before HTTP/1.1 504 Gateway Timeout\r\nContent-Type: text/plain; charset=utf-8\r\nX-Remora-Error: deadline\r\nDate: now\r\n" +
			"X-Request-Id: 7\r\nContent-Length: 18\r\nConnection: close\r\n\r\n" + body
		if got := string(r.AppendFailure([]byte("before "), fault.Deadline, []byte("now"))); got != want {
			t.Errorf("to HEAD %t: %q, want %q", toHead, got, want)
		}
	}
}
