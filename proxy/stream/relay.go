package stream

import (
	"io"
	"syscall"
	"time"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/fault"
)

// flushTime is how long the other direction of a broken stream may continue with the bytes
// that the kernel still holds.
const flushTime = time.Second

// relay copies the bytes of a pair, whose ends are both connected, both ways. Between two TCP connections
// the copy is splice, within the kernel: relay holds no bytes, and a reader that stops stalls its sender.
// With TLS or a Unix socket on one of them it holds a buffer for each direction.
//
// An end of file is passed on as one, and the other direction continues. An error ends both
// directions with a reset. So does an HTTP request at the beginning, if it could go round rules.
type relay struct {
	p       *pair
	guarded bool // some host has rules: bytes that begin like HTTP must not be relayed unread
}

// run sends early to up and releases it, copies both ways until both have ended, and closes both
// connections. It returns the bytes that went up (in) and down (out).
func (r *relay) run(early *intake) (in, out int64) {
	p := r.p
	p.enter(relaying)
	back := make(chan struct{}, 1)
	go func() {
		p.guard(func() { out = r.copy(p.down, p.up) })
		back <- struct{}{}
	}()
	if r.guarded && r.beginsLikeHTTP(early) {
		p.cut(fault.NotAllowed) // both copies end at once
		early.free()            // nothing of it is sent
	}
	if in = int64(len(early.b)); in > 0 { // an empty write would consume the error of a reset
		if _, err := p.up.Write(early.b); err != nil {
			r.onBroken(p.up)
		}
	}
	early.free()
	in += r.copy(p.up, p.down)
	<-back
	if state, _ := p.states(); state == breaking {
		p.abort()
	}
	_ = p.down.Close()
	_ = p.up.Close()
	return in, out
}

// beginsLikeHTTP reads on until it is known whether the first bytes of the client may be an HTTP request.
// What ends before that is none.
func (r *relay) beginsLikeHTTP(first *intake) bool {
	var is http1.Detector
	v := is.Feed(first.b)
	for v == http1.Undecided {
		n := len(first.b)
		if first.more(r.p.down) != nil {
			return false
		}
		v = is.Feed(first.b[n:])
	}
	return v != http1.NotHTTP
}

func (r *relay) copy(dst, src *end) (n int64) {
	n, err := copyAll(r.p.srv.opt.Process, dst, src)
	if err == nil && src.isReset() && !src.finSent.Load() {
		err = syscall.ECONNRESET // a write to src has consumed the error
	}
	if err == nil {
		dst.finSent.Store(true)
		err = dst.CloseWrite()
	}
	if err != nil {
		r.onBroken(src)
	}
	return n
}

// onBroken ends the stream with a reset, at once if e was reset. Otherwise the other end
// failed: what that had sent is still passed on, for flushTime, and the other direction meets
// its end.
func (r *relay) onBroken(e *end) {
	p := r.p
	if e.isReset() {
		p.abort()
		return
	}
	p.enter(breaking)
	until := time.Now().Add(p.srv.flush)
	_ = p.down.SetDeadline(until)
	_ = p.up.SetDeadline(until)
}

func copyAll(proc *proxy.Process, to, from *end) (int64, error) {
	if !to.buffered() && !from.buffered() {
		return io.Copy(to.tcp, from.tcp)
	}
	proc.Charge(blockSize)
	defer proc.Charge(-blockSize)
	block := blocks.Get().(*[blockSize]byte)
	defer blocks.Put(block)
	return io.CopyBuffer(struct{ io.Writer }{to.conn}, struct{ io.Reader }{from.conn}, block[:])
}
