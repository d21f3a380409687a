package proxytest

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Dialler is a loop that counts dials, and has room for at most some at a time.
type Dialler struct {
	loop.Loop
	Room           int // 0: without bound
	Dialling, Most int // under way
	All            int
	Refused        int
	Late           time.Duration // it says so only then
}

func (d *Dialler) Dial(addr string, timeout time.Duration, s loop.Stream) {
	if d.Room > 0 && d.Dialling == d.Room {
		d.Refused++
		d.After(d.Late, &loop.Timer{Fire: func() { s.OnClose(loop.ErrDialQueue) }})
		return
	}
	d.Dialling++
	d.All++
	d.Most = max(d.Most, d.Dialling)
	d.Loop.Dial(addr, timeout, &dialled{Stream: s, d: d})
}

// dialled tells its dialler how the dial ended.
type dialled struct {
	loop.Stream
	d    *Dialler
	over bool
}

func (c *dialled) end() {
	if !c.over {
		c.over = true
		c.d.Dialling--
	}
}

func (c *dialled) OnOpen(conn loop.Conn) {
	c.end()
	c.Stream.OnOpen(conn)
}

func (c *dialled) OnClose(err error) {
	c.end()
	c.Stream.OnClose(err)
}

// DiallingMesh has a consumer that calls applications without sidecars.
func DiallingMesh(t *testing.T, room int, o MeshOptions) (*Mesh, *Dialler) {
	d := &Dialler{Room: room}
	o.Service += ", max_pending: 10000"
	o.Dialler = func(l loop.Loop) loop.Loop {
		if d.Loop != nil {
			return l // of an application's sidecar
		}
		d.Loop = l
		return d
	}
	return NewMesh(t, o), d
}
