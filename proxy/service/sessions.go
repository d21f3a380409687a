package service

import (
	"cmp"
	"math/rand/v2"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/affinity"
	"github.com/remora-proxy/remora/proxy/shard"
)

// Sessions is how a service keeps requests with something in common at one endpoint. A nil Sessions has no cookies.
type Sessions struct {
	Keys   *affinity.Keys          // nil unless the policy picks by key
	Sticky *affinity.Sticky        // nil unless a cookie names the endpoint
	pins   map[string]*lb.Endpoint // by the value of that cookie
}

// configureSessions applies the settings, which may have changed.
func (s *Service) configureSessions() {
	keys, sticky := affinity.New(&s.Config.LB), affinity.NewSticky(&s.Config.LB.Sticky)
	if s.Sessions = nil; keys != nil || sticky != nil {
		s.Sessions = &Sessions{Keys: keys, Sticky: sticky}
	}
	s.Sessions.updatePins(&s.Set)
}

// updatePins makes the values of the cookie for the endpoints of the service.
func (ss *Sessions) updatePins(set *lb.Set) {
	if ss == nil || ss.Sticky == nil {
		return
	}
	ss.pins = make(map[string]*lb.Endpoint, set.Len())
	for i := range set.Len() {
		ep := set.At(i)
		own := ep.Ext.(*Endpoint)
		own.pin = ss.Sticky.ID(ep.Addr)
		ss.pins[own.pin] = ep
	}
}

// TakePin returns the endpoint that the cookie of the request names, or nil. It removes the cookie.
func (ss *Sessions) TakePin(req *protocol.Request) (pin *lb.Endpoint) {
	if ss == nil || ss.Sticky == nil {
		return nil
	}
	if id := ss.Sticky.Find(req); id != nil {
		pin = ss.pins[string(id)]
	}
	ss.Sticky.Remove(req)
	return pin
}

// Give returns the cookies of a response that names ep, with their text in dst.
func (ss *Sessions) Give(dst []byte, ep *lb.Endpoint, secure bool) affinity.Cookies {
	return ss.Sticky.Give(dst, ep.Ext.(*Endpoint).pin, secure)
}

// OfStream returns the session of a request from a peer, which becomes a stream. It removes a sticky cookie.
func (ss *Sessions) OfStream(req *protocol.Request, peer string, secure bool, rng *rand.PCG) (of shard.Session) {
	if ss == nil {
		return of
	}
	of.Secure = secure
	if ss.Sticky != nil {
		of.Pin = string(ss.Sticky.Find(req))
		ss.Sticky.Remove(req)
	}
	of.Cookie, of.Key = ss.Key(nil, req, peer, true, secure, rng)
	return of
}

// Key returns the key of a request from a peer, or 0 if the policy picks without keys. A request without a key begins a
// session if begins says so, and the cookie of the session is appended to dst. Else its key is random.
func (ss *Sessions) Key(dst []byte, req *protocol.Request, peer string, begins, secure bool, rng *rand.PCG) (cookie []byte, key uint64) {
	if ss.Keys == nil {
		return dst, 0
	}
	if key = ss.Keys.Of(req, peer); key != 0 {
		return dst, key
	}
	random := rng.Uint64()
	if !begins {
		return dst, random
	}
	return ss.Keys.Session(dst, random, secure)
}

// Join returns the key of the stream of a client for the policy, random without one, and the endpoint that the
// stream is pinned to.
func (ss *Sessions) Join(c *shard.Client, rng *rand.PCG) (key uint64, pin *lb.Endpoint) {
	if ss.Keys != nil {
		if key = cmp.Or(c.Session.Key, ss.Keys.OfPeer(c.Addr)); key == 0 {
			key = rng.Uint64()
		}
	}
	return key, ss.pins[c.Session.Pin]
}
