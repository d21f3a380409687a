package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/registry"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// timeout is how long a test waits for an event.
const timeout = 60 * time.Second

// TestLookup checks the addresses and the lowest TTL, with a name server on real
// sockets.
func TestLookup(t *testing.T) {
	s := newServer(t)
	s.set("one.example.test", host{addrs: []string{"10.0.0.1"}, ttl: 7})
	s.set("zero.example.test", host{addrs: []string{"10.0.0.1"}})
	s.set("both.example.test", host{addrs: []string{"10.0.0.1", "fd00::1"}, ttl: 8})
	s.set("six.example.test", host{addrs: []string{"fd00::1"}, ttl: 9})
	s.set("alias.example.test", host{alias: "far.example.test", short: 3, addrs: []string{"10.0.0.2"}, ttl: 60})
	s.set("cold.example.test", host{alias: "far.example.test", short: 60, addrs: []string{"10.0.0.2"}, ttl: 3})
	s.set("brief.example.test", host{alias: "far.example.test", short: 0, addrs: []string{"10.0.0.2"}, ttl: 60})
	s.set("long.example.test", host{addrs: []string{"10.0.0.3"}, ttl: 11, long: true})
	s.set("empty.example.test", host{alias: "far.example.test", short: 3})
	s.set("sick.example.test", host{rcode: dnsmessage.RCodeServerFailure})
	for _, c := range []struct {
		host  string
		addrs string
		ttl   time.Duration
	}{
		{"one.example.test", "[10.0.0.1]", 7 * time.Second},
		{"zero.example.test", "[10.0.0.1]", 0},
		{"both.example.test", "[10.0.0.1 fd00::1]", 8 * time.Second},
		{"six.example.test", "[fd00::1]", 9 * time.Second},
		{"alias.example.test", "[10.0.0.2]", 3 * time.Second},
		{"cold.example.test", "[10.0.0.2]", 3 * time.Second},
		{"brief.example.test", "[10.0.0.2]", 0},
		{"long.example.test", "[10.0.0.3]", 11 * time.Second},
		{"empty.example.test", "[]", -1},
		{"sick.example.test", "[]", -1},
		{"none.example.test", "[]", -1},
	} {
		a, err := resolver{s.dial}.lookup(t.Context(), c.host)
		slices.SortFunc(a.Addrs, netip.Addr.Compare)
		if fmt.Sprint(a.Addrs) != c.addrs || a.TTL != c.ttl && a.TTL >= 0 || (a.TTL < 0) != (c.ttl < 0) || (err != nil) != (c.addrs == "[]") {
			t.Errorf("%s: %+v, %v; want %s for %v", c.host, a, err, c.addrs, c.ttl)
		}
	}
}

