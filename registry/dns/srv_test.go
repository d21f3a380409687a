package dns

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/remora-proxy/remora/registry"
)

// TestLookupSRV checks the targets and the lowest TTL of SRV records, with a name server on real sockets.
func TestLookupSRV(t *testing.T) {
	s := newServer(t)
	var many []string
	for i := range 300 {
		many = append(many, fmt.Sprintf("1 1 %d r.example.test.", 1000+i))
	}
	for name, h := range map[string]host{
		"_one._tcp.example.test":    {srv: []string{"1 5 80 r1.example.test."}, ttl: 7},
		"_case._tcp.example.test":   {srv: []string{"1 5 80 R1.Example.Test."}, ttl: 7},
		"_light._tcp.example.test":  {srv: []string{"1 0 80 r1.example.test.", "1 3 81 r2.example.test."}, ttl: 7},
		"_backup._tcp.example.test": {srv: []string{"2 9 80 r1.example.test.", "1 3 81 r2.example.test."}, ttl: 7},
		"_alias._tcp.example.test":  {alias: "far.example.test", short: 3, srv: []string{"1 5 80 r1.example.test."}, ttl: 7},
		"_none._tcp.example.test":   {srv: []string{"0 0 0 ."}, ttl: 7},
		"_closed._tcp.example.test": {srv: []string{"1 5 0 r1.example.test.", "2 3 81 r2.example.test."}, ttl: 7},
		"_last._tcp.example.test":   {srv: []string{"65535 5 80 r1.example.test."}, ttl: 7},
		"_low._tcp.example.test":    {srv: []string{"1 5 1 r1.example.test."}, ttl: 7},
		"_odd._tcp.example.test":    {srv: []string{"1 5 80 r1.example.test.", "1 5 81 r1/.example.test."}, ttl: 7},
		"_many._tcp.example.test":   {srv: many, ttl: 7, long: true},
		"_empty._tcp.example.test":  {},
		"_sick._tcp.example.test":   {rcode: dnsmessage.RCodeServerFailure},
	} {
		s.set(name, h)
	}
	for _, c := range []struct {
		name, want string
		n          int
		ttl        time.Duration // negative: an error
	}{
		{"_one", "[{r1.example.test:80 5}]", 1, 7 * time.Second},
		{"_case", "[{r1.example.test:80 5}]", 1, 7 * time.Second},
		{"_light", "[{r1.example.test:80 1} {r2.example.test:81 3}]", 2, 7 * time.Second},
		{"_backup", "[{r2.example.test:81 3}]", 1, 7 * time.Second},
		{"_alias", "[{r1.example.test:80 5}]", 1, 3 * time.Second},
		{"_none", "[]", 0, 7 * time.Second},
		{"_closed", "[{r2.example.test:81 3}]", 1, 7 * time.Second},
		{"_last", "[{r1.example.test:80 5}]", 1, 7 * time.Second},
		{"_low", "[{r1.example.test:1 5}]", 1, 7 * time.Second},
		{"_odd", "[{r1.example.test:80 5}]", 1, 7 * time.Second},
		{"_many", "[{r.example.test:1000 1} {", maxAddrs, 7 * time.Second},
		{"_empty", "[]", 0, -1},
		{"_sick", "[]", 0, -1},
		{"_unknown", "[]", 0, -1},
	} {
		a, err := resolver{s.dial}.lookup(t.Context(), c.name+"._tcp.example.test")
		if got := fmt.Sprint(a.Targets); !strings.HasPrefix(got, c.want) || len(a.Targets) != c.n || (err != nil) != (c.ttl < 0) || err == nil && a.TTL != c.ttl {
			t.Errorf("%s: %.80s for %v, %v; want %s for %v", c.name, got, a.TTL, err, c.want, c.ttl)
		}
	}
}

