package byname

import (
	"strconv"
	"testing"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
)

// TestNameFor: with sni: host an endpoint must prove the canonical name of the request's host.
func TestNameFor(t *testing.T) {
	service := &config.Service{TLS: config.ServiceTLS{SNI: config.SNIHost}}
	s := New(&exchange.Service{Config: service}, &exchange.Endpoint{LB: &lb.Endpoint{Addr: "10.0.0.1:443"}}, nil)
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
	exchange.Upstream
	used, retired bool
}

func (p *fakePool) Unused() bool { return !p.used }
func (p *fakePool) Retire()      { p.retired = true }

// TestNamesAreBounded: only a pool without a request gives way to one of another name.
func TestNamesAreBounded(t *testing.T) {
	s := New(nil, nil, nil)
	for i := range maxNames {
		if !s.makeRoom() {
			t.Fatalf("no room beside %d pools", i)
		}
		s.pools[strconv.Itoa(i)] = &fakePool{used: true}
	}
	if s.makeRoom() || len(s.pools) != maxNames {
		t.Errorf("a pool with a request gave way: %d are left", len(s.pools))
	}
	free := s.pools["7"].(*fakePool)
	free.used = false
	if !s.makeRoom() || len(s.pools) != maxNames-1 || s.pools["7"] != nil || !free.retired {
		t.Errorf("the free pool did not give way: %d are left", len(s.pools))
	}
}
