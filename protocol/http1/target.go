package http1

import (
	"bytes"

	"github.com/remora-proxy/remora/protocol"
)

var (
	rootPath = []byte("/")
	asterisk = []byte("*")
)

// absoluteForm decodes "http://authority/path?query" (RFC 9112 section 3.2.2). The scheme https needs a
// connection that is secure (RFC 9110 section 7.4); http does not refuse one that is, since clients
// send http to proxies over TLS.
func (h *Head) absoluteForm(target []byte, req *protocol.Request) error {
	rest, isHTTP := cutScheme(target, "http://")
	if !isHTTP {
		if rest, h.HTTPS = cutScheme(target, "https://"); !h.HTTPS || !h.Secure {
			return ErrBadTarget
		}
	}
	h.Absolute = true
	end := bytes.IndexAny(rest, "/?")
	switch {
	case end < 0:
		end = len(rest)
		req.Path = rootPath
		if string(req.Method) == "OPTIONS" {
			req.Path = asterisk // RFC 9112 section 3.2.4
		}
	case rest[end] == '?':
		req.Path = append(rootPath[:1:1], rest[end:]...) // RFC 9110 section 4.2.3
	default:
		req.Path = rest[end:]
	}
	req.Authority = rest[:end]
	if end == 0 || !protocol.IsAuthority(req.Authority, false) {
		return ErrBadTarget
	}
	return nil
}

// cutScheme returns what follows a scheme, which is in lower case.
func cutScheme(target []byte, scheme string) (rest []byte, found bool) {
	if !protocol.HasPrefixFold(target, scheme) {
		return nil, false
	}
	return target[len(scheme):], true
}
