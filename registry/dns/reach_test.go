package dns

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/reach"
)

// TestReach: addresses of names obey the rule, whatever the source of the names. The other endpoints stay.
func TestReach(t *testing.T) {
	answers := map[string]Answer{
		"good.test":     {Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}},
		"loopback.test": {Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
		"mixed.test":    {Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("0.0.0.0")}},
		"six.test":      {Addrs: []netip.Addr{netip.MustParseAddr("::1")}},
		"both.test":     {Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("fe80::1")}},
		"own.test":      {Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.9")}},
		"multi.test":    {Addrs: []netip.Addr{netip.MustParseAddr("224.0.0.1"), netip.MustParseAddr("255.255.255.255")}},
		"hosts.test":    {Addrs: []netip.Addr{netip.MustParseAddr("127.0.1.1")}, OfHost: true},
		"localhost":     {Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, OfHost: true},
		"_http._tcp.test": {Targets: []Target{
			{"loopback.test:81", 1}, {"good.test:81", 1}, {"127.0.0.7:81", 1}, {"localhost:81", 1}, {"hosts.test:81", 1},
		}},
	}
	endpoints := fixed{
		{Addr: "good.test:80"}, {Addr: "loopback.test:80"}, {Addr: "mixed.test:80"}, {Addr: "six.test:80"}, {Addr: "both.test:80"}, {Addr: "own.test:80"},
		{Addr: "multi.test:80"}, {Addr: "hosts.test:80"}, {Addr: "localhost:82"}, {Addr: "_http._tcp.test"}, {Addr: "127.0.0.5:80"}, {Addr: "10.0.0.5:80"},
	}
	common := []string{"10.0.0.1:80", "10.0.0.1:81", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.5:80"}
	for name, c := range map[string]struct {
		options reach.Options
		more    []string // in use besides common
		counts  map[reach.Reason]uint64
	}{
		"registry": {reach.Options{}, nil, map[reach.Reason]uint64{
			"loopback": 9, "link-local": 1, "multicast": 1, "broadcast": 1, "loop": 1,
		}},
		"registry on loopback": {reach.Options{Local: true}, []string{
			"127.0.0.1:80", "[::1]:80", "0.0.0.0:80", "127.0.1.1:80", "127.0.0.1:82", "127.0.0.1:81", "127.0.0.7:81", "127.0.0.5:80", "127.0.1.1:81",
		}, map[reach.Reason]uint64{"link-local": 1, "multicast": 1, "broadcast": 1, "loop": 1}},
		"listed": {reach.Options{Listed: true}, []string{"127.0.1.1:80", "127.0.0.1:82", "127.0.0.5:80"}, map[reach.Reason]uint64{
			"loopback": 6, "link-local": 1, "multicast": 1, "broadcast": 1, "loop": 1,
		}},
		"allowed": {reach.Options{Allow: []netip.Prefix{netip.MustParsePrefix("169.254.169.254/32"), netip.MustParsePrefix("0.0.0.0/0")}},
			[]string{"169.254.169.254:80"}, map[reach.Reason]uint64{"loopback": 9, "multicast": 1, "broadcast": 1, "loop": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.Own = func(_ string, at netip.AddrPort) reach.Reason {
				if at.Addr() == netip.MustParseAddr("10.0.0.9") {
					return reach.Loop
				}
				return ""
			}
			rule, others := reach.New(c.options), new(Others)
			w := New(endpoints, Options{
				Interval: time.Hour, Reach: rule, Others: others,
				Lookup: func(_ context.Context, host string) (Answer, error) { a := answers[host]; a.TTL = -1; return a, nil },
			})
			defer w.Close()
			got := make(chan []registry.Endpoint, 100)
			w.Watch("s", func(s *registry.Snapshot) { got <- s.Endpoints })
			want := slices.Concat(common, c.more)
			slices.Sort(want)
			for {
				var addrs []string
				for _, e := range receive(t, got) {
					if addrs = append(addrs, e.Addr); !slices.Contains(want, e.Addr) {
						t.Fatalf("%s is in use", e.Addr)
					}
				}
				if slices.Equal(addrs, want) {
					break
				}
			}
			// What is refused changes no snapshot, so it may come later.
			eventually.True(t, fmt.Sprintf("the counts %v", c.counts), func() bool { return maps.Equal(rule.Counts(), c.counts) })
			if other := others.Of("s", "10.0.0.3:80"); other != "" {
				t.Errorf("the second address is %s", other)
			}
		})
	}
}

