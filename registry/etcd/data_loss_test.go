package etcd_test

import (
	"testing"

	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/registry/registrytest"
)

// TestDataLossLaterRevision checks that a loss of data is noticed even if etcd has
// reached a later revision than before when it is seen again.
func TestDataLossLaterRevision(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	addr := s.Addr()
	ctx, client := raw(t, s)
	link := forward(t, addr)
	for _, k := range []string{"1", "2"} {
		put(t, ctx, client, "s/"+k, `{"Op":0,"Addr":"10.0.0.`+k+`:80"}`)
	}
	consumer := open(t, link.addr(), nil)
	got := registrytest.Watch(t, consumer, "s")
	got.WaitAddrs("10.0.0.1:80", "10.0.0.2:80")

	link.setCut(true)
	s.Close()
	s = startEtcd(t, lab.EtcdOptions{ClientAddr: addr})
	ctx, client = raw(t, s)
	for _, k := range []string{"3", "2"} {
		put(t, ctx, client, "s/"+k, `{"Op":0,"Addr":"10.0.0.`+k+`:80"}`)
	}
	for range 20 {
		put(t, ctx, client, "other/key", `x`)
	}
	link.setCut(false)
	got.WaitAddrs("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80") // the first may be alive: it is kept
	if n := consumer.Stats().DataLosses; n != 1 {
		t.Errorf("%d losses of data", n)
	}
	got.Always("10.0.0.1:80")
	got.Always("10.0.0.2:80")
}
