package reactor_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/conformance"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor"
)

// TestConformance runs the conformance suite of package loop, with one loop and with
// several.
func TestConformance(t *testing.T) {
	for name, loops := range map[string]int{"one loop": 1, "three loops": 3} {
		t.Run(name, func(t *testing.T) {
			conformance.Run(t, func(t *testing.T) conformance.Harness { return newHarness(t, loops) })
		})
	}
}

// TestConformanceTLS runs the same suite over TLS.
func TestConformanceTLS(t *testing.T) {
	identity := reactor.NewIdentity(t)
	conformance.Run(t, func(t *testing.T) conformance.Harness {
		h := newHarnessWith(t, reactor.Options{
			Loops: 2, DialTLS: func(_, _, _ string) func() *tls.Config { return identity.Client },
		})
		h.identity = identity
		return h
	})
}

// waitLimit is how long a test waits before it fails.
const waitLimit = time.Minute

// harness is a reactor whose first loop is under test.
type harness struct {
	t *testing.T
	e *reactor.Reactor
	l loop.Loop

	identity *certs.Source // nil: plain text
}

func newHarness(t *testing.T, loops int) *harness {
	return newHarnessWith(t, reactor.Options{Loops: loops})
}

func newHarnessWith(t *testing.T, o reactor.Options) *harness {
	o.Logger = slog.New(slog.DiscardHandler)
	o.Engine = reactor.EnvironmentEngine()
	e, err := reactor.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	e.SetHandshakeTimeout(waitLimit)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if n := e.Stats().Panics; n > 0 {
			t.Errorf("%d panics", n)
		}
	})
	return &harness{t: t, e: e, l: e.Loops()[0]}
}

func (h *harness) Do(f func(l loop.Loop)) {
	h.t.Helper()
	done := make(chan struct{})
	h.l.Post(func() { defer close(done); f(h.l) })
	select {
	case <-done:
	case <-time.After(waitLimit):
		h.t.Fatal("the loop does not run posted functions")
	}
}

func (h *harness) Outside(fs ...func(l loop.Loop)) {
	var all sync.WaitGroup
	for _, f := range fs {
		all.Go(func() { f(h.l) })
	}
	all.Wait()
}

// Wait polls cond on the loop, since a condition has no event of its own.
func (h *harness) Wait(what string, cond func() bool) {
	h.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(200 * time.Microsecond) {
		ok := false
		h.Do(func(loop.Loop) { ok = cond() })
		if ok {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("timeout waiting for %s", what)
		}
	}
}

func (h *harness) Listen(accept func() loop.Receiver) string {
	var o reactor.ListenOptions
	if h.identity != nil {
		o.TLS = h.identity.Server
	}
	l, err := h.e.ListenOn(h.l, "127.0.0.1:0", o,
		func(loop.Loop, string) loop.Receiver { return accept() })
	if err != nil {
		h.t.Fatal(err)
	}
	return l.Addr().String()
}

func (h *harness) Refused() string { return reactor.RefusingAddr(h.t) }

func (h *harness) Blackhole() (string, bool) { return reactor.Blackhole(h.t), true }

func (h *harness) Connect(addr string) conformance.Peer {
	if h.identity != nil {
		return conformance.TLSPeer(h.t, addr, h.identity.Client())
	}
	return conformance.NetPeer(h.t, addr)
}
