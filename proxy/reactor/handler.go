package reactor

import (
	"io"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// handler receives gnet's events. What a socket is for hangs on it as gnet's
// context, so that an event finds its way without a map: a *conn, or the *loop
// whose timer it is.
type handler struct{ eng *Engine }

func (h *handler) OnBoot(gnet.Engine) gnet.Action           { return gnet.None }
func (h *handler) OnShutdown(gnet.Engine)                   {}
func (h *handler) OnTick() (d time.Duration, a gnet.Action) { return time.Hour, gnet.None }

func (h *handler) OnOpen(gc gnet.Conn) ([]byte, gnet.Action) {
	switch x := gc.Context().(type) {
	case *conn:
		x.loop.enter()
		x.opened(gc)
		x.loop.leave()
	case *eventLoop:
		x.el = gc.EventLoop()
		if err := x.rest.find(gc.Fd()); err != nil {
			h.eng.log.Info("event loop can't wait on its own, a request at a time costs more", "error", err)
		}
	}
	return nil, gnet.None
}

func (h *handler) OnTraffic(gc gnet.Conn) gnet.Action {
	// All of it, each time: what is left behind gnet copies into a ring that
	// has no bound, and a read can't be paused.
	b, _ := gc.Next(-1)
	switch x := gc.Context().(type) {
	case *conn:
		x.loop.enter()
		x.received(b)
		x.loop.leave()
		x.loop.takeRest()
	case *eventLoop:
		x.timerFired()
		x.takeRest()
	}
	return gnet.None
}

// OnClose may come inside a callback of ours, when a Write in it failed.
func (h *handler) OnClose(gc gnet.Conn, err error) gnet.Action {
	c, ok := gc.Context().(*conn)
	if !ok {
		if h.eng.ctx.Err() == nil {
			h.eng.log.Error("event loop has lost its timer", "error", err)
		}
		return gnet.None
	}
	if err == io.EOF {
		err = ended(gc)
	}
	if c.loop.busy {
		c.lost(err)
		return gnet.None
	}
	c.loop.enter()
	if err != nil && err != io.EOF && c.accept == nil {
		c.takeUnread()
	}
	c.lost(err)
	c.loop.leave()
	return gnet.None
}

// ended is what gnet's end of file really is. The kernel sets a reset's error a
// moment before it shuts the socket, and gnet takes an event of that moment, an
// error with nothing to read or write, for an orderly end; an answer that ends
// with its connection would look complete.
func ended(gc gnet.Conn) error {
	if errno, err := unix.GetsockoptInt(gc.Fd(), unix.SOL_SOCKET, unix.SO_ERROR); err == nil && errno != 0 {
		return syscall.Errno(errno)
	}
	return io.EOF
}
