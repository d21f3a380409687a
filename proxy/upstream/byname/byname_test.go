package byname

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
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
}

// fakePool is a pool that is in use or not.
type fakePool struct {
	race.Upstream
	used, retired bool
}

func (p *fakePool) Unused() bool { return !p.used }
func (p *fakePool) Retire()      { p.retired = true }

// source returns the n-th source, and a peer of it.
func source(n byte) (netip.Addr, string) {
	addr := netip.AddrFrom4([4]byte{10, 0, 0, n})
	return addr, netip.AddrPortFrom(addr, 1).String()
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
	ask := func(name string, from byte, want bool, gone ...string) {
		t.Helper()
		_, peer := source(from)
		if got := s.For([]byte(name), peer); (got != nil) != want || len(s.pools) > maxNames {
			t.Errorf("%s from %d: a pool: %t; %d in all", name, from, got != nil, len(s.pools))
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
		_, peer := source(2)
		s.For([]byte(fmt.Sprint("b", i)), peer)
		_, peer = source(3)
		s.For([]byte(fmt.Sprint("d", i)), peer)
	}
	have := make(map[netip.Addr]int)
	for _, p := range s.pools {
		have[p.source]++
	}
	for n := byte(1); n <= 3; n++ {
		if addr, _ := source(n); have[addr] < maxNames/3 {
			t.Errorf("source %d has %d names", n, have[addr])
		}
	}
}
