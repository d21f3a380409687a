package stream

import (
	"time"

	"github.com/remora-proxy/remora/proxy"
)

// readSize is the size of one read of a head.
const readSize = 4 << 10

// intake holds the bytes read of a head, and maybe bytes that follow it. They count against
// limits.buffered until free or rest.
type intake struct {
	proc *proxy.Process
	b    []byte
	held int
}

// newInput returns an intake of bytes that were read already and not counted.
func newInput(proc *proxy.Process, b []byte) *intake {
	in := &intake{proc: proc, b: b}
	in.charge()
	return in
}

func (in *intake) charge() {
	in.proc.Charge(cap(in.b) - in.held)
	in.held = cap(in.b)
}

// more reads more bytes, at least one unless it fails.
func (in *intake) more(from *end) error {
	n := len(in.b)
	in.b = append(in.b, make([]byte, readSize)...)
	in.charge()
	m, err := from.Read(in.b[n:])
	in.b = in.b[:n+m]
	if m > 0 {
		return nil
	}
	return err
}

// rest returns the bytes after the first n. The caller owns and counts them.
func (in *intake) rest(n int) []byte {
	b := in.b[n:]
	in.free()
	return b
}

// free releases the bytes. It may be called again.
func (in *intake) free() {
	in.b = nil
	in.charge()
}

// writeEarly writes b to down, before the response or the relaying begins. It takes no longer than timeouts.write:
// timeouts.idle does not run in awaitingHead.
func (p *pair) writeEarly(b []byte) error {
	_ = p.down.SetWriteDeadline(time.Now().Add(p.srv.config().Timeouts.Write))
	if err := p.writeHead(b); err != nil {
		return err
	}
	return p.down.SetWriteDeadline(time.Time{})
}

// writeHead writes a head to down, counted against limits.buffered meanwhile.
func (p *pair) writeHead(head []byte) error {
	proc := p.srv.opt.Process
	proc.Charge(len(head))
	defer proc.Charge(-len(head))
	_, err := p.down.Write(head)
	return err
}
