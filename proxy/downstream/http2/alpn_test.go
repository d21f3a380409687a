package http2_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// alpnConn is a connection over TLS whose client has chosen HTTP/2.
type alpnConn struct{ *proxytest.NullConn }

func (alpnConn) Protocol() string { return "h2" }

// openALPN returns a mesh, and the sidecar's end of a connection that has just opened.
func openALPN(t *testing.T) (*proxytest.AllocMesh, *proxytest.NullConn) {
	t.Helper()
	m := proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: 1})
	_, accept := m.Sidecar(`
listeners: [{name: egress, address: "127.0.0.1:1", protocol: http, tls: {cert: cert.pem, key: key.pem}}]
routes: [{service: compute}]
services: {compute: {discover: static, endpoints: ["192.0.2.9:1"], protocol: http}}
timeouts: {idle: 20s, header: 20s}`)
	l, s := accept()
	c, _ := m.Net.Connect(l, s, nil, nil)
	s.OnOpen(alpnConn{c})
	return m, c
}

// TestGreetingWithHandshake: a client whose first bytes come with the end of the TLS handshake gets SETTINGS together with their acknowledgment.
func TestGreetingWithHandshake(t *testing.T) {
	m, c := openALPN(t)
	c.Deliver(append([]byte(http2.Preface), proxytest.Frame(proxytest.FrameSettings, 0, "")...))
	m.Net.Pump()
	settings := 0
	proxytest.EachFrame(c.Out, func(f []byte) {
		if f[3] == proxytest.FrameSettings {
			settings++
		}
	})
	if c.Writes != 1 || settings != 2 {
		t.Errorf("%d SETTINGS in %d writes", settings, c.Writes)
	}
}

// TestSilentAfterHandshake: a client that has chosen HTTP/2 in the TLS handshake gets SETTINGS before it sends anything, and loses the
// connection if it never does.
func TestSilentAfterHandshake(t *testing.T) {
	m, c := openALPN(t)
	m.Net.Pump()
	if len(c.Out) < 9 || c.Out[3] != proxytest.FrameSettings || c.Closed {
		t.Errorf("received %x, closed %t", c.Out, c.Closed)
	}
	for second := 1; second <= 30; second++ {
		m.Net.Advance(time.Second)
		m.Net.Pump()
		if second < 20 && c.Closed {
			t.Fatalf("the connection closes after %d s", second)
		}
	}
	if !c.Closed {
		t.Error("the connection stays open")
	}
}
