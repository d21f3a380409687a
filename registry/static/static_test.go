package static

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// zone is a resolver that tests change.
type zone struct {
	mu    sync.Mutex
	hosts map[string][]string
	asked chan string
}

func (z *zone) set(host string, addrs ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.hosts[host] = addrs
}

func (z *zone) lookup(ctx context.Context, host string) (dns.Answer, error) {
	select {
	case z.asked <- host:
	default:
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.hosts[host] == nil {
		return dns.Answer{}, errors.New("no such host")
	}
	answer := dns.Answer{TTL: -1}
	for _, a := range z.hosts[host] {
		answer.Addrs = append(answer.Addrs, netip.MustParseAddr(a))
	}
	return answer, nil
}

func start(t *testing.T, z *zone, endpoints ...registry.Endpoint) (next func() []string) {
	t.Helper()
	w, err := New(map[string][]registry.Endpoint{"s": endpoints}, dns.Options{Interval: time.Millisecond, Lookup: z.lookup})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *registry.Snapshot, 100)
	stop := w.Watch("s", func(s *registry.Snapshot) { got <- s })
	t.Cleanup(func() { stop(); w.Close() })
	return func() []string {
		t.Helper()
		select {
		case s := <-got:
			addrs := []string{}
			for _, e := range s.Endpoints {
				addrs = append(addrs, e.Addr)
			}
			return addrs
		case <-time.After(time.Minute):
			t.Fatal("no snapshot")
			return nil
		}
	}
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestAddressesAsTheyAre(t *testing.T) {
	next := start(t, &zone{}, registry.Endpoint{Addr: "[::1]:80"}, registry.Endpoint{Addr: "10.0.0.1:80"})
	expect(t, next(), "10.0.0.1:80", "[::1]:80")
}

func TestNamesAreResolvedAgain(t *testing.T) {
	z := &zone{hosts: map[string][]string{}, asked: make(chan string)}
	z.set("a", "10.0.0.2", "::1", "10.0.0.1", "10.0.0.2")
	z.set("six", "fe80::1")
	next := start(t, z, registry.Endpoint{Addr: "A:80", Weight: 2}, registry.Endpoint{Addr: "six:80"}, registry.Endpoint{Addr: "none:80"})
	// IPv4 before IPv6, sorted, each once; what does not resolve is left out.
	expect(t, next(), "10.0.0.1:80", "10.0.0.2:80", "[fe80::1]:80")

	// A rotated answer is no news; the next snapshot is that of the change
	// after it.
	z.set("a", "10.0.0.1", "10.0.0.2")
	<-z.asked
	z.set("a", "10.0.0.3")
	expect(t, next(), "10.0.0.3:80", "[fe80::1]:80")

	// A name that fails keeps its addresses: several rounds later the next
	// news is that of another name.
	z.set("a")
	for range 10 {
		<-z.asked
	}
	z.set("none", "10.0.0.9")
	expect(t, next(), "10.0.0.3:80", "10.0.0.9:80", "[fe80::1]:80")
}

func TestNothingResolves(t *testing.T) {
	next := start(t, &zone{}, registry.Endpoint{Addr: "none:80"})
	expect(t, next()) // it is known that there is none
}

func TestUnknownService(t *testing.T) {
	w, err := New(nil, dns.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	got := make(chan *registry.Snapshot, 1)
	defer w.Watch("s", func(s *registry.Snapshot) { got <- s })()
	select {
	case s := <-got:
		if s.Service != "s" || len(s.Endpoints) != 0 || s.Source != registry.SourceLive {
			t.Errorf("got %+v", s)
		}
	case <-time.After(time.Minute):
		t.Fatal("no snapshot")
	}
}

func TestBadAddress(t *testing.T) {
	_, err := New(map[string][]registry.Endpoint{"s": {{Addr: "10.0.0.1"}}}, dns.Options{})
	if !errors.Is(err, registry.ErrAddress) {
		t.Errorf("got %v", err)
	}
}

// A resolver that hangs delays neither addresses nor the end.
func TestHangingResolver(t *testing.T) {
	w, err := New(map[string][]registry.Endpoint{"s": {{Addr: "slow:80"}, {Addr: "10.0.0.1:80"}}}, dns.Options{
		Timeout: time.Hour,
		Lookup: func(ctx context.Context, _ string) (dns.Answer, error) {
			<-ctx.Done()
			return dns.Answer{}, ctx.Err()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *registry.Snapshot, 10)
	w.Watch("s", func(s *registry.Snapshot) { got <- s })
	if s := <-got; len(s.Endpoints) != 1 {
		t.Errorf("got %+v", s)
	}
	w.Close()
	w.Watch("s", func(*registry.Snapshot) { t.Error("notified after Close") })()
}

// TestKnown: one that takes the place of another has its addresses at once, while
// nothing resolves, and looks them up again; those of other names it does not.
func TestKnown(t *testing.T) {
	z := &zone{hosts: map[string][]string{}, asked: make(chan string)}
	z.set("a", "10.0.0.1")
	opt := dns.Options{Interval: time.Millisecond, Lookup: z.lookup}
	open := func(addrs ...string) (w *Watcher, next func() []string) {
		t.Helper()
		list := []registry.Endpoint{}
		for _, addr := range addrs {
			list = append(list, registry.Endpoint{Addr: addr})
		}
		w, err := New(map[string][]registry.Endpoint{"s": list}, opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		got := make(chan []string, 100)
		w.Watch("s", func(s *registry.Snapshot) {
			addrs := []string{}
			for _, e := range s.Endpoints {
				addrs = append(addrs, e.Addr)
			}
			got <- addrs
		})
		return w, func() []string {
			t.Helper()
			select {
			case addrs := <-got:
				return addrs
			case <-time.After(time.Minute):
				t.Fatal("no snapshot")
				return nil
			}
		}
	}
	first, next := open("a:80", "none:80")
	expect(t, next(), "10.0.0.1:80")
	opt.Known = first.Known()
	z.set("a")
	first.Close()
	if n := len(first.Known()); n != 0 {
		t.Errorf("%d names after the end", n)
	}
	_, next = open("10.0.0.9:80", "a:80")
	expect(t, next(), "10.0.0.1:80", "10.0.0.9:80")
	z.set("a", "10.0.0.2")
	expect(t, next(), "10.0.0.2:80", "10.0.0.9:80")
	_, next = open("b:80")
	expect(t, next())
}
