package http1

import (
	"bytes"

	"github.com/remora-proxy/remora/protocol"
)

// mayTunnel reports whether list, the value of an Upgrade field, has protocols of which a proxy may pass on the
// bytes unread (RFC 9110 section 7.8). Another HTTP within would have requests that nobody checks, and so would TLS.
func mayTunnel(list []byte) bool {
	any := false
	for more := true; more; {
		var one []byte
		if one, list, more = nextElement(list); len(one) == 0 {
			continue // RFC 9110 section 5.6.1.2
		}
		any = true
		name, version, versioned := bytes.Cut(one, []byte{'/'})
		if len(name) == 0 || !protocol.TokenChar.All(name) || versioned && (len(version) == 0 || !protocol.TokenChar.All(version)) {
			return false
		}
		for _, not := range [...]string{"http", "h2c", "h2", "h3", "tls"} {
			if protocol.EqualFold(name, not) {
				return false
			}
		}
	}
	return any
}

// Offers reports whether each protocol of chosen, the Upgrade field of a 101, is in offered, that of the request.
func Offers(offered, chosen []byte) bool {
	any := false
	for more := true; more; {
		var one []byte
		if one, chosen, more = nextElement(chosen); len(one) == 0 {
			continue
		}
		if any = hasElement(offered, one); !any {
			return false
		}
	}
	return any
}

func hasElement(list, want []byte) bool {
	for more := true; more; {
		var one []byte
		if one, list, more = nextElement(list); bytes.EqualFold(one, want) {
			return true
		}
	}
	return false
}

// AppendUpgradeRequest appends req, whose body has no trailers, with a request to upgrade to one of protocols. It
// appends nothing if requestSize refuses req. Upgrade and Connection concern one connection, so each hop writes its own.
func AppendUpgradeRequest(dst []byte, req *protocol.Request, protocols []byte) []byte {
	n := len(dst)
	if dst = AppendRequestHead(dst, req); len(dst) == n {
		return dst
	}
	return append(appendUpgrade(dst[:len(dst)-len("\r\n")], protocols), req.Body...)
}

// AppendUpgradeResponse appends the 101 that switches to protocols, with the end-to-end headers of resp. It appends
// nothing if a header is not safe to send.
func AppendUpgradeResponse(dst []byte, resp *protocol.Response, protocols []byte) []byte {
	if !headersValid(resp.Headers) {
		return dst
	}
	dst = append(dst, "HTTP/1.1 101 Switching Protocols\r\n"...)
	return appendUpgrade(appendEndToEnd(dst, resp.Headers), protocols)
}

func appendUpgrade(dst, protocols []byte) []byte {
	dst = append(dst, "Connection: Upgrade\r\nUpgrade: "...)
	between := ""
	for more := true; more; {
		var one []byte
		if one, protocols, more = nextElement(protocols); len(one) > 0 { // RFC 9110 section 5.6.1.1: send no empty ones
			dst = append(append(dst, between...), one...)
			between = ", "
		}
	}
	return append(dst, "\r\n\r\n"...)
}
