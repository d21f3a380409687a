package proxy

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/registry"
)

// postLoop is a loop that runs what was posted when the test says so.
type postLoop struct {
	loop.Loop
	posts []func()
}

func (*postLoop) Now() time.Duration               { return 0 }
func (*postLoop) After(time.Duration, *loop.Timer) {}
func (*postLoop) Defer(*loop.Flush)                {}
func (*postLoop) Stop(*loop.Timer)                 {}
func (l *postLoop) Post(f func())                  { l.posts = append(l.posts, f) }

// Dial connects to nobody.
func (*postLoop) Dial(string, time.Duration, loop.Receiver) {}

// run runs what was posted, and reports whether anything was.
func (l *postLoop) run() bool {
	posts := l.posts
	l.posts = nil
	for _, f := range posts {
		f()
	}
	return len(posts) > 0
}

// heavy is a session that holds bytes, some of them for requests that can be shed.
type heavy struct {
	downstream.SessionNode
	name     string
	w        *Worker
	bytes    int
	requests []int
	log      *[]string
}

func (h *heavy) Buffered() int { return h.bytes }

func (h *heavy) ShedLargest() bool {
	if len(h.requests) == 0 {
		return false
	}
	h.release(h.requests[0])
	h.requests = h.requests[1:]
	*h.log = append(*h.log, h.name+" sheds")
	return true
}

func (h *heavy) CloseNow() {
	h.release(h.bytes)
	h.w.host.Remove(h)
	*h.log = append(*h.log, h.name+" closes")
}

func (h *heavy) release(n int) {
	h.bytes -= n
	h.w.proc.Charge(-n)
}

func (*heavy) IdleFor() time.Duration       { return 0 }
func (*heavy) HasInput() bool               { return false }
func (*heavy) RemoteAddr() string           { return "" }
func (*heavy) Listener() *exchange.Listener { return nil }
func (*heavy) Drain()                       {}
func (*heavy) Retire()                      {}
func (*heavy) CloseIdle()                   {}

// crowd is a process whose hard mark is at 20 MiB, with an eighth of 4 MiB to relieve.
type crowd struct {
	proc  *Process
	loops []*postLoop
	log   []string
}

const (
	kib      = 1 << 10
	hardMark = 20 << 20
)

func newCrowd(t *testing.T, loops int) *crowd {
	t.Helper()
	cfg, err := config.Parse("test.yaml", []byte("limits: {buffered: 16MiB, message: 1MiB}\nlisteners: [{name: a, address: \"127.0.0.1:1\", protocol: http}]\nroutes: [{service: s}]\nservices: {s: {discover: static, endpoints: [\"10.0.0.1:1\"], protocol: http}}"), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{proc: NewProcess(cfg, loops)}
	for range loops {
		l := &postLoop{}
		c.loops = append(c.loops, l)
		NewWorker(c.proc, l, slog.New(slog.DiscardHandler), 1)
	}
	return c
}

// add adds a session on a loop.
func (c *crowd) add(on int, name string, bytes int, requests ...int) {
	w := c.proc.workers[on]
	w.host.Add(&heavy{name: name, w: w, bytes: bytes, requests: requests, log: &c.log})
	c.proc.Charge(bytes)
}

// hold makes the process hold so many bytes, those of its sessions included.
func (c *crowd) hold(bytes int) { c.proc.Charge(bytes - int(c.proc.Buffered())) }

// want checks what was shed since the last call.
func (c *crowd) want(t *testing.T, log string) {
	t.Helper()
	if got := strings.Join(c.log, ", "); got != log {
		t.Errorf("shed %q, want %q", got, log)
	}
	c.log = nil
}

// TestShedOrder: above the hard mark, sessions lose memory that hold an equal part of all, and then those that hold much, until
// that is relieved.
func TestShedOrder(t *testing.T) {
	for name, step := range map[string]struct {
		setup func(c *crowd)
		want  string
	}{
		"below": {func(c *crowd) { c.add(0, "a", 15<<20); c.hold(hardMark - 1) }, ""},
		"the largest": {func(c *crowd) {
			c.add(0, "a", 3<<20)
			c.add(0, "b", 12<<20)
			c.add(0, "c", 4<<20)
			c.hold(hardMark)
		}, "b closes"},
		"an equal part, and the rest is not relieved": {func(c *crowd) {
			c.add(0, "a", 6000*kib)
			c.add(0, "b", 5000*kib)
			c.add(0, "c", 5000*kib)
			c.add(0, "d", 4000*kib)
			c.hold(hardMark + 5600*kib)
		}, "a closes"},
		"requests first": {func(c *crowd) {
			c.add(0, "a", 3<<20, 1<<20, 1<<20, 1<<20)
			c.add(0, "b", 1<<20)
			c.hold(hardMark + 1200*kib)
		}, "a sheds, a sheds"},
		"then the session": {func(c *crowd) {
			c.add(0, "a", 3<<20, 1<<20)
			c.hold(hardMark + 2<<20)
		}, "a sheds, a closes"},
		"little is not much": {func(c *crowd) {
			c.add(0, "a", 64*kib)
			c.add(0, "b", 64*kib)
			c.add(0, "c", 64*kib-1)
			c.hold(hardMark + 1<<20)
		}, "b closes, a closes"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, 1)
			step.setup(c)
			before := c.proc.workers[0].shard.Stats.Shed
			c.proc.workers[0].shedAll()
			if n := c.proc.workers[0].shard.Stats.Shed - before; int(n) != strings.Count(step.want, "closes") {
				t.Errorf("%d connections count", n)
			}
			c.want(t, step.want)
			if c.loops[0].run() {
				t.Error("one loop has posted")
			}
		})
	}
}

