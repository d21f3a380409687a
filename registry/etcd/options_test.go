package etcd

import (
	"testing"
	"time"
)

// TestComplete: the defaults of options, the shortest lease, and how leases are rounded.
func TestComplete(t *testing.T) {
	for _, c := range []struct {
		of     Options
		prefix string
		lease  time.Duration
		grace  time.Duration
		ttl    int64
	}{
		{Options{}, "/remora/services", 10 * time.Second, 5 * time.Second, 10},
		{Options{Prefix: "/a//", LeaseTTL: time.Second, Grace: 1}, "/a", time.Second, 1, 1},
		{Options{LeaseTTL: time.Second + 1}, "/remora/services", time.Second + 1, 5 * time.Second, 2},
		{Options{LeaseTTL: 2 * time.Second}, "/remora/services", 2 * time.Second, 5 * time.Second, 2},
	} {
		c.of.Endpoints = []string{"127.0.0.1:1"}
		r, err := New(c.of)
		if err != nil {
			t.Fatal(err)
		}
		if o := r.opt; o.Prefix != c.prefix || o.LeaseTTL != c.lease || o.Grace != c.grace || r.ttl != c.ttl {
			t.Errorf("%+v: prefix %s, lease %v of %d s, grace %v", c.of, o.Prefix, o.LeaseTTL, r.ttl, o.Grace)
		}
		r.Close()
	}
	one, two := Options{Endpoints: []string{"b", "a"}, Prefix: "/p"}, Options{Endpoints: []string{"a", "b"}, Prefix: "/p"}
	other := Options{Endpoints: []string{"a", "b"}, Prefix: "/q"}
	if one.origin() != two.origin() || one.origin() == other.origin() {
		t.Errorf("the origins are %q, %q and %q", one.origin(), two.origin(), other.origin())
	}
}
