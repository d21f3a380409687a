package stream

import (
	"sync"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
)

// watch ends a stream that exceeds a limit of time:
//
//   - timeouts.idle without progress: no byte was received from either side, and neither side
//     acknowledged one;
//   - timeouts.stream in all;
//   - a client that moves a body at less than timeouts.min_rate, unless both sides talk (gRPC).
//
// The kernel counts the bytes, so the copies need neither deadlines nor buffers here.
type watch struct {
	p     *pair
	limit *config.Timeouts
	began time.Time

	mu     sync.Mutex
	timer  *time.Timer
	ended  bool
	moved  uint64    // bytes at the last check that saw progress
	change time.Time // time of that check
	sent   uint64    // bytes for the client, at the last check of the pace

	upload, download pace // of the client's body, and of the body for the client
}

// checksPerTimeout is how often a stream is checked during timeouts.idle, or the window of a
// pace. It is ended between 1 and 1+1/checksPerTimeout of these after its last byte.
const checksPerTimeout = 4

func watchOf(p *pair) *watch {
	now := time.Now()
	w := &watch{p: p, limit: &p.srv.config().Timeouts, began: now, change: now}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.interval(now), w.check)
	return w
}

// interval returns the time until the next check. Only a body has a pace, so an idle WebSocket
// is seldom looked at.
func (w *watch) interval(now time.Time) time.Duration {
	d := w.limit.Idle
	if w.limit.MinRate > 0 && !w.p.interactive.Load() {
		if uploading, downloading := w.p.bodies(); uploading || downloading {
			d = min(d, w.p.srv.window)
		}
	}
	d /= checksPerTimeout
	if w.limit.Stream > 0 {
		d = min(d, w.limit.Stream-now.Sub(w.began))
	}
	return max(d, time.Millisecond)
}

// bodies reports whether the client has to send, and to read, a body.
func (p *pair) bodies() (uploading, downloading bool) {
	state, client := p.states()
	return client == clientUploading, state == responding || state == finishing
}

// rearm sets the time of the next check anew, since a body may have begun. A check locks pair.mu, so the
// caller must not hold it. A nil watch has no checks.
func (w *watch) rearm() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.timer.Reset(w.interval(time.Now()))
	}
}

func (w *watch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	now := time.Now()
	switch {
	case w.idle(now), w.limit.Stream > 0 && now.Sub(w.began) >= w.limit.Stream:
		w.ended = true
		w.p.abort()
		return
	case w.limit.MinRate > 0 && !w.p.interactive.Load():
		w.checkPace(now)
	}
	w.timer.Reset(w.interval(now))
}

// idle reports whether the stream has made no progress for timeouts.idle. A stream that is
// being connected, or awaits the head of a response, has its own deadlines.
func (w *watch) idle(now time.Time) bool {
	moved := w.p.moved()
	state, _ := w.p.states()
	if moved != w.moved || w.p.upstream() == nil || state == awaitingHead {
		w.moved, w.change = moved, now
		return false
	}
	return now.Sub(w.change) >= w.limit.Idle
}

// checkPace ends a body that the client moves too slowly. The client of an upload may still
// get a response.
func (w *watch) checkPace(now time.Time) {
	p := w.p
	uploading, downloading := p.bodies()
	if now.Sub(w.began) < p.srv.window || !uploading && !downloading {
		w.upload, w.download = pace{}, pace{}
		return
	}
	c := p.down.counters()
	waitsForClient := uploading && c.unread == 0 && p.upstream().unsent() == 0
	if w.upload.tooSlow(now, waitsForClient, c.received, w) {
		p.why.CompareAndSwap(nil, fault.BodyTooSlow)
		p.closeUp(false)
	}
	behind := w.behind(&c)
	if w.download.tooSlow(now, downloading && behind, c.acknowledged, w) {
		p.cut(fault.BodyTooSlow)
	}
}

// behind reports whether the client lacks bytes that were sent before the last check. It is called
// once in each. Newer bytes may be on their way to a prompt client: some always are if a slow source
// sends several in each round trip.
func (w *watch) behind(c *counters) bool {
	before := w.sent
	w.sent = c.acknowledged + uint64(c.unacknowledged)
	return c.unacknowledged > 0 && c.acknowledged < before
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.timer.Stop()
}

// paceWindow is the time over which the rate of a body is averaged. It is also the time after
// the start of a stream in which the rate does not count.
const paceWindow = 10 * time.Second

// pace measures how fast the client moves a body while the sidecar waits for nobody else.
type pace struct {
	since time.Time // start of the window; zero if the sidecar does not wait for the client
	bytes uint64    // moved at that time
}

// tooSlow reports whether a whole window has passed in which each check found the sidecar
// waiting for the client, and the client moved too little.
func (c *pace) tooSlow(now time.Time, waiting bool, moved uint64, w *watch) bool {
	window := now.Sub(c.since)
	switch {
	case !waiting:
		c.since = time.Time{}
		return false
	case c.since.IsZero():
		c.since, c.bytes = now, moved
		return false
	case window < w.p.srv.window:
		return false
	}
	few := float64(moved-c.bytes) < float64(w.limit.MinRate)*window.Seconds()
	c.since, c.bytes = now, moved
	return few
}