// TestSRV follows the endpoints of SRV records while records, addresses and the name server change.
func TestSRV(t *testing.T) {
	const name = "_http._tcp.example.test"
	type answer = struct {
		targets []Target
		addrs   []string
		err     error
	}
	now := make(chan map[string]answer, 1)
	now <- nil
	change := func(to map[string]answer) { <-now; now <- to }
	w := New(fixed{{Addr: name, Weight: 2, Zone: "a"}, {Addr: "10.0.1.9:80"}}, Options{
		Interval: time.Millisecond, Timeout: timeout, gather: time.Millisecond,
		Lookup: func(_ context.Context, host string) (Answer, error) {
			all := <-now
			now <- all
			return Answer{Targets: all[host].targets, Addrs: addrs(all[host].addrs...), TTL: -1}, all[host].err
		},
	})
	defer w.Close()
	got := make(chan []registry.Endpoint, 1000)
	w.Watch("s", func(s *registry.Snapshot) { got <- s.Endpoints })
	await := func(what string, want ...registry.Endpoint) {
		t.Helper()
		want = append(want, registry.Endpoint{Addr: "10.0.1.9:80", Weight: 1})
		for e := receive(t, got); !slices.Equal(e, want); e = receive(t, got) {
			t.Logf("%s: %v", what, e)
		}
	}
	endpoint := func(addr, host string, weight int) registry.Endpoint {
		return registry.Endpoint{Addr: addr, Weight: weight, Zone: "a", Host: host}
	}
	two := []Target{{"r1.test:80", 3}, {"r2.test:81", 1}}
	change(map[string]answer{name: {targets: two}, "r1.test": {addrs: []string{"10.0.0.1"}}, "r2.test": {addrs: []string{"10.0.0.2"}}})
	await("two", endpoint("10.0.0.1:80", "r1.test", 6), endpoint("10.0.0.2:81", "r2.test", 2))
	change(map[string]answer{name: {targets: two[1:]}, "r2.test": {addrs: []string{"10.0.0.2", "10.0.0.3"}}})
	await("a target less, an address more", endpoint("10.0.0.2:81", "r2.test", 2), endpoint("10.0.0.3:81", "r2.test", 2))
	change(map[string]answer{name: {err: context.DeadlineExceeded}, "r2.test": {addrs: []string{"10.0.0.4"}}})
	await("records that don't resolve", endpoint("10.0.0.4:81", "r2.test", 2))
	change(map[string]answer{name: {targets: []Target{{"10.0.0.5:82", registry.MaxWeight}}}})
	await("an address as target", registry.Endpoint{Addr: "10.0.0.5:82", Weight: registry.MaxWeight, Zone: "a"})

	known := KnownFrom(w.Known().Texts())
	heir := New(fixed{{Addr: name}}, Options{Known: known, Lookup: func(ctx context.Context, _ string) (Answer, error) {
		<-ctx.Done()
		return Answer{}, ctx.Err()
	}})
	defer heir.Close()
	heir.Watch("s", func(s *registry.Snapshot) { got <- s.Endpoints })
	for e := receive(t, got); len(e) != 1 || e[0].Addr != "10.0.0.5:82"; e = receive(t, got) {
		t.Logf("in another process: %v", e)
	}
}

// TestMaxTargets: names of SRV records stand for at most MaxListed targets.
func TestMaxTargets(t *testing.T) {
	known := Known{}
	var all []registry.Endpoint
	for i := range registry.MaxListed/maxAddrs + 2 {
		host := fmt.Sprintf("_%d._tcp.test", i)
		known[host] = name{targets: slices.Repeat([]Target{{"a.test:80", 1}}, maxAddrs)}
		all = append(all, registry.Endpoint{Addr: host})
	}
	w := &watch{in: registry.NewSnapshot("s", registry.SourceLive, time.Now(), all)}
	if n := len(w.listed(known)); n != registry.MaxListed {
		t.Errorf("%d targets", n)
	}
}

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}
