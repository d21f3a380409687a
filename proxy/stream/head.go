package stream

import "github.com/remora-proxy/remora/proxy"

// readSize is how much is read at once of a head.
const readSize = 4 << 10

// intake is what was read of a head, and maybe of what follows it. It counts
// against limits.buffered until free or rest.
type intake struct {
	proc *proxy.Process
	b    []byte
	held int
}

// early is an intake of what came already, and was not counted until now.
func (s *Server) early(b []byte) *intake {
	in := &intake{proc: s.opt.Process, b: b}
	in.hold()
	return in
}

func (in *intake) hold() {
	in.proc.Hold(cap(in.b) - in.held)
	in.held = cap(in.b)
}

// more reads on.
func (in *intake) more(from *end) error {
	n := len(in.b)
	in.b = append(in.b, make([]byte, readSize)...)
	in.hold()
	m, err := from.Read(in.b[n:])
	in.b = in.b[:n+m]
	if m > 0 {
		return nil
	}
	return err
}

// rest gives out what follows the first n bytes, for the caller to count.
func (in *intake) rest(n int) []byte {
	b := in.b[n:]
	in.free()
	return b
}

// free may be called again.
func (in *intake) free() {
	in.b = nil
	in.hold()
}

// say writes a head, which counts until it has left.
func (p *pair) say(head []byte) error {
	proc := p.srv.opt.Process
	proc.Hold(len(head))
	defer proc.Hold(-len(head))
	_, err := p.down.Write(head)
	return err
}
