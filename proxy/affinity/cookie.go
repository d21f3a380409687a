package affinity

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// cookie returns the value of the first cookie with a name (RFC 6265 section 4.2.1), or nil.
func cookie(hs []protocol.Header, name string) []byte {
	for i := range hs {
		if !protocol.EqualFold(hs[i].Name, "cookie") {
			continue
		}
		for all, more := hs[i].Value, true; more; {
			var pair []byte
			pair, all, more = bytes.Cut(all, separator)
			key, value, _ := bytes.Cut(bytes.TrimLeft(pair, " "), equals)
			if string(key) == name {
				return bytes.TrimRight(value, " ")
			}
		}
	}
	return nil
}

var separator, equals = []byte(";"), []byte("=")

// removeCookie removes all cookies with a name from the request, whose memory it changes. A header that
// has no other cookie is removed.
func removeCookie(req *protocol.Request, name string) {
	kept := req.Headers[:0]
	for _, h := range req.Headers {
		if protocol.EqualFold(h.Name, "cookie") {
			if h.Value = withoutCookie(h.Value, name); len(h.Value) == 0 {
				continue
			}
		}
		kept = append(kept, h)
	}
	clear(req.Headers[len(kept):])
	req.Headers = kept
}

// withoutCookie moves the other cookies to the start of line.
func withoutCookie(line []byte, name string) []byte {
	kept := line[:0]
	for all, more := line, true; more; {
		var pair []byte
		pair, all, more = bytes.Cut(all, separator)
		switch {
		case isNamed(pair, name):
		case len(kept) == 0:
			kept = append(kept, bytes.TrimLeft(pair, " ")...)
		default:
			kept = append(append(kept, separator...), pair...)
		}
	}
	return kept
}

// isNamed reports whether the pair of a cookie has this name, with a value or without. Its attributes may
// follow.
func isNamed(pair []byte, name string) bool {
	pair, _, _ = bytes.Cut(pair, separator)
	key, _, _ := bytes.Cut(pair, equals)
	return string(bytes.Trim(key, " \t")) == name
}

// attributes returns what follows the value in a Set-Cookie (RFC 6265 section 4.1). A ttl of 0 means
// until the browser closes.
func attributes(ttl time.Duration) string {
	age := ""
	if ttl > 0 {
		age = "; Max-Age=" + strconv.FormatInt(int64(ttl/time.Second), 10)
	}
	return "; Path=/" + age + "; HttpOnly; SameSite=Lax"
}

// appendAttributes ends a Set-Cookie. secure reports whether the client uses TLS.
func appendAttributes(dst []byte, attributes string, secure bool) []byte {
	dst = append(dst, attributes...)
	if secure {
		dst = append(dst, "; Secure"...)
	}
	return dst
}

// Cookies are what becomes of the cookies of a response.
type Cookies struct {
	Own string // the name of a cookie that the sidecar alone may set; "" means none
	Set []byte // the value of a Set-Cookie that is added; empty means none
}

// Apply returns the headers of the response with these cookies. A response with an added cookie is for
// one client: no cache may keep it for others (RFC 9111 section 5.2.2.7).
func (c Cookies) Apply(hs []protocol.Header) []protocol.Header {
	if c.Own != "" {
		hs = slices.DeleteFunc(hs, func(h protocol.Header) bool {
			return protocol.EqualFold(h.Name, "set-cookie") && isNamed(h.Value, c.Own)
		})
	}
	if len(c.Set) > 0 {
		hs = append(hs, protocol.Header{Name: setCookie, Value: c.Set}, private)
	}
	return hs
}

var (
	setCookie = []byte("Set-Cookie")
	private   = protocol.Header{Name: []byte("Cache-Control"), Value: []byte("private"), Valid: true}
)
