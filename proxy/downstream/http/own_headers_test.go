package http_test

import (
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestForgedError checks that an application can't say x-remora-error, or anything else in the
// name of a sidecar, while the codes of both sidecars reach the client.
func TestForgedError(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1}, func(t *testing.T, m *proxytest.Mesh) {
		m.Apps[0].ExtraHeaders = "x-remora-error: no-route\r\nX-REMORA-Anything: 1\r\nx-remora: kept\r\ndate: today\r\n"
		call := m.Get("/")
		m.Do(call)
		m.OK(call)
		var lines []string
		for _, h := range call.Headers {
			if name := strings.ToLower(string(h.Name)); strings.HasPrefix(name, "x-remora") || name == "date" {
				lines = append(lines, name+": "+string(h.Value))
			}
		}
		proxytest.Equal(t, "the client's headers", strings.Join(lines, ", "), "x-remora: kept, date: today")

		m.Apps[0].Stop()
		m.Apps[0].ResetAll = true
		failed := m.Get("/")
		m.Do(failed)
		m.Finish(failed)
		proxytest.Equal(t, "the code of a lost connection", failed.Code, "upstream-reset")
	})
}

// TestUnsafeResponse: a response whose headers can't be written safely does not reach the client.
func TestUnsafeResponse(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	m.RespondOverLink(&protocol.Response{Status: 200, DeclaredLength: -1, Headers: []protocol.Header{{Name: []byte("x"), Value: []byte("a\r\nb: c")}}})
	p := m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
	m.RunUntil("a response", func() bool { return strings.HasSuffix(string(p.Heard), "\n") })
	if heard := string(p.Heard); !strings.HasPrefix(heard, "HTTP/1.1 502 ") || strings.Contains(heard, "b: c") {
		t.Errorf("received %q", heard)
	}
	m.W.Faults.Reset(p.Conn)
	m.Settled()
}

// TestSecureListener: a client of a port with TLS speaks HTTP/1.1 if it chose no protocol in the handshake. Only there may
// a target be for https.
func TestSecureListener(t *testing.T) {
	for listener, want := range map[string]string{"": "HTTP/1.1 400 ", "tls: {cert: c, key: k}": "HTTP/1.1 200 "} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Listener: listener})
		p := m.DialAndSend(proxytest.Egress, "GET https://compute/ HTTP/1.1\r\nHost: compute\r\nConnection: close\r\n\r\n")
		if heard := m.RunUntilClosed(p); !strings.HasPrefix(heard, want) {
			t.Errorf("%q: heard %.200q, want %s", listener, heard, want)
		}
		m.Settled()
	}
}
