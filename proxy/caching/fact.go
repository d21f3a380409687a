package caching

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/caching/store"
)

// Policy is what the configuration says of the responses of a route.
type Policy struct {
	TTL   time.Duration // lifetime of a response that names none; 0 means that it is not stored
	Stale time.Duration // how long a stale response that does not say it itself may be used
}

// Received is when a response came, and to what.
type Received struct {
	Asked, Now time.Duration // on the loop's clock
	Wall       time.Time     // the time of day at Now; zero if nobody knows it
}

// byDefault are the statuses whose responses may be stored although they name no lifetime (RFC
// 9110 section 15.1), but for 206.
var byDefault = []int{200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501}

// Fields are what a response says to caches.
type Fields struct {
	directives
	Varies, private bool // private: it sets a cookie
	tag, modified   bool

	age, date, expires []byte
}

// ReadFields reads the headers of a response in one pass.
func ReadFields(hs []protocol.Header) (f Fields) {
	f.maxAge, f.sharedMaxAge, f.staleWhile, f.staleIfError = unset, unset, unset, unset
	for i := range hs {
		h := &hs[i]
		switch {
		case protocol.EqualFold(h.Name, "cache-control"):
			f.directives.read(h.Value)
		case protocol.EqualFold(h.Name, "expires"):
			if f.expires == nil {
				f.expires = h.Value
			}
		case protocol.EqualFold(h.Name, "age"):
			if f.age == nil {
				f.age = h.Value
			}
		case protocol.EqualFold(h.Name, "date"):
			f.date = h.Value
		case protocol.EqualFold(h.Name, "vary"):
			f.Varies = true
		case protocol.EqualFold(h.Name, "set-cookie"):
			f.private = true
		case protocol.EqualFold(h.Name, "etag"):
			f.tag = true
		case protocol.EqualFold(h.Name, "last-modified"):
			f.modified = true
		}
	}
	return f
}

// Personal reports whether the response is for one client alone: it has Set-Cookie, or the
// directive no-store or private.
func (f *Fields) Personal() bool { return f.private || f.directives.private || f.noStore }

// aboutClient reports whether a response with this status is about the credentials of a request, or their
// absence, wherever they are.
func aboutClient(status int) bool { return status == 401 || status == 403 || status == 407 }

// ForOthers reports whether clients with the same request may have a response, which has no Vary: a 4xx
// may be about what only one of them has sent, unless it may be stored without a lifetime.
func (f *Fields) ForOthers(status int) bool {
	return !f.Personal() && (status < 400 || status >= 500 || slices.Contains(byDefault, status))
}

// Judge returns how long a response to a request may be used, and whether it may be stored (RFC
// 9111 section 3). shares reports whether all clients may have it although it does not say so, see Reader.
func (p *Policy) Judge(status int, f *Fields, a *Ask, shares bool, at Received) (m store.Meta, ok bool) {
	open := f.public || f.mustRevalidate || f.sharedMaxAge != unset
	known := slices.Contains(byDefault, status)
	switch {
	case f.Personal() || a.NoStore, !open && (!shares || aboutClient(status)), status < 200 || status == 206 || status == 304,
		f.mustUnderstand && !known:
		return m, false
	}
	life, own := p.lifetime(f, at.Wall, known)
	if life == unset {
		return m, false
	}
	strict := f.mustRevalidate || f.proxyRevalidate || f.sharedMaxAge != unset || f.noCache
	m.Asked, m.While, m.IfError = at.Asked, p.Stale, p.Stale
	switch {
	case f.staleWhile != unset:
		m.While = f.staleWhile
	case life == 0: // the service wants to be asked each time
		m.While = 0
	}
	if f.staleIfError != unset {
		m.IfError = f.staleIfError
	}
	if strict {
		m.Flags, m.While, m.IfError = FlagMustRevalidate, 0, 0
	}
	if open {
		m.Flags |= FlagOpen
	}
	if f.tag {
		m.Flags |= FlagTag
	}
	if f.modified {
		m.Flags |= FlagDate
	}
	m.Born = at.Now - f.initialAge(at)
	switch {
	case f.noCache:
		m.Fresh = min(m.Born, at.Now)
	case own: // of the configuration: it counts from now
		m.Fresh = at.Now + life
	default:
		m.Fresh = m.Born + life
	}
	m.Refresh = m.Fresh
	m.Until = m.Fresh + max(m.While, m.IfError)
	if f.tag || f.modified {
		m.Until = max(m.Until, at.Now) + keepForValidation
	}
	return m, m.Until > at.Now
}

// Replaces reports whether a response with this status takes the place of what was stored before,
// even if it may not be stored. An error like 401 or 429 is about the client.
func Replaces(status int) bool { return status < 400 || slices.Contains(byDefault, status) }

// keepForValidation is how long a response with a validator is useful although it is too stale.
const keepForValidation = 10 * time.Minute

// lifetime returns how long a response is fresh, or unset if it may not be stored. own reports
// whether the configuration says so.
func (p *Policy) lifetime(f *Fields, wall time.Time, known bool) (d time.Duration, own bool) {
	switch {
	case f.sharedMaxAge != unset:
		return f.sharedMaxAge, false
	case f.maxAge != unset:
		return f.maxAge, false
	case f.expires != nil:
		expires, ok := Date(f.expires)
		date, dated := Date(f.date)
		if !dated {
			date, dated = wall.Unix(), !wall.IsZero()
		}
		if !ok || !dated {
			return 0, false
		}
		return time.Duration(max(0, min(expires-date, int64(longest/time.Second)))) * time.Second, false
	case f.noCache && (known || f.public):
		return 0, false
	case (known || f.public) && p.TTL > 0:
		return p.TTL, true
	}
	return unset, false
}

// initialAge is the age of the response when it came (RFC 9111 section 4.2.3).
func (f *Fields) initialAge(at Received) (age time.Duration) {
	first, _ := NextName(f.age)
	if said, ok := seconds(first); ok {
		age = said + at.Now - at.Asked
	}
	if date, ok := Date(f.date); ok && !at.Wall.IsZero() {
		age = max(age, time.Duration(min(at.Wall.Unix()-date, int64(longest/time.Second)))*time.Second)
	}
	return age
}
