package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/conformance"
	"github.com/remora-proxy/remora/proxy/loop"
)

// TestConformance runs the suite of drivers on the simulator, for several seeds.
func TestConformance(t *testing.T) {
	seeds := 4
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, func(t *testing.T) conformance.Harness {
				return newHarness(t, uint64(seed))
			})
		})
	}
}

const blackhole = "10.0.9.9:1"

// harness is a world with the loop under test and one for the peers.
type harness struct {
	t     *testing.T
	w     *World
	l     *Loop
	far   *Loop
	ports int

	// driver is the loop that the suite gets, and receiver wraps the receivers of its
	// listeners. A mutant breaks a rule there.
	driver   loop.Loop
	receiver func(r loop.Receiver) loop.Receiver
}

func newHarness(t *testing.T, seed uint64) *harness {
	w := New(seed)
	w.OnFailure(t)
	h := &harness{t: t, w: w, l: w.Loop("near"), far: w.Loop("far")}
	h.driver = h.l
	h.receiver = func(r loop.Receiver) loop.Receiver { return r }
	w.Faults.Blackhole(blackhole, true)
	return h
}

func (h *harness) Do(f func(l loop.Loop)) { h.l.Do(func() { f(h.driver) }) }

func (h *harness) Outside(fs ...func(l loop.Loop)) {
	for _, f := range fs {
		f(h.driver)
	}
}

func (h *harness) Wait(what string, cond func() bool) {
	h.t.Helper()
	ok := false
	for deadline := h.w.Now() + 20*time.Second; h.w.Now() < deadline; {
		h.l.Do(func() { ok = cond() })
		if ok {
			return
		}
		if h.w.Rand().IntN(4) == 0 { // late loops see many events in one turn
			h.w.Faults.Pause(h.l, time.Duration(h.w.Rand().IntN(1000))*time.Microsecond)
		}
		h.w.Run(100 * time.Microsecond)
	}
	h.t.Fatalf("waited 20 s of virtual time for %s", what)
}

func (h *harness) Listen(accept func() loop.Receiver) string {
	h.ports++
	addr := fmt.Sprint("10.0.0.1:", h.ports)
	h.w.Net.Listen(addr, h.l, func() loop.Receiver { return h.receiver(accept()) })
	return addr
}

func (h *harness) Refused() string { return "10.0.0.1:9" }

func (h *harness) Blackhole() (string, bool) { return blackhole, true }

func (h *harness) Connect(addr string) conformance.Peer {
	h.t.Helper()
	p := &farEnd{h: h}
	h.far.Do(func() { h.far.Dial(addr, time.Second, p) })
	if !h.w.RunUntil(func() bool { return p.c != nil }, time.Second) {
		h.t.Fatalf("no connection to %s", addr)
	}
	h.w.Faults.PauseReading(p.c, true)
	return p
}

// farEnd is a conformance.Peer: a Receiver on the far loop.
type farEnd struct {
	h   *harness
	c   loop.Conn
	got []byte
	err error

	queue []byte
}

func (p *farEnd) OnOpen(c loop.Conn) { p.c = c }
func (p *farEnd) OnData(b []byte)    { p.got = append(p.got, b...) }
func (p *farEnd) OnClose(err error)  { p.err = err }

func (p *farEnd) Read()                { p.h.w.Faults.PauseReading(p.c, false) }
func (p *farEnd) Got() ([]byte, error) { return p.got, p.err }
func (p *farEnd) Reset()               { p.h.w.Faults.Reset(p.c) }

func (p *farEnd) CloseWrite() {
	p.h.far.Do(func() {}) // the turn that sends what is queued
	p.h.w.Faults.HalfClose(p.c)
}

// Send queues b. Post alone would not keep the order of two sends.
func (p *farEnd) Send(b []byte) {
	p.queue = append(p.queue, b...)
	p.h.far.Post(func() {
		p.c.Write(p.queue)
		p.queue = nil
	})
}
