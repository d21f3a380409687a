package http

import (
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
)

// hasDestination reports whether the request being received may go on without a route: to the original
// destination of its connection, or to the host that its target, or the tunnel that it came through, names. A request
// for https would leave in plain text, and a CONNECT to another proxy may lead anywhere.
func (l leaving) hasDestination() bool {
	head := &l.incoming.head
	switch {
	case l.redirect().active():
		return l.host.Router.Guarded && !head.Connect && !head.HTTPS // without rules redirect.passes
	case l.origin.Listener.Unrouted && l.host.Process.Streams:
		return head.Absolute && !head.HTTPS || head.Connect || l.tunnel.opened()
	}
	return false
}

// mayPass reports whether ex, which has no route, may go round the routes. The request is refused if
// a route with rules names its host, or that of its tunnel. Routes for all hosts do not count, since none of them takes
// the request.
func (l leaving) mayPass(ex *exchange.Exchange) bool {
	named := func(authority []byte) bool {
		return l.host.Router.GuardOf(authority, nil) == exchange.GuardedName
	}
	if !l.host.Router.Guarded || !named(ex.Request.Authority) && (!l.tunnel.opened() || !named(l.tunnel.authority())) {
		return true
	}
	ex.RefuseLater(fault.NoRoute)
	return false
}

// goesDirect finds the route of the message whose head was decoded, and which has a destination. It
// reports whether there is none, and the request leaves.
func (l leaving) goesDirect() bool {
	ex := l.incoming.ex
	ex.Route = l.findRoute(ex, l.incoming.head.Minor)
	return ex.Route == nil && l.mayPass(ex)
}

// restorePath undoes what was done to the path of ex to find a route, unless a route names the host of ex.
func (l leaving) restorePath(ex *exchange.Exchange) {
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
