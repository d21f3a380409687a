package etcd_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/registry"
)

// TestSilentLeaseStream: a lease whose stream falls silent is renewed by others. The first that brings a response stays, and the others
// end.
func TestSilentLeaseStream(t *testing.T) {
	t.Parallel() // it mostly waits
	ended, stayed := make(chan int, 2), make(chan int, 1)
	e := startScripted(t, func(_ int, s watchStream) error { return s.confirmAll("10.0.0.1:80") })
	e.renew = func(stream int, s leaseStream) error {
		const ttl = 18
		if stream == 1 { // it falls silent after a renewal
			if err := s.answer(ttl); err != nil {
				return err
			}
		}
		if stream <= 2 {
			<-s.Context().Done()
			ended <- stream
			return nil
		}
		for renewals := 1; ; renewals++ {
			if err := s.answer(ttl); err != nil {
				return err
			}
			if renewals == 2 {
				select {
				case stayed <- stream:
				default:
				}
			}
		}
	}
	h := open(t, e.addr, nil).Register(at("10.0.0.1:80", 0))
	for range 2 {
		<-ended
	}
	<-stayed
	waitState(t, h, registry.Registered)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.grants != 1 || e.puts["compute/n@10.0.0.1:80"] != 1 {
		t.Errorf("%d leases, puts %v: the registration was lost", e.grants, e.puts)
	}
}

// TestLeaseStreamStays: a stream that renews a lease is asked again, and no other one has to.
func TestLeaseStreamStays(t *testing.T) {
	t.Parallel() // it mostly waits
	renewed := make(chan struct{})
	e := startScripted(t, func(_ int, s watchStream) error { return s.confirmAll("10.0.0.1:80") })
	e.renew = func(stream int, s leaseStream) error {
		if stream > 1 {
			<-s.Context().Done()
			return nil
		}
		for i := 0; ; i++ {
			if i == 2 {
				close(renewed)
			}
			ttl := int64(12)
			if i > 0 {
				ttl = 600
			}
			if err := s.answer(ttl); err != nil {
				return err
			}
		}
	}
	waitState(t, open(t, e.addr, nil).Register(at("10.0.0.1:80", 0)), registry.Registered)
	select {
	case <-renewed:
	case <-time.After(timeout):
		t.Error("the stream is not asked again")
	}
}

// TestYieldedLease: the lease of a key that is left to another process is kept alive.
func TestYieldedLease(t *testing.T) {
	e := startScripted(t, func(_ int, s watchStream) error { return s.confirmAll("10.0.0.1:80") })
	h := open(t, e.addr, nil).Register(at("10.0.0.1:80", 0))
	streams := func(n int) {
		t.Helper()
		eventually.True(t, "a stream for the lease", func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.leases == n
		})
	}
	waitState(t, h, registry.Registered)
	streams(1)
	h.Yield()
	streams(2)
}
