package http2

import (
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// keepaliveInterval is the time between two checks of the client. After one interval of silence with
// requests in flight it gets a PING; if nothing is heard for another, the connection closes. The
// kernel takes as long for a connection without output, but a quarter of an hour for one with some.
const keepaliveInterval = 50 * time.Second

// keepalive is how a session learns that its client has vanished.
type keepalive struct {
	timer  loop.Timer
	heard  bool // bytes arrived since the last check
	pinged bool // nothing has arrived since a PING
}

// onKeepalive runs every keepaliveInterval until the session closes.
func (s *session) onKeepalive() {
	k := &s.keepalive
	switch {
	case k.heard || s.calls.len() == 0:
		k.pinged = false
	case k.pinged:
		s.host.Log.Warn("connection closed: the client did not respond to a PING", "listener", s.origin.Listener.Name, "peer", s.conn.RemoteAddr())
		s.ending.close()
		s.conn.Close()
		return
	default:
		k.pinged = true
		s.codec.Ping(0)
		s.output.schedule(false)
	}
	k.heard = false
	s.host.Loop.After(keepaliveInterval, &k.timer)
}
