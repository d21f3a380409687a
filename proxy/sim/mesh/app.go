package mesh

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/sim"
)

// app is an emulated application: HTTP, a pool of threads, a bounded queue in
// front of it, lognormal service times, and stalls that freeze all its work.
type app struct {
	m        *mesh
	provider int
	name     string
	addr     string
	loop     *sim.Loop
	down     bool
	lives    int
	threads  int
	work     *rand.Rand

	running []*task
	waiting []*task
	frozen  time.Duration // all work stops until then
	slow    float64       // factor of service times
	failing bool
	served  int
	worked  time.Duration // for all requests
}

// requester is who gets the response to a request, unless it is gone.
type requester interface{ answer(nonce, status int) }

// task is one request at the application.
type task struct {
	app   *app
	from  requester
	nonce int
	left  time.Duration // remaining work, while the timer is stopped
	due   time.Duration // end of the work, while the timer runs
	timer loop.Timer
}

func newApp(m *mesh, provider int, name, addr string) *app {
	return &app{m: m, provider: provider, name: name, addr: addr, down: true,
		threads: m.spec.threads(provider), work: m.random(forWork, provider), slow: 1}
}

func (a *app) start() {
	a.down, a.frozen = false, 0
	a.lives++
	a.running, a.waiting = nil, nil
	a.loop = a.m.w.Loop(a.name)
	a.m.w.Net.Listen(a.addr, a.loop, a.accept)
}

func (a *app) accept() loop.Receiver {
	if a.m.spec.HTTP2Apps {
		return newAppHTTP2(a)
	}
	return &appConn{app: a}
}

func (a *app) crash() {
	if !a.down {
		a.down, a.running, a.waiting = true, nil, nil
		a.m.w.Faults.Crash(a.loop)
	}
}

// pending returns the number of requests in work or in the queue.
func (a *app) pending() int { return len(a.running) + len(a.waiting) }

// serve takes a request. If no thread is free and the queue is full, it responds with 503.
func (a *app) serve(from requester, nonce int) {
	switch {
	case a.failing:
		from.answer(nonce, 500)
	case len(a.running) < a.threads:
		a.run(&task{app: a, from: from, nonce: nonce})
	case len(a.waiting) < a.m.spec.Queue:
		a.waiting = append(a.waiting, &task{app: a, from: from, nonce: nonce})
	default:
		from.answer(nonce, 503)
	}
}

// run gives t a thread.
func (a *app) run(t *task) {
	a.running = append(a.running, t)
	t.timer.Fire = t.done
	t.left = time.Duration(math.Exp(a.work.NormFloat64()*a.m.spec.Sigma) * float64(a.m.spec.Service) * a.slow)
	if share := a.m.spec.Stragglers; share > 0 && a.work.Float64() < share {
		t.left += a.m.spec.StragglerFor
	}
	a.worked += t.left
	if a.loop.Now() >= a.frozen {
		t.resume()
	}
}

func (t *task) resume() {
	t.due = t.app.loop.Now() + t.left
	t.app.loop.After(t.left, &t.timer)
}

// stop stops the timer, and returns the remaining work.
func (t *task) stop() time.Duration {
	if !t.timer.Armed() {
		return t.left
	}
	t.app.loop.Stop(&t.timer)
	return max(0, t.due-t.app.loop.Now())
}

func (t *task) done() {
	a := t.app
	a.served++
	a.release(t)
	t.from.answer(t.nonce, 200)
	a.runNext()
}

// release takes the thread of t away.
func (a *app) release(t *task) {
	for i, r := range a.running {
		if r == t {
			last := len(a.running) - 1
			a.running[i] = a.running[last]
			a.running = a.running[:last]
			break
		}
	}
}

func (a *app) runNext() {
	if len(a.waiting) > 0 && len(a.running) < a.threads {
		next := a.waiting[0]
		a.waiting = a.waiting[1:]
		a.run(next)
	}
}

// cancel stops the work for a requester that is gone.
func (a *app) cancel(from requester) {
	a.waiting = slices.DeleteFunc(a.waiting, func(t *task) bool { return t.from == from })
	for _, t := range a.running {
		if t.from == from {
			a.worked -= t.stop()
			a.release(t)
			a.runNext()
			return
		}
	}
}

// stall freezes all work for d from now. Like thaw it must be called outside of the loop.
func (a *app) stall(d time.Duration) {
	if a.down || d <= 0 {
		return
	}
	until := a.m.w.Now() + d
	a.loop.Post(func() {
		if now := a.loop.Now(); now >= a.frozen {
			for _, t := range a.running {
				t.left = t.stop()
			}
		}
		a.frozen = max(a.frozen, until)
	})
	life := a.lives
	a.m.w.At(until, func() {
		if !a.down && a.lives == life && a.m.w.Now() >= a.frozen {
			a.loop.Post(a.resume)
		}
	})
}

// thaw ends a stall at once.
func (a *app) thaw() {
	if !a.down && a.frozen > a.m.w.Now() {
		a.frozen = a.m.w.Now()
		a.loop.Post(a.resume)
	}
}

func (a *app) resume() {
	if a.loop.Now() < a.frozen {
		return
	}
	for _, t := range a.running {
		if !t.timer.Armed() {
			t.resume()
		}
	}
}
