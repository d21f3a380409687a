package http_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestLongResponseForNobody: a long response whose client has gone is not received to its end. No one
// would count its memory, nor shed it.
func TestLongResponseForNobody(t *testing.T) {
	for name, c := range map[string]struct {
		head string
		had  int  // bytes of the body that had come when the client left
		ends bool // the connection, before the response
	}{
		"announced":     {"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", 0, true},
		"chunked":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nf0000\r\n", 0, true},
		"half received": {"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", 500_000, true},
		"just long":     {fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", shard.LeastShed), 0, true},
		"just short":    {fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", shard.LeastShed-1), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
			m.Apps[0].Stop()
			app := &proxytest.Peer{}
			m.W.Net.Listen(m.Apps[0].Addr, m.Apps[0].Loop, func() loop.Receiver { return app })
			says := func(b []byte) {
				m.Apps[0].Loop.Do(func() { app.Conn.Write(b) })
				m.W.Run(time.Millisecond)
			}
			client := m.DialAndSend(proxytest.Egress, "GET / HTTP/1.1\r\nHost: compute\r\n\r\n")
			m.RunUntil("the request", func() bool { return len(app.Heard) > 0 })
			if c.had > 0 {
				says(append([]byte(c.head), make([]byte, c.had)...))
			}
			m.W.Faults.Reset(client.Conn)
			m.W.Run(time.Millisecond)
			if c.had == 0 {
				says([]byte(c.head))
				says(make([]byte, shard.LeastShed-1))
				for range 2 {
					if c.ends { // else that was all
						says(make([]byte, 100))
					}
				}
			}
			if n := m.Consumer.Proc.Held(); n > 0 {
				t.Errorf("%d bytes are held", n)
			}
			if app.Ended != c.ends {
				t.Errorf("the connection has ended: %t", app.Ended)
			}
			if n := m.Consumer.Report().Services[0].Endpoints[0].Stats.Outcomes[stats.AttemptUnseen]; c.had == 0 && c.ends && n != 1 {
				t.Errorf("%d attempts are counted whose responses came for nobody", n)
			}
			m.Settled()
		})
	}
}
