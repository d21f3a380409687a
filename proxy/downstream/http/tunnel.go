package http

import (
	"bytes"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
)

// tunnel serves a CONNECT that the session accepts itself, since a route takes requests to its host. The first bytes in
// the tunnel decide what follows:
//
//   - the request line of HTTP/1.1: what follows are requests of the session
//   - the preface of HTTP/2, if nothing takes it as a stream: an HTTP/2 session gets the connection
//   - other bytes: the connection leaves the loop as a stream, if a route or the CONNECT's own host takes it
//
// Calls in: leaving asks about a CONNECT (accepts), opens the tunnel when it is the turn of the CONNECT (open), and
// ends it if it must not leave (refuse). input gives it the first bytes (receiveFirst), and says that no more will
// come (takeEnd).
//
// Calls out: input waits for the first bytes (openTunnel), and resumes its work behind them. leaving refuses a
// tunnel that must not leave. The turn gets the CONNECT once more.
type tunnel struct {
	*session
	connect *connect // that was accepted; nil for none
}

// connect is an accepted CONNECT.
type connect struct {
	authority []byte // for requests in the tunnel that have none
	first     http1.Detector
	verdict   http1.Verdict // of first
	minor     uint8         // of the version, HTTP/1.x
	direct    bool          // if no route takes a stream, it goes to the host that the CONNECT names
}

// opened reports whether the client has opened a tunnel.
func (t *tunnel) opened() bool { return t.connect != nil }

// authority returns the host and port of the tunnel, which is opened.
func (t *tunnel) authority() []byte { return t.connect.authority }

// nameHost gives ex, which names no host, that of the tunnel.
func (t *tunnel) nameHost(ex *exchange.Exchange) {
	if t.opened() && len(ex.Request.Authority) == 0 {
		ex.Request.Authority = t.connect.authority
	}
}

// hasTaker reports whether a route or a destination takes the bytes of the tunnel if they are no HTTP. Such bytes never
// go round the rules of the host: nobody knows what the bytes ask for. Rules of a route for all hosts do not keep TLS
// from a host without a route, since no route could read TLS.
func (t *tunnel) hasTaker(isTLS bool) bool {
	r := t.incoming.ex.Route
	if r == nil && !t.connect.direct {
		return false
	}
	switch t.host.Router.GuardOf(t.connect.authority, r) {
	case exchange.GuardedName:
		return false
	case exchange.GuardedAll:
		return isTLS
	}
	return true
}

// accepts reports whether ex, a CONNECT, is accepted here, since requests in the tunnel may have a route. While routes
// have rules, these requests may name any host: hasTaker reports whether a route or a destination takes the CONNECT.
func (t *tunnel) accepts(ex *exchange.Exchange, hasTaker bool) bool {
	host := ex.Request.Authority
	if ex.OriginalHost != nil { // requests in the tunnel are routed by what the client says
		host = ex.OriginalHost
	}
	r := t.host.Router
	return t.origin.Listener.Fixed == nil && (r.TakesHost(host) || r.Guarded && hasTaker)
}

// open accepts c, the CONNECT whose turn it is. It is the last request received, and the
// input holds what followed it.
func (t *tunnel) open(c *call) {
	ex := c.ex
	authority := ex.Request.Authority
	if ex.OriginalHost != nil {
		authority = ex.OriginalHost
	}
	t.connect = &connect{authority: bytes.Clone(authority), minor: c.minor, direct: t.incoming.direct}
	t.turn.skip(downstream.Connected)
	t.input.openTunnel(ex)
	if t.hasTaker(false) { // a silent client may wait for its server
		t.timeouts().start(loop.TimeoutHead, t.host.Config.Timeouts.Detect)
	} else {
		t.timeouts().startIdle()
	}
	if b := t.input.bytes(); b != nil {
		t.decide(t.connect.detect(b))
		t.input.decode()
	}
	t.memory().recount()
}

// receiveFirst takes b, the next of the first bytes in a tunnel. It returns b if these are HTTP.
func (t *tunnel) receiveFirst(b []byte) (rest []byte) {
	verdict := t.connect.detect(b)
	if verdict != http1.IsHTTP {
		t.input.keep(b)
		b = nil
	}
	t.decide(verdict)
	return b
}

// detect takes the next of the first bytes. A verdict stays.
func (c *connect) detect(b []byte) http1.Verdict {
	if c.verdict == http1.Undecided {
		c.verdict = c.first.Feed(b)
	}
	return c.verdict
}

func (t *tunnel) decide(v http1.Verdict) {
	if v == http1.IsHTTP {
		t.input.resume()
		return
	}
	isTLS, known := downstream.BeginsTLS(t.input.bytes())
	leaves := t.hasTaker(isTLS)
	switch {
	case v == http1.Undecided, !leaves && !known:
		if !leaves && !t.incoming.timeout.Running(loop.TimeoutHead) {
			t.timeouts().start(loop.TimeoutHead, t.host.Config.Timeouts.Header)
		}
	case v == http1.LikeHTTP && downstream.BeginsHTTP2(t.input.bytes()) && (!leaves || t.host.Router.Guarded):
		t.switching().become(nil)
	case v == http1.LikeHTTP && t.host.Router.Guarded: // the decoder refuses it
		t.input.resume()
		t.input.decode()
	default:
		t.leave(leaves)
	}
}

// leave makes the connection leave with the CONNECT as a stream of bytes. hasTaker reports whether something takes it.
func (t *tunnel) leave(hasTaker bool) {
	ex := t.incoming.takeExchange()
	t.incoming.moment = fromTunnel
	t.input.awaitHandoff()
	t.turn.add(call{ex: ex, leaves: true, minor: t.connect.minor, end: thenDrain})
	f := ex.Checks(t.origin.Listener).Tunnel(&exchange.Leaving{
		Counted: t.memory().messages(), Lasting: true, Direct: t.connect.direct, Opaque: hasTaker,
	})
	if f != nil {
		t.leaving().refuse(f)
	}
}

// refuse ends a tunnel whose bytes can't leave. No response says so, since the client has
// got one. A client that speaks TLS understands an alert.
func (t *tunnel) refuse(ex *exchange.Exchange, f *fault.Failure) {
	t.host.Refuse(&t.turn, ex, f)
	if t.beginsTLS() {
		t.outbound.Write([]byte(accessDenied))
	}
	t.ending().drainAndClose()
}

// beginsTLS reports whether the input begins with a ClientHello.
func (t *tunnel) beginsTLS() bool {
	is, _ := downstream.BeginsTLS(t.input.bytes())
	return is
}

// accessDenied is the record of a fatal alert (RFC 8446, section 6).
const accessDenied = "\x15\x03\x03\x00\x02\x02\x31"

// takeEnd makes the tunnel leave, behind whose first bytes nothing comes, and reports whether it does.
func (t *tunnel) takeEnd() (taken bool) {
	if !t.input.inTunnel() || !t.hasTaker(t.beginsTLS()) {
		return false
	}
	t.leave(true)
	return true
}
