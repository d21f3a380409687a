package http2

import (
	"time"

	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
)

// keepaliveInterval is the time between two checks of the endpoint. After one interval of silence
// with requests in flight the connection sends a PING; if nothing is heard for another, it closes.
const keepaliveInterval = 10 * time.Second

// pingPauses are the intervals before a PING while nothing but responses to PINGs is heard. A
// grpc-go server closes a connection after the third PING that comes within 5 minutes of the
// one before and without data in between.
var pingPauses = [...]int{1, 2, 4, 31}

// keepalive is how a connection learns that its endpoint does not answer any more.
type keepalive struct {
	timer  loop.Timer
	heard  bool // bytes arrived since the last check
	useful bool // of them, bytes of a response
	pinged bool // a PING has no response yet
	pings  int  // PINGs since bytes of a response arrived
	quiet  int  // intervals since then, or since the last PING
}

// onKeepalive runs every keepaliveInterval until the connection closes.
func (c *conn) onKeepalive() {
	k := &c.keepalive
	if k.useful || !c.busy() {
		k.pings, k.quiet = 0, 0
	} else {
		k.quiet++
	}
	switch {
	case k.pinged && !k.heard && c.busy():
		c.shard.Log.Warn("connection closed: the endpoint did not respond to a PING", "peer", c.transport.RemoteAddr())
		c.close(fault.Reset)
		return
	case c.busy() && k.quiet >= pingPauses[min(k.pings, len(pingPauses)-1)]:
		k.pings++
		k.quiet, k.pinged = 0, true
		c.h2.Ping(uint64(k.pings))
		c.shard.Loop.Defer(&c.out)
	default:
		k.pinged = false
	}
	k.heard, k.useful = false, false
	c.shard.Loop.After(keepaliveInterval, &k.timer)
}
