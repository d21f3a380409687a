package proxytest

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/sim"
)

// Dialler is a loop that counts dials and limits how many are in progress.
type Dialler struct {
	loop.Loop
	MaxDials               int // 0 means no limit
	Dialling, MostDialling int // in progress now, and at most
	Dials                  int
	Receivers              []loop.Receiver // of the dials
	Refused                int
	RefuseAfter            time.Duration // how late a refused dial fails
}

// Dial implements loop.Loop.
func (d *Dialler) Dial(addr string, timeout time.Duration, r loop.Receiver) {
	if d.MaxDials > 0 && d.Dialling == d.MaxDials {
		d.Refused++
		d.After(d.RefuseAfter, &loop.Timer{Fire: func() { r.OnClose(loop.ErrDialQueue) }})
		return
	}
	d.Dialling++
	d.Dials++
	d.Receivers = append(d.Receivers, r)
	d.MostDialling = max(d.MostDialling, d.Dialling)
	d.Loop.Dial(addr, timeout, &dialled{Receiver: r, d: d})
}

// dialled counts the end of a dial.
type dialled struct {
	loop.Receiver
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
	c.Receiver.OnOpen(conn)
}

func (c *dialled) OnClose(err error) {
	c.end()
	c.Receiver.OnClose(err)
}

// DiallingMesh returns a mesh whose consumer dials by a Dialler with room for so many
// dials. With o.OneHop the applications have no sidecars.
func DiallingMesh(t *testing.T, room int, o MeshOptions) (*Mesh, *Dialler) {
	d := &Dialler{MaxDials: room}
	o.Service = Fields(o.Service, "max_pending: 10000")
	o.Dialler = d.Of
	return NewMesh(t, o), d
}

// Of makes d the dialler of l, if that is the first loop: it is a MeshOptions.Dialler for the consumer's sidecar.
func (d *Dialler) Of(l loop.Loop) loop.Loop {
	if d.Loop != nil {
		return l
	}
	d.Loop = l
	return d
}

// Distrust tells the receiver of a dial that its endpoint is not trusted any more.
func (d *Dialler) Distrust(l *sim.Loop, dial int) {
	l.Do(d.Receivers[dial].(loop.Verified).OnUntrusted)
}
