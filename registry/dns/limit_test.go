package dns

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/reach"
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

// TestTooManyAddresses: a name server makes a sidecar hold no more endpoints than a registry may list, whatever it says of many names.
func TestTooManyAddresses(t *testing.T) {
	const names = 4 * registry.MaxListed / maxAddrs
	in, known := []registry.Endpoint(nil), make(map[string]name)
	for i := range names {
		host := fmt.Sprintf("%d.test", i)
		in = append(in, registry.Endpoint{Addr: host + ":80"})
		var n name
		for k := range maxAddrs {
			n.addrs = append(n.addrs, netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(k)}))
		}
		known[host] = n
	}
	w := &watch{w: &Watcher{}, in: registry.NewSnapshot("s", registry.SourceLive, time.Now(), in), names: known}
	if n := len(w.resolved()); n != registry.MaxListed+1 { // one more, which shows that there are too many
		t.Errorf("%d endpoints", n)
	}
}

// TestSharedAddresses: once names that share addresses have as many as a service may have, those of others are left out.
func TestSharedAddresses(t *testing.T) {
	const each = 250 // addresses of a name
	const distinct = registry.MaxEndpoints / each
	names := registry.MaxListed/each + 1 // that share the addresses
	in, known := []registry.Endpoint(nil), make(map[string]name)
	for i := range names + 10 {
		host, network := fmt.Sprintf("%d.test", i), byte(10)
		if i >= names {
			network = 9
		}
		in = append(in, registry.Endpoint{Addr: host + ":80"})
		var n name
		for k := range each {
			n.addrs = append(n.addrs, netip.AddrFrom4([4]byte{network, 0, byte(i % distinct), byte(k)}))
		}
		known[host] = n
	}
	w := &watch{w: &Watcher{}, in: &registry.Snapshot{Service: "s", Endpoints: in}, names: known}
	all := w.resolved()
	if len(all) != registry.MaxEndpoints || strings.HasPrefix(all[len(all)-1].Addr, "9.") {
		t.Errorf("%d endpoints, the last is %s", len(all), all[len(all)-1].Addr)
	}
}

// changing is a watcher whose endpoints a test sets.
type changing struct{ notify func(*registry.Snapshot) }

func (c *changing) Watch(_ string, notify func(*registry.Snapshot)) (stop func()) {
	c.notify = notify
	return func() {}
}

func (c *changing) set(endpoints ...registry.Endpoint) {
	c.notify(registry.NewSnapshot("s", registry.SourceLive, time.Now(), slices.Clone(endpoints)))
}

// TestTooManyOthers: records that others add do not push out an endpoint. Those that are refused do not count, and those that may be
// used come after what is in use.
func TestTooManyOthers(t *testing.T) {
	const good = "99.0.0.1:80" // after all others
	direct := func(network byte) (all []registry.Endpoint) {
		for i := range 15_000 {
			all = append(all, registry.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{network, 1, byte(i / 250), byte(1 + i%250)}), 80).String()})
		}
		return all
	}
	named := func(kind string) (all []registry.Endpoint) {
		for i := range 100 {
			all = append(all, registry.Endpoint{Addr: fmt.Sprintf("%d.%s.test:80", i, kind)})
		}
		return all
	}
	for name, c := range map[string]struct {
		others    []registry.Endpoint
		isFirst   bool // the others are there before the endpoint
		endpoints int
		lines     int // in the log
	}{
		"refused":                 {direct(127), false, 1, 0},
		"refused, first":          {direct(127), true, 1, 0},
		"usable":                  {direct(10), false, registry.MaxEndpoints, 1},
		"names of refused":        {named("refused"), false, 1, 0},
		"names of refused, first": {named("refused"), true, 1, 0},
		"names of usable":         {named("usable"), false, registry.MaxEndpoints, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer // only the goroutine of the Watcher writes
				in := &changing{}
				w := New(in, Options{
					Interval: time.Hour, Reach: reach.New(reach.Options{}), Logger: slog.New(slog.NewTextHandler(&log, nil)),
					Lookup: func(_ context.Context, host string) (Answer, error) {
						i, kind := 0, ""
						_, err := fmt.Sscanf(strings.ReplaceAll(host, ".", " "), "%d %s", &i, &kind)
						a := Answer{TTL: -1}
						network := map[string]byte{"refused": 127, "usable": 10}[kind]
						for k := range maxAddrs {
							a.Addrs = append(a.Addrs, netip.AddrFrom4([4]byte{network, 1, byte(i), byte(k)}))
						}
						return a, err
					},
				})
				var last *registry.Snapshot
				w.Watch("s", func(s *registry.Snapshot) { last = s })
				synctest.Wait()
				settle := func() {
					time.Sleep(time.Minute)
					synctest.Wait()
				}
				mine := registry.Endpoint{Addr: good}
				if c.isFirst {
					in.set(c.others...)
				} else {
					in.set(mine)
				}
				settle()
				in.set(append(c.others, mine)...)
				settle()
				w.Close()
				if len(last.Endpoints) != c.endpoints || last.Endpoints[len(last.Endpoints)-1].Addr != good {
					t.Errorf("%d endpoints, the last is %s", len(last.Endpoints), last.Endpoints[len(last.Endpoints)-1].Addr)
				}
				if lines := strings.Count(log.String(), "too many endpoints"); lines != c.lines {
					t.Errorf("%d lines in the log, want %d", lines, c.lines)
				}
			})
		})
	}
}

// TestRefusedTargets: targets of SRV names that are refused take no place of one that may be used.
func TestRefusedTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &changing{}
		w := New(in, Options{Interval: time.Hour, Reach: reach.New(reach.Options{}),
			Lookup: func(_ context.Context, host string) (Answer, error) {
				a := Answer{TTL: -1}
				if strings.HasPrefix(host, "_z") {
					a.Targets = []Target{{"99.0.0.1:80", 1}}
					return a, nil
				}
				var i int
				fmt.Sscanf(host, "_%d", &i)
				for k := range maxAddrs {
					a.Targets = append(a.Targets, Target{netip.AddrFrom4([4]byte{127, 1, byte(i), byte(k)}).String() + ":80", 1})
				}
				return a, nil
			}})
		var last *registry.Snapshot
		w.Watch("s", func(s *registry.Snapshot) { last = s })
		synctest.Wait()
		var all []registry.Endpoint
		for i := range registry.MaxEndpoints/maxAddrs + 2 {
			all = append(all, registry.Endpoint{Addr: fmt.Sprintf("_%d._tcp.test", i)})
		}
		in.set(append(all, registry.Endpoint{Addr: "_z._tcp.test"})...)
		time.Sleep(time.Minute)
		synctest.Wait()
		w.Close()
		if last == nil || len(last.Endpoints) != 1 {
			t.Errorf("%+v", last)
		}
	})
}
