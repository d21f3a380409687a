package byname

import (
	"strconv"
	"testing"

	"github.com/remora-proxy/remora/proxy/exchange"
)

func TestAppendHost(t *testing.T) {
	for authority, want := range map[string]string{
		"": "", "a.test": "a.test", "A.Test:443": "a.test", "[::1]:443": "::1", "[::FF]": "::ff", ":80": "", "1.2.3.4:1": "1.2.3.4", "[": "",
	} {
		if got := string(appendHost(nil, []byte(authority))); got != want {
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
