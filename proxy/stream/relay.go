package stream

import (
	"io"
	"syscall"
	"time"

	"github.com/remora-proxy/remora/proxy"
)

// flushTime is how long the other direction of a broken stream may go on with
// what the kernel still holds of it.
const flushTime = time.Second

// relay sends early up and frees it, copies both ways until both have ended, and closes both
// connections. Of each connection's bytes it holds none: between two TCP
// connections the copy is splice, within the kernel, so a reader that stops
// stalls its sender through the two kernels' buffers. With TLS on one it holds a
// buffer for each direction.
//
// An end of file is passed on as one, and the other direction goes on. An error
// ends both with a reset.
func (p *pair) relay(early *intake) (in, out int64) {
	back := make(chan int64, 1)
	go func() { back <- p.copy(p.down, p.up) }()
	if in = int64(len(early.b)); in > 0 { // to write nothing would consume the error of a reset
		if _, err := p.up.Write(early.b); err != nil {
			p.lost(p.up)
		}
	}
	early.free()
	in += p.copy(p.up, p.down)
	out = <-back
	if p.torn.Load() {
		p.cut()
	}
	_ = p.down.Close()
	_ = p.up.Close()
	return in, out
}

// copy passes on what src sends, and its end.
func (p *pair) copy(dst, src *end) (n int64) {
	n, err := copyAll(p.srv.opt.Process, dst, src)
	if err == nil && src.dead() && !src.told.Load() {
		err = syscall.ECONNRESET // which a write to src was told of instead
	}
	if err == nil {
		dst.told.Store(true)
		err = dst.CloseWrite()
	}
	if err != nil {
		p.lost(src)
	}
	return n
}

// lost ends the stream in a reset: at once if it was e that was reset. Else the
// other end is gone; what it sent before is still to be passed on, soon, and its
// end is met by the other direction.
func (p *pair) lost(e *end) {
	if e.dead() {
		p.cut()
		return
	}
	p.torn.Store(true)
	until := time.Now().Add(p.srv.flush)
	_ = p.down.SetDeadline(until)
	_ = p.up.SetDeadline(until)
}

// copyAll copies up to the end of file.
func copyAll(proc *proxy.Process, to, from *end) (int64, error) {
	if !to.secure && !from.secure {
		return io.Copy(to.tcp, from.tcp)
	}
	proc.Hold(blockSize)
	defer proc.Hold(-blockSize)
	block := blocks.Get().(*[blockSize]byte)
	defer blocks.Put(block)
	return io.CopyBuffer(struct{ io.Writer }{to.conn}, struct{ io.Reader }{from.conn}, block[:])
}
