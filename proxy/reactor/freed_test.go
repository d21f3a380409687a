package reactor

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/remora-proxy/remora/proxy/loop"
)

// TestTLSFreed: nothing keeps the memory of a connection that has ended, however it did.
func TestTLSFreed(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(t *testing.T, accepted loop.Conn)
	}{
		{"closed", func(_ *testing.T, c loop.Conn) { c.Close() }},
		{"drained", func(_ *testing.T, c loop.Conn) { c.Drain() }},
		{"closed by the peer", func(_ *testing.T, c loop.Conn) { c.Write([]byte("close")) }},
		{"detached", func(t *testing.T, c loop.Conn) {
			s, err := c.Detach()
			if err != nil {
				t.Errorf("Detach: %v", err)
				return
			}
			s.Reset()
		}},
	} {
		t.Run(c.name, func(t *testing.T) { tlsFreed(t, c.end) })
	}
}

// tlsFreed dials connections within one reactor, one after another. end ends the accepted end
// of each, or sends a second message, on which the dialling end closes.
func tlsFreed(t *testing.T, end func(t *testing.T, accepted loop.Conn)) {
	const conns = 30
	own := NewIdentity(t)
	e := start(t, withTLS(Options{}, own))
	l := e.Loops()[0]
	// A loop drops a disarmed timer that is due before the next armed one. This one is due
	// before those that watch certificates, and later than the end of the test.
	on(t, l, func() { l.After(2*waitLimit, &loop.Timer{Fire: func() {}}) })
	var kept atomic.Int64
	ended := make(chan struct{})
	track := func(data func(c loop.Conn)) *stream {
		var c loop.Conn
		return &stream{
			open: func(opened loop.Conn) {
				c = opened
				keeps(&kept, c.(*conn))
				keeps(&kept, c.(*conn).secure.tls)
				c.Write([]byte("hello"))
			},
			data:  func([]byte) { data(c) },
			close: func(error) { ended <- struct{}{} },
		}
	}
	addr := listen(t, e, listenTLS(own), func() loop.Receiver {
		return track(func(c loop.Conn) { end(t, c) })
	})
	for range conns {
		greeted := false
		l.Post(func() {
			l.Dial(addr, waitLimit, track(func(c loop.Conn) {
				if greeted {
					c.Close()
				}
				greeted = true
			}))
		})
		recv(t, ended, "the end of a connection")
		recv(t, ended, "its other end")
	}
	eventually(t, func() error {
		runtime.GC()
		if n := kept.Load(); n > 0 {
			return fmt.Errorf("%d of %d values of connections are in memory", n, 4*conns)
		}
		return nil
	})
}

// TestPostAfterStop: a loop that has ended keeps no function that is posted to it.
func TestPostAfterStop(t *testing.T) {
	e := start(t, Options{})
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	var kept atomic.Int64
	for range 10 {
		value := new([1 << 10]byte)
		keeps(&kept, value)
		e.Loops()[0].Post(func() { t.Error("a function runs after the end"); value[0]++ })
	}
	eventually(t, func() error {
		runtime.GC()
		if n := kept.Load(); n > 0 {
			return fmt.Errorf("%d values of posted functions are in memory", n)
		}
		return nil
	})
}

// keeps counts p in n until it is freed.
func keeps[T any](n *atomic.Int64, p *T) {
	n.Add(1)
	runtime.AddCleanup(p, func(n *atomic.Int64) { n.Add(-1) }, n)
}
