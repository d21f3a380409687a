package affinity

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
)

// Sticky makes cookies that name an endpoint, and finds them in requests. It does not change.
type Sticky struct {
	name, secret string
	after        string // what follows the value in a Set-Cookie
}

// NewSticky returns the sticky cookie of a service, or nil if it has none.
func NewSticky(c *config.Sticky) *Sticky {
	if c.Cookie == "" {
		return nil
	}
	return &Sticky{c.Cookie, c.Secret, attributes(c.TTL)}
}

// idBytes is the length of the keyed hash of an address: two of 10,000 endpoints have the same one with
// a probability of 1e-14.
const idBytes = 9

// ID returns the value of the cookie for the endpoint at addr. It depends on the secret and the address
// alone, so that all processes make the same, and shows no address to those who lack the secret.
func (s *Sticky) ID(addr string) string {
	h := hmac.New(sha256.New, []byte(s.secret))
	h.Write([]byte(addr))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:idBytes])
}

// Find returns the value of the cookie in the request, or nil.
func (s *Sticky) Find(req *protocol.Request) []byte { return cookie(req.Headers, s.name) }

// Remove removes the cookie from the request, whose memory it changes: the application does not need it.
func (s *Sticky) Remove(req *protocol.Request) { removeCookie(req, s.name) }

// Keep returns what becomes of the cookies of a response whose client has the right one.
func (s *Sticky) Keep() Cookies { return Cookies{Own: s.name} }

// Give is Keep for a client that gets the cookie with this id. The Set-Cookie is appended to dst; secure
// reports whether the client uses TLS.
func (s *Sticky) Give(dst []byte, id string, secure bool) Cookies {
	dst = append(dst, s.name...)
	dst = append(dst, '=')
	dst = append(dst, id...)
	return Cookies{Own: s.name, Set: appendAttributes(dst, s.after, secure)}
}
