package etcd_test

import (
	"testing"

	"github.com/remora-proxy/remora/registry"
)

// TestSilentLeaseStream: a lease whose stream falls silent is renewed by others. The first that brings a response stays, and the others
// end.
func TestSilentLeaseStream(t *testing.T) {
	t.Parallel() // it mostly waits
	ended, stayed := make(chan int, 2), make(chan int, 1)
	e := startScripted(t, func(_ int, s watchStream) error { return s.confirmAll("10.0.0.1:80") })
	e.renew = func(stream int, s leaseStream) error {
		const ttl = 6
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
