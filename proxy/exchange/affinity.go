package exchange

import (
	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/affinity"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
)

// clientSession is the session of the client of a request at its service: the endpoint that the request is pinned to, or
// its key.
type clientSession struct {
	sessions *service.Sessions // of the service when the exchange began; nil means none
	key      uint64            // of the request, if the service picks by key
	pin      *lb.Endpoint      // that the request is pinned to; nil means none
}

// takePin finds the endpoint that a cookie of the request names. A pinned request has no hedges: the other
// endpoints do not know what its endpoint keeps for its client. A second call changes nothing.
func (c *clientSession) takePin(ex *Exchange, s *service.Service) {
	if pin := s.Sessions.TakePin(&ex.Request); pin != nil {
		c.pin = pin
		ex.NoHedge = ex.NoHedge || s.Set.Usable(pin)
	}
}

// join finds the session of the request at s, which has sessions. A copy begins none: its response may be for others, too.
func (c *clientSession) join(ex *Exchange, s *service.Service) {
	c.sessions = s.Sessions
	c.takePin(ex, s)
	begins := ex.Request.Codec == protocol.CodecHTTP && !ex.copied
	ex.newCookie, c.key = s.Sessions.Key(ex.newCookie, &ex.Request, ex.caller.RemoteAddr(), begins, ex.caller.Listener().Secure, ex.shard.Rand)
}

// cookies returns what becomes of the cookies of the response of by. by is nil for a response of the
// sidecar, which names no endpoint.
func (c *clientSession) cookies(ex *Exchange, by *race.Attempt) affinity.Cookies {
	sticky := c.sessions.Sticky
	switch {
	case sticky == nil:
		return affinity.Cookies{Set: ex.newCookie}
	case by == nil || ex.copied:
		return affinity.Cookies{}
	case by.Endpoint() == c.pin:
		return sticky.Keep()
	}
	given := c.sessions.Give(ex.newCookie[:0], by.Endpoint(), ex.caller.Listener().Secure)
	ex.newCookie = given.Set
	return given
}
