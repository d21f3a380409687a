package http1

import "github.com/remora-proxy/remora/protocol"

// upgradeFields ask for, or grant, an upgrade of the connection to WebSocket (RFC 6455
// sections 4.1, 4.2.2). They concern one connection, so each hop writes its own.
const upgradeFields = "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

// AppendWebSocketRequest appends the head of req, which has no body, with a request to upgrade
// to WebSocket. It appends nothing if requestSize refuses req.
func AppendWebSocketRequest(dst []byte, req *protocol.Request) []byte {
	n := len(dst)
	if dst = AppendRequestHead(dst, req); len(dst) == n {
		return dst
	}
	return append(dst[:len(dst)-len("\r\n")], upgradeFields...)
}

// AppendWebSocketResponse appends the 101 that grants the upgrade, with the end-to-end headers
// of resp. It appends nothing if a header is not safe to send.
func AppendWebSocketResponse(dst []byte, resp *protocol.Response) []byte {
	if !headersValid(resp.Headers) {
		return dst
	}
	dst = append(dst, "HTTP/1.1 101 Switching Protocols\r\n"...)
	return append(appendEndToEnd(dst, resp.Headers), upgradeFields...)
}
