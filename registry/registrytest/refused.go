package registrytest

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/reach"
)

// own is a listener of the sidecar whose requests go to the service, and ownAdmin its admin API.
var (
	own      = netip.MustParseAddrPort("10.0.0.9:80")
	ownAdmin = netip.MustParseAddrPort("10.0.0.10:80")
)

// refused are addresses that no source may bring, each with the reason. Those without one are invalid: each source leaves them out
// itself.
var refused = []struct {
	addr   string
	reason reach.Reason
}{
	{"127.0.0.1:80", "loopback"},
	{"127.8.9.10:80", "loopback"},
	{"[::1]:80", "loopback"},
	{"[::ffff:127.0.0.2]:80", "loopback"},
	{"[64:ff9b::7f00:1]:80", "loopback"},
	{"[2002:7f00:1::]:80", "loopback"},
	{"0.0.0.1:80", "loopback"},
	{"169.254.169.254:80", "link-local"},
	{"169.254.0.1:80", "link-local"},
	{"[fe80::1]:80", "link-local"},
	{"[fe80::2%eth0]:80", "link-local"},
	{"255.255.255.255:80", "broadcast"},
	{"100.100.100.200:80", "metadata"},
	{"[fd00:ec2::254]:80", "metadata"},
	{own.String(), reach.Loop},
	{ownAdmin.String(), reach.Admin},
	{"0.0.0.0:80", ""},
	{"[::]:80", ""},
	{"224.0.0.1:80", ""},
	{"[ff02::1]:80", ""},
}

// refusedAddresses checks that addresses to which a registry must not lead are left out and counted, and change nothing else.
func refusedAddresses(t *testing.T, r *Registry) {
	if r.Restricted == nil {
		t.Skip("the registry belongs to this host")
	}
	rule := reach.New(reach.Options{Source: "test", Own: func(service string, at netip.AddrPort) reach.Reason {
		switch {
		case at == ownAdmin:
			return reach.Admin
		case at == own && service == Service:
			return reach.Loop
		}
		return ""
	}})
	c := r.Restricted(t, rule)
	t.Cleanup(func() { c.Close() })
	s := Watch(t, c, Service)
	s.WaitAddrs(first.Addr)
	want, counts := []reach.Refused{}, map[reach.Reason]uint64{}
	for _, of := range refused {
		r.Put(t, registry.Endpoint{Addr: of.addr, Weight: 1})
		if of.reason != "" {
			addr, err := registry.ParseAddr(of.addr)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, reach.Refused{Service: Service, Address: addr.String(), Reason: of.reason})
			counts[of.reason]++
		}
	}
	r.Put(t, second)
	s.WaitAddrs(first.Addr, second.Addr)
	s.Always(first.Addr)
	for _, snap := range s.History() {
		if len(snap.Endpoints) > 2 || slices.ContainsFunc(snap.Endpoints, func(e registry.Endpoint) bool { return e.Addr != first.Addr && e.Addr != second.Addr }) {
			t.Fatalf("a refused address is in use: %s", Describe(s.History()))
		}
	}
	slices.SortFunc(want, func(a, b reach.Refused) int { return cmp.Compare(a.Address, b.Address) })
	if got := rule.Refused(100); !slices.Equal(got, want) {
		t.Errorf("refused are\n%v\nwant\n%v", got, want)
	}
	if got := rule.Counts(); !maps.Equal(got, counts) {
		t.Errorf("counted are %v, want %v", got, counts)
	}
	for _, of := range refused {
		r.Remove(t, registry.Endpoint{Addr: of.addr})
	}
	r.Remove(t, second)
	s.WaitAddrs(first.Addr)
	s.Wait("nothing to be refused", func(*registry.Snapshot) bool { return len(rule.Refused(100)) == 0 })
}