// TestLookupLacks checks that a failed query for IPv4 addresses differs from an empty
// answer.
func TestLookupLacks(t *testing.T) {
	s := newServer(t)
	for name, c := range map[string]struct {
		rcode4 dnsmessage.RCode
		addrs  []string
		lacks  bool
		want   string
	}{
		"both":    {dnsmessage.RCodeSuccess, []string{"10.0.0.1", "fd00::1"}, false, "[10.0.0.1 fd00::1]"},
		"no four": {dnsmessage.RCodeSuccess, []string{"fd00::1"}, false, "[fd00::1]"},
		"unknown": {dnsmessage.RCodeNameError, []string{"fd00::1"}, false, "[fd00::1]"},
		"fails":   {dnsmessage.RCodeServerFailure, []string{"10.0.0.1", "fd00::1"}, true, "[fd00::1]"},
	} {
		s.set("a.example.test", host{addrs: c.addrs, ttl: 7, rcode4: c.rcode4})
		a, err := resolver{s.dial}.lookup(t.Context(), "a.example.test")
		slices.SortFunc(a.Addrs, netip.Addr.Compare)
		if err != nil || fmt.Sprint(a.Addrs) != c.want || (a.IPv4Err != nil) != c.lacks || a.TTL != 7*time.Second {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}

// TestLookupSearchList checks that the IPv4 addresses of a name in the search list are
// not mixed with the IPv6 addresses of another name. The list is read only from
// /etc/resolv.conf, so the test runs itself again in a mount namespace with another
// such file.
func TestLookupSearchList(t *testing.T) {
	if os.Getenv("REMORA_TEST_SEARCH_LIST") == "" {
		conf := filepath.Join(t.TempDir(), "resolv.conf")
		must.WriteFile(t, conf, "search corp.lan\nnameserver 127.0.0.1\n")
		hosts := filepath.Join(t.TempDir(), "hosts")
		must.WriteFile(t, hosts, "10.0.0.7 filed.example.test\n")
		const mount = `mount --bind "$0" /etc/resolv.conf && mount --bind "$1" /etc/hosts || exit 99; shift; exec "$@"`
		cmd := exec.Command("unshare", "-rm", "sh", "-c", mount, conf, hosts, os.Args[0], "-test.run=^TestLookupSearchList$")
		cmd.Env = append(os.Environ(), "REMORA_TEST_SEARCH_LIST=1")
		out, err := cmd.CombinedOutput()
		switch {
		case errors.Is(err, exec.ErrNotFound), strings.HasPrefix(string(out), "unshare:"), cmd.ProcessState.ExitCode() == 99:
			t.Skipf("no mount namespace: %v: %s", err, out)
		case err != nil:
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	s := newServer(t)
	s.set("db.example.test", host{addrs: []string{"fd00::1"}, ttl: 7})
	s.set("db.example.test.corp.lan", host{addrs: []string{"10.6.6.6"}, ttl: 7})
	s.set("short.corp.lan", host{addrs: []string{"fd00::2"}, ttl: 7})
	for host, want := range map[string]string{
		"db.example.test": "[fd00::1]", "db.example.test.": "[fd00::1]", "short": "[fd00::2]",
	} {
		if a, err := (resolver{s.dial}).lookup(t.Context(), host); err != nil || fmt.Sprint(a.Addrs) != want || a.IPv4Err != nil {
			t.Errorf("%s: %+v, %v; want %s", host, a, err, want)
		}
	}
	for host, want := range map[string]time.Duration{"filed.example.test": hostsTTL, "short": 7 * time.Second} {
		if a, err := (resolver{s.dial}).lookup(t.Context(), host); err != nil || a.TTL != want || a.OfHost != (want == hostsTTL) {
			t.Errorf("%s: %+v, %v; want the TTL %v", host, a, err, want)
		}
	}
}

// TestLookupLocalhost: localhost is both addresses of loopback for as long as possible, without a query.
func TestLookupLocalhost(t *testing.T) {
	r := resolver{func(context.Context, string, string) (net.Conn, error) {
		t.Error("a name server was asked")
		return nil, errors.New("none")
	}}
	for _, host := range []string{"localhost", "LocalHost", "localhost."} {
		if a, err := r.lookup(t.Context(), host); err != nil || fmt.Sprint(a.Addrs) != "[127.0.0.1 ::1]" || a.TTL < maxTTL || !a.OfHost {
			t.Errorf("%s: %+v, %v", host, a, err)
		}
	}
}

func TestPause(t *testing.T) {
	o := Options{Interval: 30 * time.Second}
	for _, c := range []struct {
		ttl  time.Duration
		err  error
		want time.Duration
	}{
		{20 * time.Second, nil, 20 * time.Second},
		{0, nil, minTTL},
		{24 * time.Hour, nil, maxTTL},
		{-1, nil, o.Interval},
		{20 * time.Second, errors.New("sick"), o.Interval},
	} {
		checkSpread(t, fmt.Sprintf("TTL %v, %v", c.ttl, c.err), c.want, func() time.Duration { return o.pause(c.ttl, c.err) })
	}
}

// checkSpread checks that pauses are from shortest to a tenth more.
func checkSpread(t *testing.T, what string, shortest time.Duration, pause func() time.Duration) {
	t.Helper()
	longest := time.Duration(0)
	for range 1000 {
		p := pause()
		if longest = max(longest, p); p < shortest || p > shortest*11/10 {
			t.Errorf("%s: %v, want %v and up to a tenth more", what, p, shortest)
		}
	}
	if longest < shortest*1095/1000 {
		t.Errorf("%s: the longest pause is %v, want a tenth more than %v", what, longest, shortest)
	}
}

// fixed is a watcher with constant endpoints.
type fixed []registry.Endpoint

func (f fixed) Watch(service string, notify func(*registry.Snapshot)) (stop func()) {
	notify(registry.NewSnapshot(service, registry.SourceLive, time.Unix(1, 0), slices.Clone(f)))
	return func() {}
}

// start resolves short and long. expect checks their addresses in the next snapshot.
func start(t *testing.T, s *server, interval time.Duration) (expect func(short, long string)) {
	t.Helper()
	w := New(fixed{{Addr: "short.example.test:80"}, {Addr: "long.example.test:80"}},
		Options{Lookup: resolver{s.dial}.lookup, Interval: interval, Timeout: timeout, gather: timeout})
	t.Cleanup(func() { w.Close() })
	got := make(chan []registry.Endpoint, 100)
	w.Watch("s", func(s *registry.Snapshot) { got <- s.Endpoints })
	return func(short, long string) {
		t.Helper()
		want := []registry.Endpoint{
			{Addr: short + ":80", Weight: 1, Host: "short.example.test"}, {Addr: long + ":80", Weight: 1, Host: "long.example.test"},
		}
		if e := receive(t, got); !slices.Equal(e, want) {
			t.Fatalf("got %v, want %v", e, want)
		}
	}
}

// TestTTL checks that a name is resolved again when its TTL ends, whatever the interval
// and independent of other names.
func TestTTL(t *testing.T) {
	s := newServer(t)
	s.set("short.example.test", host{addrs: []string{"10.0.0.1"}, ttl: 1})
	s.set("long.example.test", host{addrs: []string{"10.0.0.9"}, ttl: 3600})
	expect := start(t, s, time.Hour)
	expect("10.0.0.1", "10.0.0.9")
	s.set("long.example.test", host{addrs: []string{"10.0.0.8"}, ttl: 3600})
	s.set("short.example.test", host{addrs: []string{"10.0.0.2"}, ttl: 1})
	expect("10.0.0.2", "10.0.0.9")
}

// awaitLookups waits for several lookups from now on, of several queries each.
func (s *server) awaitLookups(t *testing.T) {
	t.Helper()
	for len(s.asked) > 0 {
		<-s.asked
	}
	for range 20 {
		receive(t, s.asked)
	}
}

// TestLookupFailure checks that a name keeps its addresses while its server fails, and
// is looked up again at the interval.
func TestLookupFailure(t *testing.T) {
	s := newServer(t)
	s.set("short.example.test", host{addrs: []string{"10.0.0.1"}, ttl: 0})
	s.set("long.example.test", host{addrs: []string{"10.0.0.9"}, ttl: 3600})
	expect := start(t, s, time.Millisecond)
	expect("10.0.0.1", "10.0.0.9")
	s.set("short.example.test", host{rcode: dnsmessage.RCodeServerFailure})
	s.awaitLookups(t)
	s.set("short.example.test", host{addrs: []string{"10.0.0.3"}, ttl: 1})
	expect("10.0.0.3", "10.0.0.9")
}

// TestIPv4Failure checks that a name keeps its IPv4 addresses while the server fails on
// IPv4. A name without addresses uses IPv6 addresses meanwhile.
func TestIPv4Failure(t *testing.T) {
	s := newServer(t)
	six := host{addrs: []string{"10.0.0.1", "fd00::1"}, ttl: 0, rcode4: dnsmessage.RCodeServerFailure}
	s.set("short.example.test", host{addrs: six.addrs})
	s.set("long.example.test", host{addrs: []string{"10.0.0.9"}, ttl: 3600})
	expect := start(t, s, time.Millisecond)
	expect("10.0.0.1", "10.0.0.9")
	s.set("short.example.test", six)
	s.awaitLookups(t)
	s.set("short.example.test", host{addrs: []string{"10.0.0.3"}, ttl: 1})
	expect("10.0.0.3", "10.0.0.9")

	s.set("short.example.test", six)
	first := New(fixed{{Addr: "short.example.test:80"}}, Options{Lookup: resolver{s.dial}.lookup, Timeout: timeout})
	defer first.Close()
	got := make(chan []registry.Endpoint, 1)
	first.Watch("s", func(s *registry.Snapshot) { got <- s.Endpoints })
	if e := receive(t, got); len(e) != 1 || e[0].Addr != "[fd00::1]:80" {
		t.Errorf("got %v", e)
	}
}

// TestKnown checks that a known name is not looked up before its time, unless the last
// lookup failed or found nothing. Its addresses are used until there are others.
func TestKnown(t *testing.T) {
	old, later := []netip.Addr{netip.MustParseAddr("10.0.0.1")}, time.Now().Add(time.Hour)
	for what, c := range map[string]struct {
		known name
		want  []string
	}{
		"fresh":  {name{addrs: old, due: later}, []string{"10.0.0.1:80"}},
		"due":    {name{addrs: old, due: time.Now()}, []string{"10.0.0.1:80", "10.0.0.2:80"}},
		"failed": {name{addrs: old, err: errors.New("sick"), due: later}, []string{"10.0.0.1:80", "10.0.0.2:80"}},
		"never":  {name{err: errors.New("sick"), due: later}, []string{"10.0.0.2:80"}},
		"empty":  {name{due: later}, []string{"10.0.0.2:80"}},
	} {
		t.Run(what, func(t *testing.T) {
			asked, answer := make(chan struct{}, 10), make(chan struct{})
			w := New(fixed{{Addr: "a.example.test:80"}}, Options{
				Known: Known{"a.example.test": c.known},
				Lookup: func(context.Context, string) (Answer, error) {
					asked <- struct{}{}
					<-answer
					return Answer{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.2")}, TTL: time.Hour}, nil
				},
			})
			defer w.Close()
			got := make(chan []registry.Endpoint, 10)
			w.Watch("s", func(s *registry.Snapshot) { got <- s.Endpoints })
			for i, addr := range c.want {
				if i == len(c.want)-1 {
					close(answer)
				}
				if e := receive(t, got); len(e) != 1 || e[0].Addr != addr {
					t.Fatalf("got %v, want %s", e, addr)
				}
			}
			if fresh := what == "fresh"; fresh != (len(asked) == 0) {
				t.Errorf("%d lookups", len(asked))
			}
		})
	}
}

// TestOthers checks which names have a second address, and that it ends with the name.
func TestOthers(t *testing.T) {
	others := new(Others)
	answers := make(chan []string, 1)
	w := New(fixed{{Addr: "a.example.test:80"}, {Addr: "10.0.1.9:80"}}, Options{
		Others: others, Interval: time.Millisecond,
		Lookup: func(ctx context.Context, _ string) (a Answer, _ error) {
			a.TTL = -1
			select {
			case addrs := <-answers:
				for _, addr := range addrs {
					a.Addrs = append(a.Addrs, netip.MustParseAddr(addr))
				}
			case <-ctx.Done():
			}
			return a, ctx.Err()
		},
	})
	defer w.Close()
	got := make(chan []registry.Endpoint, 10)
	w.Watch("s", func(s *registry.Snapshot) { got <- s.Endpoints })
	for i, c := range []struct {
		addrs []string
		want  string
	}{
		{[]string{"10.0.0.1", "fd00::1"}, "[fd00::1]:80"},
		{[]string{"fd00::3", "10.0.0.2", "fd00::2"}, "[fd00::2]:80"},
		{[]string{"10.0.0.3", "::ffff:10.0.0.3"}, ""},
		{[]string{"fd00::4"}, ""},
		{[]string{"10.0.0.5", "10.0.0.6", "fd00::5"}, "[fd00::5]:80 [fd00::5]:80"},
		{[]string{"fd00::8", "10.0.0.7", "10.0.0.8", "10.0.0.9", "fd00::7"}, "[fd00::7]:80 [fd00::8]:80 [fd00::7]:80"},
		{[]string{"10.0.0.4", "fd00::8", "fd00::7", "fd00::7"}, "[fd00::7]:80"},
	} {
		answers <- c.addrs
		e := receive(t, got)
		for len(e) > 0 && e[0].Addr == "10.0.1.9:80" && len(e) == 1 { // before the first answer
			e = receive(t, got)
		}
		var got []string
		for _, e := range e {
			if e.Host != "" {
				got = append(got, others.Of("s", e.Addr))
			}
			if other := others.Of("t", e.Addr); other != "" {
				t.Errorf("step %d: another service has %q", i, other)
			}
		}
		if all := strings.Join(got, " "); all != c.want || others.Empty() != (c.want == "") {
			t.Errorf("step %d: the other addresses are %q, want %q", i, all, c.want)
		}
		if other := others.Of("s", "10.0.1.9:80"); other != "" {
			t.Errorf("step %d: an address has %q", i, other)
		}
	}
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(timeout):
		t.Fatal("timed out")
		panic("not reached")
	}
}
