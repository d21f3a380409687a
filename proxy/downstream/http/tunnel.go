package http

import (
	"bytes"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
)

// tunnel is a CONNECT that this session has accepted, since a route takes requests to its host.
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

// tunnelLeaves reports whether something takes the bytes of the tunnel if they are no HTTP. None go
// round the rules of the host: nobody knows what they ask for. Rules of a route for all hosts do not
// keep TLS from a host without a route, which no route could read either.
func (s *session) tunnelLeaves(isTLS bool) bool {
	r := s.cur.Route
	if r == nil && !s.tunnel.direct {
		return false
	}
	switch s.host.Router.GuardOf(s.tunnel.authority, r) {
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
func (s *session) hasDestination() bool {
	switch {
	case s.redirected:
		return s.host.Router.Guarded && !s.head.Connect && !s.head.HTTPS // else see passes
	case s.origin.Listener.Unrouted && s.host.Process.Streams:
		return s.head.Absolute && !s.head.HTTPS || s.head.Connect || s.tunnel != nil
	}
	return false
}

// mayPass reports whether ex, which has no route, may go round the routes. It is refused if some
// name its host, or that of its tunnel, and have rules. Routes for all hosts do not count,
// since none of them takes the request.
func (s *session) mayPass(ex *exchange.Exchange) bool {
	named := func(authority []byte) bool {
		return s.host.Router.GuardOf(authority, nil) == exchange.GuardedName
	}
	if !s.host.Router.Guarded || !named(ex.Request.Authority) && (s.tunnel == nil || !named(s.tunnel.authority)) {
		return true
	}
	ex.RefuseLater(fault.NoRoute)
	return false
}

// goesDirect finds the route of the message whose head was decoded, and which has a destination. It
// reports whether there is none, and the request leaves.
func (s *session) goesDirect() bool {
	s.cur.Route = s.findRoute(s.cur, s.head.Minor)
	return s.cur.Route == nil && s.mayPass(s.cur)
}

// restorePath undoes what was done to the path of ex to find a route, unless some have its host.
func (s *session) restorePath(ex *exchange.Exchange) {
	if s.host.Router.TakesHost(ex.Request.Authority) {
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
func (s *session) opensTunnel(ex *exchange.Exchange, leaves bool) bool {
	host := ex.Request.Authority
	if ex.OriginalHost != nil { // requests within are routed by what the client says
		host = ex.OriginalHost
	}
	r := s.host.Router
	return s.origin.Listener.Fixed == nil && (r.TakesHost(host) || r.Guarded && leaves)
}

// openTunnel accepts the CONNECT whose turn it is. It is the last request received, and the
// input holds what followed it.
func (s *session) openTunnel() {
	s.output.become(outputBusy)
	c := &s.calls[0]
	ex := c.ex
	authority := ex.Request.Authority
	if ex.OriginalHost != nil {
		authority = ex.OriginalHost
	}
	s.tunnel = &tunnel{authority: bytes.Clone(authority), minor: c.minor, direct: c.direct}
	s.cur = ex // until the first bytes
	s.removeCall()
	s.redirected, s.requests = false, 0 // those of the connection do not count within
	s.outbound.Write([]byte(downstream.Connected))
	s.outbound.Watch()
	s.output.become(outputIdle)
	s.input.become(inputTunnel)
	if s.tunnelLeaves(false) { // a silent client may wait for its server
		s.startTimeout(loop.TimeoutHead, s.host.Config.Timeouts.Detect)
	} else {
		s.startIdle()
	}
	if s.in != nil {
		s.decideTunnel(s.tunnel.detect(s.in.B))
		s.decode()
	}
	s.recount()
}

// receiveFirst takes b, the next of the first bytes in a tunnel. It returns b if these are HTTP.
func (s *session) receiveFirst(b []byte) (rest []byte) {
	verdict := s.tunnel.detect(b)
	if verdict != http1.IsHTTP {
		s.appendInput(b)
		b = nil
	}
	s.decideTunnel(verdict)
	return b
}

// detect takes the next of the first bytes. A verdict stays.
func (t *tunnel) detect(b []byte) http1.Verdict {
	if t.verdict == http1.Undecided {
		t.verdict = t.first.Feed(b)
	}
	return t.verdict
}

func (s *session) decideTunnel(v http1.Verdict) {
	if v == http1.IsHTTP {
		s.serveTunnel()
		return
	}
	isTLS, known := downstream.BeginsTLS(s.in.B)
	leaves := s.tunnelLeaves(isTLS)
	switch {
	case v == http1.Undecided, !leaves && !known:
		if !leaves && !s.timeout.Running(loop.TimeoutHead) {
			s.startTimeout(loop.TimeoutHead, s.host.Config.Timeouts.Header)
		}
	case v == http1.LikeHTTP && downstream.BeginsHTTP2(s.in.B) && (!leaves || s.host.Router.Guarded):
		s.becomeHTTP2(nil)
	case v == http1.LikeHTTP && s.host.Router.Guarded: // the decoder refuses it
		s.serveTunnel()
		s.decode()
	default:
		s.leaveTunnel(leaves)
	}
}

// serveTunnel makes what follows in the tunnel requests of the session.
func (s *session) serveTunnel() {
	s.host.Pool.Recycle(s.cur)
	s.cur = nil
	s.stopTimeout()
	s.endRequest()
	s.input.become(inputHead)
}

// leaveTunnel makes the connection leave with the CONNECT as a stream of bytes, if leaves is true.
func (s *session) leaveTunnel(leaves bool) {
	ex := s.cur
	s.cur = nil
	s.stopTimeout()
	s.input.become(inputHandoff)
	s.addCall(call{ex: ex, handoff: true, opened: true, direct: s.tunnel.direct, minor: s.tunnel.minor, last: true})
	f := s.checkRoute(&s.calls[0])
	switch {
	case f != nil:
	case !leaves:
		f = fault.NotAllowed
	default:
		f = s.host.CheckStream(s.account.Messages()+ex.Held, true)
	}
	if f != nil {
		s.refuseHandoff(f)
	}
}

// closeTunnel ends a tunnel whose bytes can't leave. No response says so, since the client has
// got one. A client that speaks TLS understands an alert.
func (s *session) closeTunnel(f *fault.Failure) {
	ex := s.calls[0].ex
	exchange.Refuse(s.host.Shard, s, ex, f)
	shard.LogExample(s.host.Shard, exchange.ClientOf(s), "", ex.Example(), f)
	if s.beginsTLS() {
		s.outbound.Write([]byte(accessDenied))
	}
	s.close()
	s.outbound.Conn.Drain()
}

// beginsTLS reports whether the input begins with a ClientHello.
func (s *session) beginsTLS() bool {
	if s.in == nil {
		return false
	}
	is, _ := downstream.BeginsTLS(s.in.B)
	return is
}

// accessDenied is the record of a fatal alert (RFC 8446, section 6).
const accessDenied = "\x15\x03\x03\x00\x02\x02\x31"
