package sim

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/conformance"
	"github.com/remora-proxy/remora/proxy/loop"
)

// mutant is the simulator with one rule of package loop broken. The case that guards the
// rule must fail on it.
type mutant struct {
	name string
	by   string // the case that must catch it
	make func(l loop.Loop, m *brokenLoop)
}

// later runs f on l after d.
func later(l loop.Loop, d time.Duration, f func()) {
	l.After(d, &loop.Timer{Fire: f})
}

var mutants = slices.Concat(roomMutants, []mutant{
	{"Now moves", "NowStandsStill", func(l loop.Loop, m *brokenLoop) {
		var n time.Duration
		m.now = func() time.Duration { n++; return l.Now() + n }
	}},
	{"Now stops", "NowIsMonotonic", func(l loop.Loop, m *brokenLoop) {
		m.now = func() time.Duration { return 0 }
	}},
	{"equal timers in reverse", "TimersInOrder", func(l loop.Loop, m *brokenLoop) {
		n := time.Duration(10_000)
		m.after = func(d time.Duration, t *loop.Timer) { n--; l.After(d+n, t) }
	}},
	{"timers early", "TimersNotEarly", func(l loop.Loop, m *brokenLoop) {
		m.after = func(d time.Duration, t *loop.Timer) { l.After(d-time.Microsecond, t) }
	}},
	{"timer within After", "TimerZeroNotWithinCall", func(l loop.Loop, m *brokenLoop) {
		m.after = func(d time.Duration, t *loop.Timer) {
			if d > 0 {
				l.After(d, t)
				return
			}
			t.Fire()
		}
	}},
	{"timers before the end of the turn", "TimerZeroStarvesNothing", func(l loop.Loop, m *brokenLoop) {
		m.deferF = func(f *loop.Flush) { later(l, 3*time.Microsecond, f.Do) }
	}},
	{"an armed timer stays", "TimerMoved", func(l loop.Loop, m *brokenLoop) {
		m.after = func(d time.Duration, t *loop.Timer) {
			if !t.Armed() {
				l.After(d, t)
			}
		}
	}},
	{"an armed timer stays", "TimerMovedByAnother", func(l loop.Loop, m *brokenLoop) {
		m.after = func(d time.Duration, t *loop.Timer) {
			if !t.Armed() {
				l.After(d, t)
			}
		}
	}},
	{"Stop does nothing", "TimerStoppedByAnother", func(l loop.Loop, m *brokenLoop) {
		m.stop = func(*loop.Timer) {}
	}},
	{"Stop does nothing", "TimerArmed", func(l loop.Loop, m *brokenLoop) {
		m.stop = func(*loop.Timer) {}
	}},
	{"Stop does nothing", "TimersMany", func(l loop.Loop, m *brokenLoop) {
		m.stop = func(*loop.Timer) {}
	}},
	{"the 50th After is lost", "TimerRearmsItself", func(l loop.Loop, m *brokenLoop) {
		n := 0
		m.after = func(d time.Duration, t *loop.Timer) {
			if n++; n != 50 {
				l.After(d, t)
			}
		}
	}},
	{"Defer queues again", "DeferOnce", func(l loop.Loop, m *brokenLoop) {
		m.deferF = func(f *loop.Flush) { l.Defer(&loop.Flush{Do: f.Do}) }
	}},
	{"flush at once", "DeferFromAnywhere", func(l loop.Loop, m *brokenLoop) {
		m.deferF = func(f *loop.Flush) { f.Do() }
	}},
	{"flush after each timer", "DeferAtEndOfTurn", func(l loop.Loop, m *brokenLoop) {
		var f *loop.Flush
		m.deferF = func(flush *loop.Flush) { f = flush }
		m.after = func(d time.Duration, t *loop.Timer) {
			fire := t.Fire
			t.Fire = func() {
				if fire(); f != nil {
					f.Do()
					f = nil
				}
			}
			l.After(d, t)
		}
	}},
	{"flushes in reverse", "DeferInOrder", func(l loop.Loop, m *brokenLoop) {
		n := time.Duration(1000)
		m.deferF = func(f *loop.Flush) { n--; later(l, n*time.Microsecond, f.Do) }
	}},
	{"flushes until there are none", "DeferAgainStarvesNothing", func(l loop.Loop, m *brokenLoop) {
		var queue []*loop.Flush
		running := false
		m.deferF = func(f *loop.Flush) {
			queue = append(queue, f)
			if running {
				return
			}
			running = true
			l.Defer(&loop.Flush{Do: func() {
				for n := 0; len(queue) > 0; n++ {
					if n == 1e6 {
						panic("starved")
					}
					f := queue[0]
					queue = queue[1:]
					f.Do()
				}
				running = false
			}})
		}
	}},
	{"flush in a later turn", "DeferBeforeCloseNotice", func(l loop.Loop, m *brokenLoop) {
		m.deferF = func(f *loop.Flush) { l.Post(f.Do) }
	}},
	{"some posts lost", "PostFromOutside", func(l loop.Loop, m *brokenLoop) {
		n := 0
		m.post = func(f func()) {
			if n++; n%100 != 0 {
				l.Post(f)
			}
		}
	}},
	{"post within the call", "PostNotWithinCall", func(l loop.Loop, m *brokenLoop) {
		m.post = func(f func()) { f() }
	}},
	{"failure within Dial", "DialRefused", func(l loop.Loop, m *brokenLoop) {
		m.dial = func(_ string, _ time.Duration, r loop.Receiver) { r.OnClose(errRefused) }
	}},
	{"failure without error", "DialRefused", func(l loop.Loop, m *brokenLoop) {
		m.close = func(r *brokenReceiver, err error) { r.Receiver.OnClose(nil) }
	}},
	{"open before failure", "DialBadAddress", func(l loop.Loop, m *brokenLoop) {
		m.close = func(r *brokenReceiver, err error) {
			if r.c == nil {
				r.Receiver.OnOpen(&brokenConn{})
			}
			r.Receiver.OnClose(err)
		}
	}},
	{"no dial timeout", "DialTimeout", func(l loop.Loop, m *brokenLoop) {
		m.dial = func(addr string, _ time.Duration, r loop.Receiver) { l.Dial(addr, 0, r) }
	}},
	{"timeout without Timeout", "DialTimeout", func(l loop.Loop, m *brokenLoop) {
		m.close = func(r *brokenReceiver, err error) { r.Receiver.OnClose(errors.New("late")) }
	}},
	{"a write to another connection", "DialMany", func(l loop.Loop, m *brokenLoop) {
		n := 0
		m.write = func(c *brokenConn, b []byte) {
			if n++; n == 300 {
				c = m.last
			}
			c.Conn.Write(b)
		}
	}},
	{"OnClose twice", "OpenDataClose", func(l loop.Loop, m *brokenLoop) {
		m.close = func(r *brokenReceiver, err error) { r.Receiver.OnClose(err); r.Receiver.OnClose(err) }
	}},
	{"empty OnData", "OpenDataClose", func(l loop.Loop, m *brokenLoop) {
		m.data = func(r *brokenReceiver, b []byte) { r.Receiver.OnData(b); r.Receiver.OnData(nil) }
	}},
	{"end of file after an own close", "OpenDataClose", func(l loop.Loop, m *brokenLoop) {
		m.close = func(r *brokenReceiver, err error) { r.Receiver.OnClose(io.EOF) }
	}},
	{"peer's close without end of file", "PeerCloses", func(l loop.Loop, m *brokenLoop) {
		m.close = func(r *brokenReceiver, err error) { r.Receiver.OnClose(nil) }
	}},
	{"a byte lost now and then", "EchoBig", func(l loop.Loop, m *brokenLoop) {
		n := 0
		m.data = func(r *brokenReceiver, b []byte) {
			if n++; n%100 != 0 || len(b) == 1 {
				r.Receiver.OnData(b)
				return
			}
			r.Receiver.OnData(b[1:])
		}
	}},
	{"Write lost in OnOpen", "WriteInOpen", func(l loop.Loop, m *brokenLoop) {
		m.write = func(c *brokenConn, b []byte) {}
	}},
	{"an empty Write sends", "WriteEmpty", func(l loop.Loop, m *brokenLoop) {
		m.write = func(c *brokenConn, b []byte) { c.Conn.Write(append(b, '!')) }
	}},
	{"small writes overtake", "WritesInOrder", func(l loop.Loop, m *brokenLoop) {
		m.write = func(c *brokenConn, b []byte) {
			if len(b) < 1<<20 {
				c.Conn.Write(b)
				return
			}
			b = append([]byte(nil), b...)
			l.Defer(&loop.Flush{Do: func() { c.Conn.Write(b) }})
		}
	}},
	{"Write keeps the slice", "WriteTakesCopy", func(l loop.Loop, m *brokenLoop) {
		m.write = func(c *brokenConn, b []byte) {
			n := min(len(b), 1<<20)
			c.Conn.Write(b[:n])
			l.Post(func() { c.Conn.Write(b[n:]) })
		}
	}},
	{"parts in reverse", "WriteParts", func(l loop.Loop, m *brokenLoop) {
		m.parts = func(c *brokenConn, parts [][]byte) { slices.Reverse(parts); c.Conn.WriteParts(parts) }
	}},
	{"Buffered is 0", "Buffered", func(l loop.Loop, m *brokenLoop) {
		m.buffered = func(*brokenConn) int { return 0 }
	}},
	{"Buffered only grows", "Buffered", func(l loop.Loop, m *brokenLoop) {
		most := 0
		m.buffered = func(c *brokenConn) int { most = max(most, c.Conn.Buffered()); return most }
	}},
	{"write after Close", "WriteAfterEnd", func(l loop.Loop, m *brokenLoop) {
		m.closing = func(c *brokenConn) { later(l, time.Millisecond, c.Conn.Close) }
	}},
	{"write to the descriptor's next owner", "WriteAfterCloseReachesNobody", func(l loop.Loop, m *brokenLoop) {
		m.write = func(c *brokenConn, b []byte) {
			if c.gone {
				c = m.last
			}
			c.Conn.Write(b)
		}
	}},
	{"OnData after Close", "CloseAnywhere", func(l loop.Loop, m *brokenLoop) {
		m.closing = func(c *brokenConn) { later(l, time.Millisecond, c.Conn.Close) }
	}},
	{"OnClose within Close", "CloseAnywhere", func(l loop.Loop, m *brokenLoop) {
		m.closing = func(c *brokenConn) { c.r.Receiver.OnClose(nil); c.Conn.Close() }
	}},
	{"OnData in the turn of Close", "CloseEachOther", func(l loop.Loop, m *brokenLoop) {
		m.closing = func(c *brokenConn) { l.Defer(&loop.Flush{Do: c.Conn.Close}) }
	}},
	{"Close twice, OnClose twice", "CloseTwice", func(l loop.Loop, m *brokenLoop) {
		m.closing = func(c *brokenConn) { l.Post(func() { c.r.OnClose(nil) }); c.Conn.Close() }
	}},
	{"Close sends all", "CloseDropsBuffered", func(l loop.Loop, m *brokenLoop) {
		m.closing = func(c *brokenConn) { c.Conn.Drain() }
	}},
	{"half-close unnoticed", "PeerHalfCloses", func(l loop.Loop, m *brokenLoop) {
		m.close = func(r *brokenReceiver, err error) {}
	}},
	{"half-close ends the output", "PeerHalfClosesAndReads", func(l loop.Loop, m *brokenLoop) {
		m.end = func(r *brokenReceiver) bool { return false }
	}},
	{"OnEnd twice", "PeerHalfClosesAndReads", func(l loop.Loop, m *brokenLoop) {
		m.end = func(r *brokenReceiver) bool {
			r.Receiver.(loop.HalfCloser).OnEnd()
			return r.Receiver.(loop.HalfCloser).OnEnd()
		}
	}},
	{"reset after a half-close unnoticed", "PeerHalfClosesAndResets", func(l loop.Loop, m *brokenLoop) {
		m.close = func(r *brokenReceiver, err error) {}
	}},
	{"reset as end of file", "PeerResets", func(l loop.Loop, m *brokenLoop) {
		m.close = func(r *brokenReceiver, err error) { r.Receiver.OnClose(io.EOF) }
	}},
	{"OnClose within Write", "PeerResetsWhileWritten", func(l loop.Loop, m *brokenLoop) {
		n := 0
		m.write = func(c *brokenConn, b []byte) {
			if n++; n == 8 {
				c.r.OnClose(errReset)
			}
			c.Conn.Write(b)
		}
	}},
	{"Drain is Close", "DrainDelivers", func(l loop.Loop, m *brokenLoop) {
		m.drain = func(c *brokenConn) { c.Conn.Close() }
	}},
	{"Drain waits for ever", "DrainEndsAlone", func(l loop.Loop, m *brokenLoop) {
		m.close = func(r *brokenReceiver, err error) {}
	}},
	{"Drain closes with unread input", "DrainReadsAndDrops", func(l loop.Loop, m *brokenLoop) {
		m.drain = func(c *brokenConn) {
			later(l, 0, func() {
				if c.Conn.Buffered() == 0 {
					c.Conn.Close()
				}
			})
		}
	}},
	{"Finish is Close", "FinishDelivers", func(l loop.Loop, m *brokenLoop) {
		m.finish = func(c *brokenConn) { c.Conn.Close() }
	}},
	{"Finish closes with unread input", "FinishReadsAndDrops", func(l loop.Loop, m *brokenLoop) {
		m.finish = func(c *brokenConn) {
			later(l, 0, func() {
				if c.Conn.Buffered() == 0 {
					c.Conn.Close()
				}
			})
		}
	}},
	{"Drain cannot be cut short", "DrainThenClose", func(l loop.Loop, m *brokenLoop) {
		m.closing = func(*brokenConn) {}
	}},
	{"a refused Detach closes", "DetachHandsOver", closesWhenDetached},
	{"a refused Detach closes", "DetachRefused", closesWhenDetached},
	{"Detach of a closed connection", "DetachAfterEnd", func(l loop.Loop, m *brokenLoop) {
		m.detach = func(*brokenConn) (loop.Socket, error) { return nil, errors.ErrUnsupported }
	}},
	{"SetReceiver does nothing", "SetReceiver", func(_ loop.Loop, m *brokenLoop) {
		m.setReceiver = func(*brokenConn, loop.Receiver) {}
	}},
	{"RemoteAddr of another host", "DialOpens", func(l loop.Loop, m *brokenLoop) {
		m.dial = func(addr string, d time.Duration, r loop.Receiver) {
			l.(*Loop).w.Net.listeners["10.0.0.8:1"] = l.(*Loop).w.Net.listeners[addr]
			l.Dial("10.0.0.8:1", d, r)
		}
	}},
})

