package reactor

import (
	"fmt"
	"io"
	"log/slog"
	"syscall"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// handler receives gnet's events. The gnet context of a socket is its *conn, before the
// handshake its *newcomer, and that of a timerfd its *eventLoop, so that an event needs no lookup.
type handler struct {
	gnet.BuiltinEventEngine // the other events are ignored
	eng                     *Engine
}

// OnOpen implements gnet.EventHandler.
func (h *handler) OnOpen(gc gnet.Conn) ([]byte, gnet.Action) {
	switch x := gc.Context().(type) {
	case *conn:
		x.loop.beginEvent()
		x.onGnetOpen(gc)
		x.loop.endEvent()
	case *newcomer:
		x.c.loop.beginEvent()
		x.onOpen(gc)
		x.c.loop.endEvent()
	case *eventLoop:
		x.el = gc.EventLoop()
		if err := x.idle.findDescriptors(gc.Fd()); err != nil {
			h.eng.log.Info("event loop waits through gnet, low load costs more CPU: gnet's epoll descriptor was not found", "error", err)
		}
	}
	return nil, gnet.None
}

// OnTraffic implements gnet.EventHandler.
func (h *handler) OnTraffic(gc gnet.Conn) gnet.Action {
	// Each event must consume all input: gnet copies the rest into a ring without a limit,
	// and a read can't be paused.
	b, _ := gc.Next(-1)
	switch x := gc.Context().(type) {
	case *conn:
		x.loop.beginEvent()
		x.onInput(b)
		x.loop.endEvent()
		x.loop.waitIdle()
	case *newcomer:
		x.c.loop.beginEvent()
		x.c.loop.run(func() { x.onInput(b) })
		x.c.loop.endEvent()
	case *eventLoop:
		x.timerFired()
		x.waitIdle()
	}
	return gnet.None
}

// OnClose implements gnet.EventHandler. A failed Write calls it, within its callback.
func (h *handler) OnClose(gc gnet.Conn, err error) gnet.Action {
	if n, ok := gc.Context().(*newcomer); ok {
		n.onClose()
		return gnet.None
	}
	c, ok := gc.Context().(*conn)
	if !ok {
		if h.eng.ctx.Err() == nil {
			h.eng.log.Error("timers of an event loop have stopped: gnet has closed its timerfd", "error", err)
		}
		return gnet.None
	}
	if err == io.EOF {
		err = endOfFileError(gc)
	}
	if c.loop.busy {
		c.onGnetClose(err)
		return gnet.None
	}
	c.loop.beginEvent()
	if err != nil && err != io.EOF && c.accept == nil {
		c.readUnread()
	}
	c.onGnetClose(err)
	c.loop.endEvent()
	return gnet.None
}

// endOfFileError returns the error behind gnet's end of file, or io.EOF. The kernel sets the
// error of a reset a moment before it shuts the socket. gnet takes an event of that moment for
// an end of file, and a response that ends with its connection would look complete.
func endOfFileError(gc gnet.Conn) error {
	if errno, err := unix.GetsockoptInt(gc.Fd(), unix.SOL_SOCKET, unix.SO_ERROR); err == nil && errno != 0 {
		return syscall.Errno(errno)
	}
	return io.EOF
}

// engineLog passes gnet's log on. Information of gnet (it starts) and warnings (an event for a
// socket that was closed in the same round) become debug lines.
type engineLog struct{ log *slog.Logger }

func (l engineLog) Debugf(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l engineLog) Infof(format string, args ...any)  { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l engineLog) Warnf(format string, args ...any)  { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l engineLog) Errorf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }
func (l engineLog) Fatalf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }
