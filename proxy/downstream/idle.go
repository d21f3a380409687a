package downstream

import (
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// idleList has the sessions that have timeouts.idle for their next request, as a ring behind its
// root. Who has waited longest comes first, so one timer serves them all. A connection needs
// little memory while it waits, which most do.
type idleList struct {
	root  SessionNode
	timer loop.Timer
	due   time.Duration // when timer fires
}

// StartIdle starts timeouts.idle for the session of n, which the host has added. Its CloseIdle is
// called when it has passed.
func (h *Host) StartIdle(n *SessionNode) {
	root := &h.idle.root
	if root.next == nil {
		root.previous, root.next = root, root
		h.idle.timer.Fire = h.closeIdle
	}
	h.StopIdle(n)
	n.previous, n.next, n.since = root.previous, root, h.Loop.Now()
	n.previous.next, root.previous = n, n
	h.armIdle()
}

// armIdle arms the timer for the first session, unless it fires before.
func (h *Host) armIdle() {
	due := h.idle.root.next.since + h.Config.Timeouts.Idle
	if !h.idle.timer.Armed() || due < h.idle.due {
		h.idle.due = due
		h.Loop.After(max(0, due-h.Loop.Now()), &h.idle.timer)
	}
}

// StopIdle stops timeouts.idle for the session of n, if it runs.
func (h *Host) StopIdle(n *SessionNode) {
	if n.next != nil {
		n.previous.next, n.next.previous = n.next, n.previous
		n.previous, n.next = nil, nil
	}
}

// IdleFor returns how long timeouts.idle has been running for the session of n, 0 if it is not.
func (h *Host) IdleFor(n *SessionNode) time.Duration {
	if n.next == nil {
		return 0
	}
	return h.Loop.Now() - n.since
}

// maxIdleClosed is how many sessions closeIdle closes in one turn. When timeouts.idle becomes
// shorter, the time of very many may have passed.
const maxIdleClosed = 64

// closeIdle closes the sessions whose time has passed.
func (h *Host) closeIdle() {
	root := &h.idle.root
	for range maxIdleClosed {
		first := root.next
		if first == root || h.Loop.Now()-first.since < h.Config.Timeouts.Idle {
			break
		}
		h.StopIdle(first)
		h.Sessions[first.place-1].CloseIdle()
	}
	if root.next != root {
		h.armIdle()
	}
}
