package http

import (
	"bytes"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
)

// tunnel is a CONNECT that the session has accepted, since a route takes requests to its host.
// The first bytes within decide: a request line makes the requests in the tunnel requests of
// the session. Anything else leaves the loop as a stream, if something takes it; else HTTP/2 is served
// as on the connection itself.
type tunnel struct {
	authority []byte // of the CONNECT, for requests that have none
	first     http1.Detector
	verdict   http1.Verdict // of first
	minor     uint8         // of the version of the CONNECT
	direct    bool          // without a route for the CONNECT a stream goes to the host that it names
}

// redirection is the tunnel of a redirected connection: one to its original destination, which the client has not
// asked for.
var redirection = new(tunnel)

// redirected reports whether what no route takes goes on to the original destination of the connection, see passes.
func (l *leaving) redirected() bool { return l.tunnel == redirection }

// tunnelled reports whether the client has opened a tunnel.
func (l *leaving) tunnelled() bool { return l.tunnel != nil && l.tunnel != redirection }

// nameHost gives ex, which names no host, that of the tunnel.
func (l *leaving) nameHost(ex *exchange.Exchange) {
	if l.tunnelled() && len(ex.Request.Authority) == 0 {
		ex.Request.Authority = l.tunnel.authority
	}
}

// tunnelLeaves reports whether something takes the bytes of the tunnel if they are no HTTP. None go
// round the rules of the host: nobody knows what they ask for. Rules of a route for all hosts do not
// keep TLS from a host without a route, which no route could read either.
func (l *leaving) tunnelLeaves(isTLS bool) bool {
	r := l.input.ex.Route
	if r == nil && !l.tunnel.direct {
		return false
	}
	switch l.host.Router.GuardOf(l.tunnel.authority, r) {
	case exchange.GuardedName:
		return false
	case exchange.GuardedAll:
		return isTLS
	}
	return true
}

// hasDestination reports whether the request being received may go on without a route: to the original
// destination of its connection, or to the host that its target, or the tunnel that it came through,
// names. One for https would leave in plain text, and a CONNECT to another proxy may lead anywhere.
func (l *leaving) hasDestination() bool {
	head := &l.input.head
	switch {
	case l.redirected():
		return l.host.Router.Guarded && !head.Connect && !head.HTTPS // else see passes
	case l.origin.Listener.Unrouted && l.host.Process.Streams:
		return head.Absolute && !head.HTTPS || head.Connect || l.tunnelled()
	}
	return false
}

// mayPass reports whether ex, which has no route, may go round the routes. It is refused if some
// name its host, or that of its tunnel, and have rules. Routes for all hosts do not count,
// since none of them takes the request.
func (l *leaving) mayPass(ex *exchange.Exchange) bool {
	named := func(authority []byte) bool {
		return l.host.Router.GuardOf(authority, nil) == exchange.GuardedName
	}
	if !l.host.Router.Guarded || !named(ex.Request.Authority) && (!l.tunnelled() || !named(l.tunnel.authority)) {
		return true
	}
	ex.RefuseLater(fault.NoRoute)
	return false
}

// goesDirect finds the route of the message whose head was decoded, and which has a destination. It
// reports whether there is none, and the request leaves.
func (l *leaving) goesDirect() bool {
	ex := l.input.ex
	ex.Route = l.findRoute(ex, l.input.head.Minor)
	return ex.Route == nil && l.mayPass(ex)
}

// restorePath undoes what was done to the path of ex to find a route, unless some have its host.
func (l *leaving) restorePath(ex *exchange.Exchange) {
	if l.host.Router.TakesHost(ex.Request.Authority) {
		return
	}
	if ex.Refusal == fault.BadPath {
		ex.Refusal = nil
	}
	if ex.OriginalPath != nil {
		ex.Request.Path, ex.OriginalPath = ex.OriginalPath, nil
	}
}

