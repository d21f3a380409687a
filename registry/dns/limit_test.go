package dns

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// TestTooMany: names together lead to no more endpoints than a service may have, and the log says so once.
func TestTooMany(t *testing.T) {
	const names = registry.MaxEndpoints/maxAddrs + 1 // whose addresses are one name's too many
	ip := func(i, k int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(i), byte(k)}) }
	for _, c := range []struct {
		name, addr string // of the endpoint i
		found      func(i int) Answer
		endpoints  int
		lines      int // in the log
	}{
		{"many addresses", "%d.test:80", func(i int) (a Answer) {
			for k := range maxAddrs {
				a.Addrs = append(a.Addrs, ip(i, k))
			}
			return a
		}, registry.MaxEndpoints, 1},
		{"shared addresses", "%d.test:80", func(int) (a Answer) {
			for k := range maxAddrs {
				a.Addrs = append(a.Addrs, ip(0, k))
			}
			return a
		}, maxAddrs, 0},
		{"many targets", "_%d._tcp.test", func(i int) (a Answer) {
			for k := range maxAddrs {
				a.Targets = append(a.Targets, Target{ip(i, k).String() + ":80", 1})
			}
			return a
		}, registry.MaxEndpoints, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var all fixed
				for i := range names {
					all = append(all, registry.Endpoint{Addr: fmt.Sprintf(c.addr, i)})
				}
				var log bytes.Buffer // only the goroutine of the Watcher writes
				w := New(all, Options{
					Interval: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil)),
					Lookup: func(_ context.Context, host string) (Answer, error) {
						var i int
						_, err := fmt.Sscanf(strings.TrimPrefix(host, "_"), "%d", &i)
						a := c.found(i)
						a.TTL = -1
						return a, err
					},
				})
				endpoints, most := 0, 0
				w.Watch("s", func(s *registry.Snapshot) { endpoints, most = len(s.Endpoints), max(most, len(s.Endpoints)) })
				time.Sleep(time.Minute)
				synctest.Wait()
				w.Close()
				if lines := strings.Count(log.String(), "too many endpoints"); endpoints != c.endpoints || most != c.endpoints || lines != c.lines {
					t.Errorf("%d endpoints, at most %d, want %d; %d lines in the log, want %d", endpoints, most, c.endpoints, lines, c.lines)
				}
			})
		})
	}
}
