package http_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestResetWithinBody checks that a body which ends with the connection is truncated, not
// complete, when the connection is reset.
func TestResetWithinBody(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1}, func(t *testing.T, m *proxytest.Mesh) {
		m.Apps[0].Stop()
		m.W.Net.Listen(m.Apps[0].Addr, m.W.Loop("10.0.1.1-raw"), func() loop.Receiver {
			p := &proxytest.Peer{}
			p.Reply = func([]byte) []byte {
				m.W.At(m.W.Now()+time.Millisecond, func() { m.W.Faults.Reset(p.Conn) })
				return []byte("HTTP/1.1 200 OK\r\n\r\nhalf of")
			}
			return p
		})
		c := m.Get("/")
		m.Do(c)
		m.Finish(c)
		if c.Status != 502 || c.Code != "upstream-reset" {
			t.Errorf("status %d %s with body %q, want 502 upstream-reset", c.Status, c.Code, c.Body)
		}
		m.Settled()
	})
}
