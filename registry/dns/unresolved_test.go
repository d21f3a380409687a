package dns

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/reach"
)

// TestUnresolved: a snapshot says whether a name has no known address.
func TestUnresolved(t *testing.T) {
	answers := map[string]Answer{
		"good.test":       {Addrs: addrs("10.0.0.1"), TTL: -1},
		"refused.test":    {Addrs: addrs("127.0.0.1"), TTL: -1},
		"empty.test":      {TTL: -1},
		"_some._tcp.test": {Targets: []Target{{"good.test:80", 1}}, TTL: -1},
		"_dead._tcp.test": {Targets: []Target{{"failed.test:80", 1}}, TTL: -1},
		"_none._tcp.test": {TTL: -1},
	}
	for _, c := range []struct {
		list       string
		endpoints  int
		unresolved bool
	}{
		{"10.0.0.9:80", 1, false}, {"good.test:80", 1, false}, {"refused.test:80", 0, false}, {"127.0.0.1:80", 0, false},
		{"failed.test:80", 0, true}, {"empty.test:80", 0, true}, {"failed.test:80 good.test:80", 1, true}, {"failed.test:80 refused.test:80", 0, true},
		{"10.0.0.9:80 failed.test:80", 1, true}, {"_some._tcp.test", 1, false}, {"_dead._tcp.test", 0, true}, {"_none._tcp.test", 0, true},
		{"_lost._tcp.test", 0, true}, {"_none._tcp.test _some._tcp.test", 1, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			var all fixed
			for _, addr := range strings.Fields(c.list) {
				all = append(all, registry.Endpoint{Addr: addr})
			}
			w := New(all, Options{
				Interval: time.Hour, Reach: reach.New(reach.Options{}),
				Lookup: func(_ context.Context, host string) (Answer, error) {
					a, ok := answers[host]
					if !ok {
						return a, errors.New("no response")
					}
					return a, nil
				},
			})
			var last *registry.Snapshot
			w.Watch("s", func(s *registry.Snapshot) { last = s })
			time.Sleep(time.Minute)
			synctest.Wait()
			w.Close()
			if last == nil || len(last.Endpoints) != c.endpoints || last.Unresolved != c.unresolved {
				t.Errorf("%s: %+v", c.list, last)
			}
		})
	}
}
