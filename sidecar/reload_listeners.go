package sidecar

import (
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/sidecar/sockets"
)

// bind opens the sockets of new listeners. It is the last step before commit: a new socket may
// get connections at once that an ending listener had until then.
func (c *change) bind() error {
	open := c.openSockets()
	defer open.Close()
	for i := range c.cfg.Listeners {
		l := &c.cfg.Listeners[i]
		if c.continues(l) {
			continue
		}
		opened, err := bind(l, i, open)
		if err != nil {
			return &refusal{refusedListen, err}
		}
		c.opened = append(c.opened, opened)
	}
	return nil
}

// continues reports whether a listener in use becomes l.
func (c *change) continues(l *config.Listener) bool {
	was := c.s.cfg.Listener(l.Name)
	return was != nil && l.Continues(was)
}

// openSockets returns duplicates of the sockets of the listeners that this change or an earlier one
// ends.
func (c *change) openSockets() (open sockets.Open) {
	ending := c.s.listeners.removed.list()
	for name, l := range c.s.listeners.byName {
		if next := c.cfg.Listener(name); next == nil || !c.continues(next) {
			ending = append(ending, l)
		}
	}
	open, c.from = duplicateSockets(ending)
	return open
}

// updateListeners accepts on new listeners, configures the others, and returns those
// that must be closed.
func (c *change) updateListeners() (closed []*openListener) {
	s := &c.s.listeners
	next := make(map[string]*openListener, len(c.cfg.Listeners))
	for _, l := range c.opened {
		next[l.name] = l
		for _, ln := range l.sockets {
			if was := c.from[ln]; was != nil {
				c.succeed(was)
			}
		}
	}
	for i := range c.cfg.Listeners {
		l := &c.cfg.Listeners[i]
		if opened := next[l.Name]; opened != nil {
			if err := s.serve(opened, l, c.gen, c.identities); err != nil { // the process is ending
				s.log.Error("listener not served", "error", err)
			}
			s.own(opened, l)
			continue
		}
		next[l.Name] = s.byName[l.Name]
		next[l.Name].configure(l, c.identities)
	}
	for name, l := range s.byName {
		if next[name] != l {
			closed = append(closed, l)
			s.removed.add(l)
		}
	}
	s.byName = next
	return closed
}

// succeed closes a listener one of whose sockets another one has: both would share its connections.
func (c *change) succeed(l *openListener) {
	l.disown()
	c.s.listeners.close(l)
}