// TestShedRounds: all loops first shed what holds an equal part, and then what holds much. One round is in progress at a time, and
// after it another may begin.
func TestShedRounds(t *testing.T) {
	c := newCrowd(t, 2)
	first := c.proc.workers[0]
	c.add(0, "small", 100*kib)
	c.add(1, "large", 11<<20)
	c.hold(hardMark + 20<<20)
	first.shedAll()
	c.want(t, "")
	first.shedAll() // the round is in progress
	if len(c.loops[0].posts) != 1 || len(c.loops[1].posts) != 1 {
		t.Fatalf("%d and %d functions are posted, want one on each loop", len(c.loops[0].posts), len(c.loops[1].posts))
	}
	c.loops[0].run()
	c.want(t, "")
	c.loops[1].run()
	c.want(t, "large closes")
	c.loops[1].run()
	c.loops[0].run()
	c.want(t, "small closes")
	c.add(1, "later", 100*kib)
	first.shedAll()
	for c.loops[0].run() || c.loops[1].run() {
	}
	c.want(t, "later closes")
}

// failedCopies counts copies of requests that have failed.
type failedCopies struct{ count int }

func (*failedCopies) Respond(*exchange.Exchange, *race.Response) {}
func (f *failedCopies) Fail(*exchange.Exchange, *fault.Failure)  { f.count++ }

// TestShedCopies: copies of requests, for which nobody waits, are shed first, as many as are needed.
func TestShedCopies(t *testing.T) {
	const size = 1 << 20
	c := newCrowd(t, 1)
	w := c.proc.workers[0]
	c.proc.Update(registry.NewSnapshot("s", registry.SourceLive, time.Time{}, []registry.Endpoint{{Addr: "10.0.0.1:1", Weight: 1}}))
	for c.loops[0].run() {
	}
	copies, failed := &w.host.Pool.Copies, &failedCopies{}
	of := w.host.Pool.Exchange(copies)
	of.Request = protocol.Request{Method: []byte("POST"), Path: []byte("/"), Authority: []byte("a"), Body: make([]byte, size)}
	for range 4 {
		copies.Send(copies.New(of), exchange.NewCopyRoute(w.services["s"]), failed, 0)
	}
	c.add(0, "a", 15<<20)
	w.proc.shared.Budget.Charge(w.shard.Uncounted)
	w.shard.Uncounted = 0
	c.hold(hardMark + 2*size + size/4)
	if w.shedAll(); failed.count != 3 {
		t.Errorf("%d of 4 copies are shed, want 3", failed.count)
	}
	c.want(t, "")
}
