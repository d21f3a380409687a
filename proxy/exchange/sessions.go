package exchange

import (
	"cmp"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/affinity"
)

// sessions is how a service keeps requests with something in common at one endpoint.
type sessions struct {
	keys   *affinity.Keys          // nil unless the policy picks by key
	sticky *affinity.Sticky        // nil unless a cookie names the endpoint
	pins   map[string]*lb.Endpoint // by the value of that cookie
}

// configureSessions applies the settings, which may have changed.
func (s *Service) configureSessions() {
	keys, sticky := affinity.New(&s.Config.LB), affinity.NewSticky(&s.Config.LB.Sticky)
	if s.sessions = nil; keys != nil || sticky != nil {
		s.sessions = &sessions{keys: keys, sticky: sticky}
	}
	s.updatePins()
}

// updatePins makes the values of the cookie for the endpoints of the service.
func (s *Service) updatePins() {
	if s.sessions == nil || s.sessions.sticky == nil {
		return
	}
	pins := make(map[string]*lb.Endpoint, s.set.Len())
	for i := range s.set.Len() {
		ep := s.set.At(i)
		own := ep.Ext.(*Endpoint)
		own.pin = s.sessions.sticky.ID(ep.Addr)
		pins[own.pin] = ep
	}
	s.sessions.pins = pins
}

// takePin finds the endpoint that the cookie of the request names, and removes the cookie. After a first
// call another one changes nothing. A pinned request has no hedges: the other endpoints do not know what
// its endpoint keeps for its client.
func (s *Service) takePin(ex *Exchange) {
	if s.sessions == nil || s.sessions.sticky == nil {
		return
	}
	if id := s.sessions.sticky.Find(&ex.Request); id != nil {
		ex.pin = s.sessions.pins[string(id)]
		ex.NoHedge = ex.NoHedge || ex.pin != nil && s.set.Usable(ex.pin)
	}
	s.sessions.sticky.Remove(&ex.Request)
}

// join finds the session of the request. One without a key gets a random one, or begins a session,
// which a copy does not: its response may be for others, too.
func (s *Service) join(ex *Exchange) {
	ex.sessions = s.sessions
	s.takePin(ex)
	keys := s.sessions.keys
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

// cookies returns what becomes of the cookies of the response to ex, which is that of by. by is nil for
// a response of the sidecar, which names no endpoint.
func (ss *sessions) cookies(ex *Exchange, by *Attempt) affinity.Cookies {
	switch {
	case ss.sticky == nil:
		return affinity.Cookies{Set: ex.newCookie}
	case by == nil || ex.copied:
		return affinity.Cookies{}
	case by.ep == ex.pin:
		return ss.sticky.Keep()
	}
	c := ss.sticky.Give(ex.newCookie[:0], by.ep.Ext.(*Endpoint).pin, ex.caller.Listener().Secure)
	ex.newCookie = c.Set
	return c
}

// Session is what is known of the session of a stream.
type Session struct {
	Key    uint64 // for a policy by key; 0 means none
	Pin    string // the value of the sticky cookie; empty means none
	Cookie []byte // Set-Cookie of the session that the stream begins; empty means none
	Secure bool   // the client uses TLS
}

// Session returns the session of a request that becomes a stream. It is called before the request is
// encoded, since it removes a sticky cookie.
func (s *Service) Session(ex *Exchange) (of Session) {
	ss := s.sessions
	if ss == nil {
		return of
	}
	of.Secure = ex.caller.Listener().Secure
	if ss.sticky != nil {
		of.Pin = string(ss.sticky.Find(&ex.Request))
		ss.sticky.Remove(&ex.Request)
	}
	if ss.keys == nil {
		return of
	}
	if of.Key = ss.keys.Of(&ex.Request, ex.caller.RemoteAddr()); of.Key == 0 {
		of.Cookie, of.Key = ss.keys.Session(nil, ex.shard.Rand.Uint64(), of.Secure)
	}
	return of
}

// join finds the session of the stream.
func (l *Lease) join() {
	ss := l.service.sessions
	if ss == nil {
		return
	}
	if ss.keys != nil {
		l.key = cmp.Or(l.from.Session.Key, ss.keys.OfPeer(l.from.Addr), l.shard.Rand.Uint64())
	}
	l.pin = ss.pins[l.from.Session.Pin]
}

// responseCookies returns what becomes of the cookies of a response of the endpoint.
func (l *Lease) responseCookies() affinity.Cookies {
	ss, session := l.service.sessions, &l.from.Session
	switch {
	case ss == nil || ss.sticky == nil:
		return affinity.Cookies{Set: session.Cookie}
	case l.ep == l.pin:
		return ss.sticky.Keep()
	}
	return ss.sticky.Give(nil, l.ep.Ext.(*Endpoint).pin, session.Secure)
}

// EditCookies changes the cookies of a response of the endpoint. A stream without a service keeps them.
func (l *Lease) EditCookies(res *protocol.Response) {
	if l != nil {
		res.Headers = l.cookies.Apply(res.Headers)
	}
}
