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

// relay sends early to up and releases it, copies both ways until both have ended, and closes
// both connections. It returns the bytes that went up (in) and down (out). Between two TCP
// connections the copy is splice, within the kernel: relay holds no bytes, and a reader that
// stops stalls its sender. With TLS or a Unix socket on one of them it holds a buffer for each
// direction.
//
// An end of file is passed on as one, and the other direction continues. An error ends both
// directions with a reset. So does a request of HTTP at the beginning, if it could go round rules.
func (p *pair) relay(early *intake) (in, out int64) {
	p.enter(relaying)
	back := make(chan int64, 1)
	go func() { back <- p.copy(p.down, p.up) }()
	if p.guarded && p.beginsLikeHTTP(early) {
		p.cut(fault.NotAllowed)
		early.free()
	}
	if in = int64(len(early.b)); in > 0 { // an empty write would consume the error of a reset
		if _, err := p.up.Write(early.b); err != nil {
			p.onBroken(p.up)
		}
	}
	early.free()
	in += p.copy(p.up, p.down)
	out = <-back
	if state, _ := p.states(); state == breaking {
		p.abort()
	}
	_ = p.down.Close()
	_ = p.up.Close()
	return in, out
}

// beginsLikeHTTP reads on until it is known whether the first bytes of the client may be a request of HTTP.
// What ends before that is none.
func (p *pair) beginsLikeHTTP(first *intake) bool {
	var is http1.Detector
	v := is.Feed(first.b)
	for v == http1.Undecided {
		n := len(first.b)
		if first.more(p.down) != nil {
			return false
		}
		v = is.Feed(first.b[n:])
	}
	return v != http1.NotHTTP
}

func (p *pair) copy(dst, src *end) (n int64) {
	n, err := copyAll(p.srv.opt.Process, dst, src)
	if err == nil && src.isReset() && !src.finSent.Load() {
		err = syscall.ECONNRESET // a write to src has consumed the error
	}
	if err == nil {
		dst.finSent.Store(true)
		err = dst.CloseWrite()
	}
	if err != nil {
		p.onBroken(src)
	}
	return n
}

// onBroken ends the stream with a reset, at once if e was reset. Otherwise the other end
// failed: what that had sent is still passed on, for flushTime, and the other direction meets
// its end.
func (p *pair) onBroken(e *end) {
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
