package byname

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
)

// TestNameFor: with sni: host an endpoint must prove the canonical name of the request's host.
func TestNameFor(t *testing.T) {
	c := &config.Service{TLS: config.ServiceTLS{SNI: config.SNIHost}}
	s := New(&service.Service{Config: c}, &service.Endpoint{LB: &lb.Endpoint{Addr: "10.0.0.1:443"}}, nil)
	for authority, want := range map[string]string{
		"a.test": "a.test", "A.Test:443": "a.test", "a.test.:443": "a.test", "%61.test": "a.test", "[::1]:443": "::1", "[0::FF]": "::ff",
		"1.2.3.4:1": "1.2.3.4", "[::ffff:1.2.3.4]": "1.2.3.4", "": "10.0.0.1", ":80": "10.0.0.1",
	} {
		if got := string(s.nameFor([]byte(authority))); got != want {
			t.Errorf("%q: %q, want %q", authority, got, want)
		}
	}
	authority := []byte("a.test:443")
	if n := testing.AllocsPerRun(100, func() { s.nameFor(authority) }); n > 0 && !racetest.Enabled {
		t.Errorf("%v allocations", n)
	}
}

// fakePool is a pool that is in use or not.
type fakePool struct {
	race.Upstream
	used, retired bool
}

func (p *fakePool) Unused() bool { return !p.used }
func (p *fakePool) Retire()      { p.retired = true }

// request is one of a client.
type request shard.Client

func (r request) Client() shard.Client { return shard.Client(r) }

// from is a request of the n-th client of a peer, or of the peer itself if n is 0.
func from(peer byte, n int) request {
	r := request{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, peer}), 1).String()}
	if n > 0 {
		r.Behind = netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)})
	}
	return r
}

// names returns how many names the requests of a peer have, and those of each client.
func (s *Pools) names(peer byte) (all int, each map[netip.Addr]int) {
	each = make(map[netip.Addr]int)
	for _, p := range s.pools {
		if p.source.Peer == netip.AddrFrom4([4]byte{10, 0, 0, peer}) {
			all++
			each[p.source.Client]++
		}
	}
	return all, each
}

// TestNamesAreBounded: at the bound the least recent pool without a request gives way to another name, or
// else one of a source that has more.
func TestNamesAreBounded(t *testing.T) {
	c := &config.Service{TLS: config.ServiceTLS{SNI: config.SNIHost}}
	made := make(map[string]*fakePool)
	s := New(&service.Service{Config: c}, &service.Endpoint{LB: &lb.Endpoint{Addr: "10.0.0.1:443"}}, func(name string) Pool {
		made[name] = &fakePool{used: true}
		return made[name]
	})
	ask := func(name string, peer byte, want bool, gone ...string) {
		t.Helper()
		if got := s.For([]byte(name), from(peer, 0)); (got != nil) != want || len(s.pools) > maxNames {
			t.Errorf("%s from %d: a pool: %t; %d in all", name, peer, got != nil, len(s.pools))
		}
		for name, p := range made {
			if p.retired != slices.Contains(gone, name) {
				t.Errorf("%s is retired: %t", name, p.retired)
			}
			if p.retired {
				delete(made, name)
			}
		}
	}
	for i := range maxNames {
		ask(fmt.Sprint("a", i), 1, true)
	}
	ask("a64", 1, false)
	ask("b0", 2, true, "a0")
	ask("b0", 2, true)
	made["a1"].used, made["a2"].used = false, false
	ask("a1", 1, true)
	ask("c0", 3, true, "a2") // a1 was used later
	ask("c1", 3, true, "a1")
	ask("c2", 3, true, "a3")
	for i := 1; i < maxNames/3; i++ { // each source gets a share
		s.For([]byte(fmt.Sprint("b", i)), from(2, 0))
		s.For([]byte(fmt.Sprint("d", i)), from(3, 0))
	}
	for n := byte(1); n <= 3; n++ {
		if all, _ := s.names(n); all < maxNames/3 {
			t.Errorf("source %d has %d names", n, all)
		}
	}
}

// TestNamesOfClients: the clients behind a peer divide its names. A peer that names many clients has no more names.
func TestNamesOfClients(t *testing.T) {
	c := &config.Service{TLS: config.ServiceTLS{SNI: config.SNIHost}}
	s := New(&service.Service{Config: c}, &service.Endpoint{LB: &lb.Endpoint{Addr: "10.0.0.1:443"}}, func(string) Pool {
		return &fakePool{used: true}
	})
	for i := range 10_000 {
		s.For(fmt.Append(nil, "greedy", i), from(1, 1+i))
		s.For(fmt.Append(nil, "slow", i), from(2, 1))
		s.For(fmt.Append(nil, "modest", i%(maxNames/4)), from(2, 2))
	}
	greedy, _ := s.names(1)
	all, each := s.names(2)
	if greedy != maxNames/2 || all != maxNames/2 {
		t.Errorf("%d names of one peer, and %d of the other", greedy, all)
	}
	for client, n := range each {
		if n != maxNames/4 {
			t.Errorf("%s has %d names", client, n)
		}
	}
}
