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

// zone is a resolver whose data tests change.
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

// addresses watches service "s" of w. next returns the addresses of the next snapshot.
func addresses(t *testing.T, w *dns.Watcher) (next func() []string) {
	t.Helper()
	got := make(chan []string, 100)
	t.Cleanup(w.Watch("s", func(s *registry.Snapshot) {
		addrs := []string{}
		for _, e := range s.Endpoints {
			addrs = append(addrs, e.Addr)
		}
		got <- addrs
	}))
	return func() []string {
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

// start returns a watcher for service "s" with these endpoints, and its addresses.
func start(t *testing.T, opt dns.Options, endpoints ...registry.Endpoint) (w *dns.Watcher, next func() []string) {
	t.Helper()
	w, err := New(map[string][]registry.Endpoint{"s": endpoints}, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w, addresses(t, w)
}

func (z *zone) options() dns.Options {
	return dns.Options{Interval: time.Millisecond, Lookup: z.lookup}
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestAddresses(t *testing.T) {
	_, next := start(t, new(zone).options(), registry.Endpoint{Addr: "[::1]:80"}, registry.Endpoint{Addr: "10.0.0.1:80"})
	expect(t, next(), "10.0.0.1:80", "[::1]:80")
}

func TestHostNames(t *testing.T) {
	z := &zone{hosts: map[string][]string{}, asked: make(chan string)}
	z.set("a", "10.0.0.2", "::1", "10.0.0.1", "10.0.0.2")
	z.set("six", "fe80::1")
	_, next := start(t, z.options(), registry.Endpoint{Addr: "A:80", Weight: 2}, registry.Endpoint{Addr: "six:80"}, registry.Endpoint{Addr: "none:80"})
	// IPv4 before IPv6, sorted, each once; unresolved names are left out.
	expect(t, next(), "10.0.0.1:80", "10.0.0.2:80", "[fe80::1]:80")

	// A rotated answer is no change; the next snapshot is that of the change after it.
	z.set("a", "10.0.0.1", "10.0.0.2")
	<-z.asked
	z.set("a", "10.0.0.3")
	expect(t, next(), "10.0.0.3:80", "[fe80::1]:80")

	// A name that fails keeps its addresses: the next snapshot, several lookups later, is
	// that of another name.
	z.set("a")
	for range 10 {
		<-z.asked
	}
	z.set("none", "10.0.0.9")
	expect(t, next(), "10.0.0.3:80", "10.0.0.9:80", "[fe80::1]:80")
}

func TestNothingResolves(t *testing.T) {
	_, next := start(t, new(zone).options(), registry.Endpoint{Addr: "none:80"})
	expect(t, next()) // an empty snapshot
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

// TestCanonical: an address has one spelling.
func TestCanonical(t *testing.T) {
	for _, c := range []struct{ addr, want string }{ // "" means an error
		{"10.0.0.1:080", "10.0.0.1:80"}, {"A.test:80", "a.test:80"}, {"_HTTP._tcp.Test", "_http._tcp.test"}, {"unix:/A", "unix:/A"},
		{"10.0.0.1", ""}, {"_http.test", ""}, {"unix:a", ""},
	} {
		if got, err := canonical(c.addr); (err != nil) != (c.want == "") || err == nil && got != c.want {
			t.Errorf("%s: %s, %v", c.addr, got, err)
		}
	}
}

// TestUnixSocket: Unix sockets stay as they are, beside host names.
func TestUnixSocket(t *testing.T) {
	z := &zone{hosts: map[string][]string{"a": {"10.0.0.1"}}}
	w, err := New(map[string][]registry.Endpoint{"s": {{Addr: "unix:@b"}, {Addr: "a:80"}, {Addr: "unix:/B"}}}, dns.Options{Lookup: z.lookup})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	next := addresses(t, w)
	want := []string{"10.0.0.1:80", "unix:/B", "unix:@b"}
	got := next()
	for len(got) < len(want) {
		got = next()
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := New(map[string][]registry.Endpoint{"s": {{Addr: "unix:b"}}}, dns.Options{}); err == nil {
		t.Error("a relative path is accepted")
	}
}

// A resolver that hangs delays neither other addresses nor Close.
func TestResolverHangs(t *testing.T) {
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

// TestKnown checks that a new watcher has the addresses of the one that it replaces at
// once, even if nothing resolves, and looks them up again. It does not keep other
// names.

func TestKnown(t *testing.T) {
	z := &zone{hosts: map[string][]string{}, asked: make(chan string)}
	z.set("a", "10.0.0.1")
	opt := z.options()
	first, next := start(t, opt, registry.Endpoint{Addr: "a:80"}, registry.Endpoint{Addr: "none:80"})
	expect(t, next(), "10.0.0.1:80")
	opt.Known = first.Known()
	z.set("a")
	first.Close()
	if n := len(first.Known()); n != 0 {
		t.Errorf("%d names after the end", n)
	}
	_, next = start(t, opt, registry.Endpoint{Addr: "10.0.0.9:80"}, registry.Endpoint{Addr: "a:80"})
	expect(t, next(), "10.0.0.1:80", "10.0.0.9:80")
	z.set("a", "10.0.0.2")
	expect(t, next(), "10.0.0.2:80", "10.0.0.9:80")
	_, next = start(t, opt, registry.Endpoint{Addr: "b:80"})
	expect(t, next())
}
