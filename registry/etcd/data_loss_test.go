package etcd_test

import (
	"sync"
	"testing"

	"github.com/remora-proxy/remora/internal/cutlink"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/etcd"
	"github.com/remora-proxy/remora/registry/registrytest"
)

// pausing is a watcher whose watches stop before their first snapshot, until resume is
// closed.
type pausing struct {
	registry.Watcher
	paused, resume chan struct{}
}

func (p pausing) Watch(service string, notify func(*registry.Snapshot)) (stop func()) {
	var once sync.Once
	return p.Watcher.Watch(service, func(s *registry.Snapshot) {
		once.Do(func() {
			close(p.paused)
			<-p.resume
		})
		notify(s)
	})
}

// TestDataLossLaterRevision checks that a loss of data is noticed even if etcd has
// reached a later revision than before when it is seen again: while a watch follows the
// service, and between its list and that.
func TestDataLossLaterRevision(t *testing.T) {
	for _, name := range []string{"followed", "listed"} {
		t.Run(name, func(t *testing.T) {
			s := startEtcd(t, lab.EtcdOptions{})
			addr := s.Addr()
			ctx, client := raw(t, s)
			link := cutlink.To(t, addr)
			consumer := open(t, link.Addr(), nil)
			keys := pausing{etcd.Keys(consumer), make(chan struct{}), make(chan struct{})}
			put(t, ctx, client, "s/1", `{"Op":0,"Addr":"10.0.0.1:80"}`)
			if name == "listed" {
				put(t, ctx, client, "s/2", `{"Op":0,"Addr":"10.0.0.2:80"}`)
			} else {
				close(keys.resume)
			}
			got := registrytest.Watch(t, keys, "s")
			<-keys.paused
			if name == "followed" {
				got.WaitAddrs("10.0.0.1:80")
				put(t, ctx, client, "s/2", `{"Op":0,"Addr":"10.0.0.2:80"}`)
				got.WaitAddrs("10.0.0.1:80", "10.0.0.2:80")
			}

			link.Cut(true)
			s.Close()
			s = startEtcd(t, lab.EtcdOptions{ClientAddr: addr})
			ctx, client = raw(t, s)
			for _, k := range []string{"3", "2"} {
				put(t, ctx, client, "s/"+k, `{"Op":0,"Addr":"10.0.0.`+k+`:80"}`)
			}
			for range 20 {
				put(t, ctx, client, "other/key", `x`)
			}
			link.Cut(false)
			if name == "listed" {
				own, err := consumer.Client(ctx)
				if err == nil { // a connection is there when the watch goes on
					_, err = own.Get(ctx, "any")
				}
				if err != nil {
					t.Fatal(err)
				}
				close(keys.resume)
			}
			got.WaitAddrs("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80") // the first may be alive: it is kept
			if n := consumer.Stats().DataLosses; n != 1 {
				t.Errorf("%d losses of data", n)
			}
			got.Always("10.0.0.1:80")
			if name == "listed" {
				got.Always("10.0.0.2:80")
			}
		})
	}
}
