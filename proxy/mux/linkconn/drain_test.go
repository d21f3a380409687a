package linkconn_test

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestDrainLimit: a link whose peer is no longer accepted closes behind its last response, or after timeouts.drain, and the log says
// the latter. More news of the kind give it no more time.
func TestDrainLimit(t *testing.T) {
	const says = "requests in flight with a peer that is no longer accepted, timeouts.drain passed"
	for _, c := range []struct {
		takes, closes time.Duration // takes is 0 without a request
		late          bool
	}{{0, time.Second, false}, {5 * time.Second, 5 * time.Second, false}, {time.Minute, 21 * time.Second, true}} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "timeout: 2m", Limits: "timeouts: {drain: 20s}"})
		m.Apps[0].Delay = func() time.Duration { return c.takes }
		p := &proxytest.Peer{Reply: pong, Says: proxytest.LinkFrames(func(w *link.Writer) {
			if c.takes > 0 {
				w.Request(1, proxytest.LinkRequest, time.Minute, nil)
			}
		})}
		m.DialIngress(p)
		m.W.Run(time.Second)
		m.W.Faults.Distrust(p.Conn)
		if m.W.Run(2 * time.Second); c.takes > 0 {
			m.W.Faults.Distrust(p.Conn)
		}
		m.RunUntil("the close", func() bool { return p.Ended })
		if at := m.W.Now(); c.takes > 0 && at < c.closes-100*time.Millisecond || at > max(c.closes, 3*time.Second)+100*time.Millisecond {
			t.Errorf("the link has closed after %v, want %v", at, c.closes)
		}
		m.W.Run(time.Minute)
		if n := strings.Count(m.Nodes[1].LogText.String(), says); n > 1 || (n == 1) != c.late {
			t.Errorf("late %t: the log has %q", c.late, m.Nodes[1].LogText.String())
		}
		m.Settled()
	}
}
