package http2_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestSharedBodies: streams without a window share the bytes of a response that the proxy has, whoever
// made it. All get them in the end, and nothing is left.
func TestSharedBodies(t *testing.T) {
	const size, streams = 300 << 10, 50
	for name, c := range map[string]struct {
		route, headers, end string
		warm                bool
	}{
		"cached":      {route: "cache: {ttl: 1m}", warm: true},
		"revalidated": {route: "cache: {ttl: 1m}", headers: "Cache-Control: no-cache\r\nETag: \"1\"\r\n", warm: true},
		"stale":       {route: "cache: {ttl: 1ms, stale: 1h}", headers: "Cache-Control: max-age=0, stale-if-error=3600\r\nETag: \"1\"\r\n", end: "fails", warm: true},
		"collapsed":   {route: "collapse: true"},
		"in part":     {route: "cache: {ttl: 1m}", end: "resets", warm: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Match: c.route, Service: "idempotent: true"})
			app := m.Apps[0]
			app.ExtraHeaders = c.headers
			app.Delay = func() time.Duration { return 10 * time.Millisecond }
			app.Body = func(req *protocol.Request) []byte {
				switch {
				case protocol.Find(req.Headers, "if-none-match") == nil:
					app.Status = 200
					return make([]byte, size)
				case c.end == "fails":
					app.Status = 500
				default:
					app.Status = 304
				}
				return nil
			}
			if c.warm {
				first := dial(m, 0)
				a := first.send(request("GET", "/", 0))
				if first.await(a); len(a.body) != size {
					t.Fatalf("status %d, %d bytes", a.Status, len(a.body))
				}
				m.W.Run(100 * time.Millisecond)
			}
			deaf := dial(m, 1000)
			deaf.deaf = true
			var all []*reply
			for range streams {
				all = append(all, deaf.send(request("GET", "/", 0)))
			}
			m.W.Run(time.Second)
			if held := m.Consumer.Proc.Held(); held < size || held > 3*size {
				t.Errorf("%d bytes held by %d responses of %d bytes", held, streams, size)
			}
			if c.end == "resets" {
				deaf.do(func() {
					for _, a := range all {
						deaf.codec.Reset(a.stream, 8)
					}
				})
				m.W.Run(time.Second)
				m.Settled()
				return
			}
			deaf.deaf = false
			deaf.do(func() {
				for _, a := range all {
					deaf.codec.Consumed(a.stream, len(a.body))
				}
			})
			for i, a := range all {
				if deaf.await(a); a.Status != 200 || len(a.body) != size {
					t.Fatalf("response %d: status %d %s, %d bytes", i, a.Status, code(a), len(a.body))
				}
			}
			m.Settled()
		})
	}
}
