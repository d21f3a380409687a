package stream

import (
	"sync"
	"time"
)

// watch aborts a stream after timeouts.idle without progress: no byte was received from either
// side, and neither side acknowledged one. The kernel counts both, so the copies need neither
// deadlines nor buffers here. A slow reader keeps its stream as long as it reads anything.
type watch struct {
	p      *pair
	idle   time.Duration
	mu     sync.Mutex
	timer  *time.Timer
	ended  bool
	moved  uint64    // bytes at the last check that saw progress
	change time.Time // time of that check
}

// checksPerTimeout is how often a stream is checked during timeouts.idle. It is aborted
// between 1 and 1+1/checksPerTimeout timeouts after its last byte.
const checksPerTimeout = 4

func (p *pair) watch() *watch {
	w := &watch{p: p, idle: p.srv.config().Timeouts.Idle, change: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.interval(), w.check)
	return w
}

func (w *watch) interval() time.Duration { return max(w.idle/checksPerTimeout, time.Millisecond) }

func (w *watch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	moved, now := w.p.moved(), time.Now()
	if moved != w.moved || w.p.awaitingHead.Load() {
		w.moved, w.change = moved, now
	} else if now.Sub(w.change) >= w.idle {
		w.ended = true
		w.p.abort()
		return
	}
	w.timer.Reset(w.interval())
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.timer.Stop()
}
