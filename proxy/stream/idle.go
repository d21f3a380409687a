package stream

import (
	"sync"
	"time"
)

// watch ends a stream in which nothing has moved for timeouts.idle: no byte came
// from either side, and none was acknowledged by one. The kernel counts both, so
// the copies need neither deadlines nor buffers of ours, and a slow reader keeps
// its stream as long as it takes anything at all.
type watch struct {
	p      *pair
	idle   time.Duration
	mu     sync.Mutex
	timer  *time.Timer
	ended  bool
	moved  uint64    // bytes, when it last changed
	change time.Time // when that was noticed
}

// looks is how often a stream is looked at while it may be idle: it ends
// between one and 1+1/looks times the timeout after its last byte.
const looks = 4

func (p *pair) watch() *watch {
	w := &watch{p: p, idle: p.srv.config().Timeouts.Idle, change: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.every(), w.look)
	return w
}

func (w *watch) every() time.Duration { return max(w.idle/looks, time.Millisecond) }

func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	moved, now := w.p.moved(), time.Now()
	if moved != w.moved || w.p.waits.Load() {
		w.moved, w.change = moved, now
	} else if now.Sub(w.change) >= w.idle {
		w.ended = true
		w.p.cut()
		return
	}
	w.timer.Reset(w.every())
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.timer.Stop()
}
