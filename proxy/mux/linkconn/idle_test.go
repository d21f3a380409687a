package linkconn_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestIdleLinkLosesNoRequest checks that no request is lost when an idle link closes while the
// request is on its way, although it must not be sent twice.
func TestIdleLinkLosesNoRequest(t *testing.T) {
	for after := time.Duration(0); after < 6*time.Millisecond; after += 40 * time.Microsecond {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Seed: uint64(after), Service: "retry: {on: [connect]}"})
		m.WarmUp(1)
		cl := m.Dial(proxytest.Egress)
		m.W.Run(70*time.Second + after - m.W.Now()) // the seventh keepalive of either end
		c := m.Post(10)
		m.Clients.Do(func() { cl.Calls = []*proxytest.Call{c}; cl.Send() })
		m.OK(c)
		if t.Failed() {
			t.Fatalf("with a request %v after seven keepalives", after)
		}
	}
}
