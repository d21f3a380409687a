package http

import (
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// noteDestination notes whether the connection, which has opened, was redirected.
func (l *leaving) noteDestination() {
	if l.host.Process.Streams && l.outbound.Conn.OriginalDst().IsValid() {
		l.tunnel = redirection
	}
}

// passes reports whether the connection was redirected, and goes on unread with what no route takes. While
// routes have rules, a later request could go round them: then each request that no route takes goes on
// by itself, and nothing else does.
func (l *leaving) passes() bool { return l.redirected() && !l.host.Router.Guarded }

// unrouted finds the route of the request whose head was decoded with err, and reports whether
// it has none. Input that is no request has no route, unless a request came before it: then
// the client speaks HTTP, and gets an error response.
func (l *leaving) unrouted(err error) bool {
	if err != nil && err != http1.ErrMessageTooLarge {
		return l.input.untouched()
	}
	ex := l.input.ex
	ex.Route = l.findRoute(ex, l.input.head.Minor)
	return ex.Route == nil
}

// queuePass makes the connection go on to its original destination with all input, once the
// client has read the responses to the requests before. Input is kept until then.
func (l *leaving) queuePass() {
	l.input.drop()
	l.input.departure = departure{kind: stats.StreamPass}
	l.input.leave()
	l.turn.add(call{leaves: true, minor: 1, end: closes})
}

func (l *leaving) passThrough(client loop.Socket) {
	first := l.input.takeBytes()
	l.close()
	l.host.Streams.Pass(l.origin.Listener.Name, client, l.outbound.Conn.OriginalDst(), first)
}

// takesSilent reports whether the connection leaves because the client, which has sent no whole head, waits for the
// other side.
func (l *leaving) takesSilent() bool {
	switch {
	case l.takesEnd():
	case l.passes() && l.input.untouched():
		l.queuePass()
	default:
		return false
	}
	return true
}

// takesEnd reports whether a tunnel leaves behind whose first bytes nothing comes.
func (l *leaving) takesEnd() bool {
	if !l.input.inTunnel() || !l.tunnelLeaves(l.beginsTLS()) {
		return false
	}
	l.leaveTunnel(true)
	return true
}

// alpnHTTP2 is the name of HTTP/2 in a TLS handshake (RFC 9113 section 3.2).
const alpnHTTP2 = "h2"

// beginsHTTP2 reports whether the input, which is no request, is the preface of HTTP/2 at the start of
// the connection.
func (l *leaving) beginsHTTP2() bool {
	return l.input.untouched() && !l.tunnelled() && downstream.BeginsHTTP2(l.input.bytes())
}

// becomeHTTP2 gives the connection to a session of HTTP/2, with the input and b, the rest of the read.
func (l *leaving) becomeHTTP2(b []byte) {
	in, conn := l.input.takeBuffer(), l.outbound.Conn
	l.close()
	l.outbound.Stop()
	l.host.OnClosed(l.session)
	next := l.handToHTTP2(conn)
	next.OnData(in.B)
	if len(b) > 0 {
		next.OnData(b)
	}
	l.host.Buffers.Release(&in)
}

// handToHTTP2 makes a session of HTTP/2 the stream of the connection.
func (l *leaving) handToHTTP2(c loop.Conn) loop.Stream {
	next := l.host.HTTP2(l.origin.Listener)
	c.SetStream(next)
	next.OnOpen(c)
	return next
}