// TestUnixSockets: a host that is called unix is resolved like any other. Only a list of the configuration leads to a Unix
// socket.
func TestUnixSockets(t *testing.T) {
	for name, c := range map[string]struct {
		addr string
		want []string
	}{
		"a host called unix":       {"unix:80", []string{"10.0.0.1:80"}},
		"a target called unix":     {"_http._tcp.test", []string{"10.0.0.1:81"}},
		"a Unix socket":            {"unix:/run/app", []string{"unix:/run/app"}},
		"an abstract Unix socket":  {"unix:@app", []string{"unix:@app"}},
		"a host that begins so":    {"unix.test:80", []string{"10.0.0.2:80"}},
		"a host with an empty end": {"unix.:80", []string{"10.0.0.1:80"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := New(fixed{{Addr: c.addr}, {Addr: "z.test:90"}}, Options{
				Interval: time.Hour, Lookup: func(_ context.Context, host string) (Answer, error) {
					return map[string]Answer{
						"unix":            {Addrs: addrs("10.0.0.1"), TTL: -1},
						"unix.":           {Addrs: addrs("10.0.0.1"), TTL: -1},
						"unix.test":       {Addrs: addrs("10.0.0.2"), TTL: -1},
						"z.test":          {Addrs: addrs("10.0.0.9"), TTL: -1},
						"_http._tcp.test": {Targets: []Target{{"unix:81", 1}}, TTL: -1},
					}[host], nil
				},
			})
			defer w.Close()
			got := make(chan []registry.Endpoint, 10)
			w.Watch("s", func(s *registry.Snapshot) { got <- s.Endpoints })
			want := slices.Concat(c.want, []string{"10.0.0.9:90"})
			slices.Sort(want)
			for {
				var in []string
				for _, e := range receive(t, got) {
					if in = append(in, e.Addr); !slices.Contains(want, e.Addr) {
						t.Fatalf("%s is in use", e.Addr)
					}
				}
				if slices.Equal(in, want) {
					return
				}
			}
		})
	}
}

// TestReachAlone: addresses without names obey the rule, too, and a rule that refuses nothing changes nothing.
func TestReachAlone(t *testing.T) {
	rule := reach.New(reach.Options{})
	w := New(fixed{{Addr: "10.0.0.1:80"}, {Addr: "127.0.0.1:80"}}, Options{Reach: rule})
	got := make(chan []registry.Endpoint, 1)
	w.Watch("s", func(s *registry.Snapshot) { got <- s.Endpoints })
	if e := receive(t, got); len(e) != 1 || e[0].Addr != "10.0.0.1:80" {
		t.Errorf("got %v", e)
	}
	if now := rule.Refused(2); len(now) != 1 || now[0] != (reach.Refused{Service: "s", Address: "127.0.0.1:80", Reason: "loopback"}) {
		t.Errorf("refused are %v", now)
	}
	if err := w.Close(); err != nil || len(rule.Refused(2)) != 0 {
		t.Errorf("after the end %v, %v", err, rule.Refused(2))
	}
}

// TestListedAlsoByName: an address that is listed stays in use, although a name before it leads there, too.
func TestListedAlsoByName(t *testing.T) {
	w := New(fixed{{Addr: "0.test:80"}, {Addr: "127.0.0.1:80"}}, Options{
		Interval: time.Hour, Reach: reach.New(reach.Options{Listed: true}),
		Lookup: func(context.Context, string) (Answer, error) {
			return Answer{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1")}, TTL: -1}, nil
		},
	})
	defer w.Close()
	got := make(chan []registry.Endpoint, 10)
	w.Watch("s", func(s *registry.Snapshot) { got <- s.Endpoints })
	for {
		last := receive(t, got)
		has := func(addr string) bool {
			return slices.ContainsFunc(last, func(e registry.Endpoint) bool { return e.Addr == addr })
		}
		if !has("127.0.0.1:80") {
			t.Fatalf("in use are %v", last)
		}
		if has("10.0.0.1:80") {
			return
		}
	}
}

// TestJudgeAgain: once the rule has changed its mind, the same list has other endpoints.
func TestJudgeAgain(t *testing.T) {
	var refuse atomic.Pointer[string]
	set := func(addr string) { refuse.Store(&addr) }
	set("10.0.0.1:80")
	rule := reach.New(reach.Options{Own: func(_ string, at netip.AddrPort) reach.Reason {
		if at.String() == *refuse.Load() {
			return reach.Loop
		}
		return ""
	}})
	w := New(fixed{{Addr: "10.0.0.1:80"}, {Addr: "10.0.0.2:80"}}, Options{Reach: rule})
	defer w.Close()
	got := make(chan []registry.Endpoint, 1)
	w.Watch("s", func(s *registry.Snapshot) { got <- s.Endpoints })
	for i, step := range []struct {
		refused string // from now on
		want    []string
	}{
		{"10.0.0.2:80", []string{"10.0.0.2:80"}}, {"", []string{"10.0.0.1:80"}}, {"10.0.0.1:80", []string{"10.0.0.1:80", "10.0.0.2:80"}},
		{"", []string{"10.0.0.2:80"}},
	} {
		var addrs []string
		for _, e := range receive(t, got) {
			addrs = append(addrs, e.Addr)
		}
		if !slices.Equal(addrs, step.want) {
			t.Fatalf("step %d: in use are %v, want %v", i, addrs, step.want)
		}
		set(step.refused)
		rule.JudgeAgain()
	}
	if n := len(receive(t, got)); n != 2 {
		t.Errorf("in the end %d are in use", n)
	}
}

// TestOfHostIsKept: a process that takes over knows which addresses are from /etc/hosts.
func TestOfHostIsKept(t *testing.T) {
	k := Known{"a": {addrs: []netip.Addr{netip.MustParseAddr("127.0.1.1")}, ofHost: true}, "b": {addrs: []netip.Addr{netip.MustParseAddr("127.0.1.1")}}}
	after := KnownFrom(k.Texts())
	if !after["a"].ofHost || after["b"].ofHost || len(after["a"].addrs) != 1 {
		t.Errorf("after: %+v", after)
	}
}