// opensTunnel reports whether ex, a CONNECT, is accepted here, since requests within may have a route. While
// routes have rules, they may name any host: leaves reports whether something takes the CONNECT.
func (l *leaving) opensTunnel(ex *exchange.Exchange, leaves bool) bool {
	host := ex.Request.Authority
	if ex.OriginalHost != nil { // requests within are routed by what the client says
		host = ex.OriginalHost
	}
	r := l.host.Router
	return l.origin.Listener.Fixed == nil && (r.TakesHost(host) || r.Guarded && leaves)
}

// openTunnel accepts c, the CONNECT whose turn it is. It is the last request received, and the
// input holds what followed it.
func (l *leaving) openTunnel(c *call) {
	ex := c.ex
	authority := ex.Request.Authority
	if ex.OriginalHost != nil {
		authority = ex.OriginalHost
	}
	l.tunnel = &tunnel{authority: bytes.Clone(authority), minor: c.minor, direct: l.input.direct}
	l.turn.skip(downstream.Connected)
	l.input.openTunnel(ex)
	if l.tunnelLeaves(false) { // a silent client may wait for its server
		l.input.startTimeout(loop.TimeoutHead, l.host.Config.Timeouts.Detect)
	} else {
		l.input.startIdle()
	}
	if b := l.input.bytes(); b != nil {
		l.decideTunnel(l.tunnel.detect(b))
		l.input.decode()
	}
	l.recount()
}

// receiveFirst takes b, the next of the first bytes in a tunnel. It returns b if these are HTTP.
func (l *leaving) receiveFirst(b []byte) (rest []byte) {
	verdict := l.tunnel.detect(b)
	if verdict != http1.IsHTTP {
		l.input.keep(b)
		b = nil
	}
	l.decideTunnel(verdict)
	return b
}

// detect takes the next of the first bytes. A verdict stays.
func (t *tunnel) detect(b []byte) http1.Verdict {
	if t.verdict == http1.Undecided {
		t.verdict = t.first.Feed(b)
	}
	return t.verdict
}

func (l *leaving) decideTunnel(v http1.Verdict) {
	if v == http1.IsHTTP {
		l.input.resume()
		return
	}
	isTLS, known := downstream.BeginsTLS(l.input.bytes())
	leaves := l.tunnelLeaves(isTLS)
	switch {
	case v == http1.Undecided, !leaves && !known:
		if !leaves && !l.input.timeout.Running(loop.TimeoutHead) {
			l.input.startTimeout(loop.TimeoutHead, l.host.Config.Timeouts.Header)
		}
	case v == http1.LikeHTTP && downstream.BeginsHTTP2(l.input.bytes()) && (!leaves || l.host.Router.Guarded):
		l.becomeHTTP2(nil)
	case v == http1.LikeHTTP && l.host.Router.Guarded: // the decoder refuses it
		l.input.resume()
		l.input.decode()
	default:
		l.leaveTunnel(leaves)
	}
}

// leaveTunnel makes the connection leave with the CONNECT as a stream of bytes, if leaves is true.
func (l *leaving) leaveTunnel(leaves bool) {
	ex := l.input.ex
	l.input.ex = nil
	l.input.way = inTunnel
	l.input.leave()
	l.turn.add(call{ex: ex, leaves: true, minor: l.tunnel.minor, end: closes})
	f := l.checkRoute(ex, l.tunnel.direct)
	switch {
	case f != nil:
	case !leaves:
		f = fault.NotAllowed
	default:
		f = l.host.CheckStream(l.account.Messages()+ex.Held, true)
	}
	if f != nil {
		l.refuse(f)
	}
}

// closeTunnel ends a tunnel whose bytes can't leave. No response says so, since the client has
// got one. A client that speaks TLS understands an alert.
func (l *leaving) closeTunnel(ex *exchange.Exchange, f *fault.Failure) {
	l.host.Refuse(&l.turn, ex, f)
	if l.beginsTLS() {
		l.outbound.Write([]byte(accessDenied))
	}
	l.close()
	l.outbound.Conn.Drain()
}

// beginsTLS reports whether the input begins with a ClientHello.
func (l *leaving) beginsTLS() bool {
	is, _ := downstream.BeginsTLS(l.input.bytes())
	return is
}

// accessDenied is the record of a fatal alert (RFC 8446, section 6).
const accessDenied = "\x15\x03\x03\x00\x02\x02\x31"