func closesWhenDetached(_ loop.Loop, m *brokenLoop) {
	m.detach = func(c *brokenConn) (loop.Socket, error) { c.Conn.Close(); return nil, errors.ErrUnsupported }
}

// TestMutants runs, for each mutant, the case that must catch it. Each runs in a process
// of its own, since a failed test can't be undone.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process per mutant")
	}
	for _, m := range mutants {
		t.Run(m.name+"/"+m.by, func(t *testing.T) {
			run := exec.Command(os.Args[0], "-test.run=^TestMutant$/^"+m.by+"$", "-test.timeout=20s")
			run.Env = append(os.Environ(), "REMORA_MUTANT="+m.name)
			out, err := run.CombinedOutput()
			switch {
			case err == nil:
				t.Errorf("the case passes on a driver that breaks its rule\n%s", out)
			case !strings.Contains(string(out), "FAIL: TestMutant/"+m.by):
				t.Errorf("the case did not fail, something else did:\n%.2000s", out)
			}
		})
	}
}

// TestEveryCaseHasAMutant checks that the list of mutants is complete.
func TestEveryCaseHasAMutant(t *testing.T) {
	caught := map[string]bool{}
	for _, m := range mutants {
		caught[m.by] = true
	}
	for _, name := range conformance.Names() {
		if !caught[name] {
			t.Errorf("no mutant shows that case %s can fail", name)
		}
	}
}

// TestMutant is the process that TestMutants starts.
func TestMutant(t *testing.T) {
	name := os.Getenv("REMORA_MUTANT")
	if name == "" {
		t.Skip("for TestMutants")
	}
	for _, m := range mutants {
		if m.name == name {
			conformance.Run(t, func(t *testing.T) conformance.Harness {
				h := newHarness(t, 1)
				broken := &brokenLoop{Loop: h.l}
				m.make(h.l, broken)
				h.driver, h.receiver = broken, broken.wrap
				return h
			})
			return
		}
	}
	t.Fatalf("no mutant %q", name)
}
