package dns

import (
	"context"
	"net/netip"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/registry"
)

// TestOthersEnd: the second addresses of a service end with its last watch. A watch that a newer one has replaced
// does not take those of the newer one along.
func TestOthersEnd(t *testing.T) {
	others := new(Others)
	w := New(fixed{{Addr: "a.example.test:80"}}, Options{Others: others, Lookup: func(context.Context, string) (Answer, error) {
		return Answer{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, TTL: -1}, nil
	}})
	defer w.Close()
	watch := func() (stop func()) {
		got := make(chan []registry.Endpoint, 10)
		stop = w.Watch("s", func(s *registry.Snapshot) { got <- s.Endpoints })
		receive(t, got)
		return stop
	}
	left := func() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.watches) }
	older := watch()
	newer := watch()
	older()
	eventually.True(t, "the older watch to end", func() bool { return left() == 1 })
	if other := others.Of("s", "10.0.0.1:80"); other != "[fd00::1]:80" {
		t.Errorf("the newer watch has %q", other)
	}
	newer()
	eventually.True(t, "the newer watch to end", func() bool { return left() == 0 })
	if !others.Empty() {
		t.Error("a service that nobody watches has second addresses")
	}
}
