package http

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
)

// TestIdleConns: the connection that was used last is taken first, and nothing of it is kept.
func TestIdleConns(t *testing.T) {
	w := sim.New(1)
	l := w.Loop("a")
	p := &pool{shard: &shard.Shard{Loop: l}, service: &service.Service{Config: &config.Service{IdleTimeout: time.Minute}}}
	p.idle.init(p)
	l.Do(func() {
		var all []*conn
		for range 3 {
			c := newConn(p, nil)
			c.state = idle
			p.idle.push(c)
			all = append(all, c)
		}
		if top := p.idle.top(); top != all[2] {
			t.Error("the connection that was used last is not on top")
		}
		p.idle.pop()
		if stack := p.idle.stack; len(stack) != 2 || stack[:3][2] != nil {
			t.Errorf("%d connections are left, and the one that was taken is kept", len(stack))
		}
	})
}

// TestNothingBuffered: an attempt that waits for a connection, or whose connection was closed, holds nothing beside its request.
func TestNothingBuffered(t *testing.T) {
	if n := (&pool{}).Buffered(nil) + (&presumed{}).Buffered(nil); n != 0 {
		t.Errorf("%d bytes", n)
	}
}
