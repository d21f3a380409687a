package exchange

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/affinity"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
)

// takePin finds the endpoint that a cookie of the request names. A pinned request has no hedges: the other
// endpoints do not know what its endpoint keeps for its client. A second call changes nothing.
func (ex *Exchange) takePin(s *service.Service) {
	if pin := s.Sessions.TakePin(&ex.Request); pin != nil {
		ex.pin = pin
		ex.NoHedge = ex.NoHedge || s.Set.Usable(pin)
	}
}

// join finds the session of the request at s, which has sessions. One without a key gets a random one, or begins
// a session, which a copy does not: its response may be for others, too.
func (ex *Exchange) join(s *service.Service) {
	ex.sessions = s.Sessions
	ex.takePin(s)
	keys := s.Sessions.Keys
	if keys == nil {
		return
	}
	if ex.key = keys.Of(&ex.Request, ex.caller.RemoteAddr()); ex.key != 0 {
		return
	}
	random := ex.shard.Rand.Uint64()
	if ex.Request.Codec != protocol.CodecHTTP || ex.copied {
		ex.key = random
		return
	}
	ex.newCookie, ex.key = keys.Session(ex.newCookie, random, ex.caller.Listener().Secure)
}

// cookies returns what becomes of the cookies of the response of by. by is nil for a response of the
// sidecar, which names no endpoint.
func (ex *Exchange) cookies(by *race.Attempt) affinity.Cookies {
	sticky := ex.sessions.Sticky
	switch {
	case sticky == nil:
		return affinity.Cookies{Set: ex.newCookie}
	case by == nil || ex.copied:
		return affinity.Cookies{}
	case by.Endpoint() == ex.pin:
		return sticky.Keep()
	}
	c := ex.sessions.Give(ex.newCookie[:0], by.Endpoint(), ex.caller.Listener().Secure)
	ex.newCookie = c.Set
	return c
}
