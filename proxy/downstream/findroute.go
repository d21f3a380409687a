package downstream

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
)

// FindRoute prepares the request of ex as prepareRequest says, and returns its route, or nil. The
// request is changed as the route says. via is the value of Via for the protocol over which the
// request came.
func (h *Host) FindRoute(ex *exchange.Exchange, from *Origin, via []byte) *exchange.Route {
	hop := protocol.Header{Name: protocol.NameLoop, Value: protocol.Pseudonym, Valid: true}
	if h.Via {
		hop.Name, hop.Value = protocol.NameVia, via
	}
	prepareRequest(ex, &h.IDs, from, hop)
	l := from.Listener
	r := l.Fixed
	if r == nil {
		if rules := l.Paths; rules != nil && !rules.Normal(ex.Request.Path) {
			normalizePath(l, ex)
		}
		r = h.Router.Find(&ex.Request)
	}
	if r != nil {
		if r.Edits != nil {
			editRequest(r, ex, from)
		}
		if r.Rewrite != nil {
			rewritePath(r, ex)
		}
	}
	return r
}

// normalizePath gives the request of ex the form of its path that routes and the service see, by
// the rules of l. A path that must be refused stays as it is, and sets ex.Refusal.
func normalizePath(l *exchange.Listener, ex *exchange.Exchange) {
	path, ok := l.Paths.AppendNormal(ex.Path[:0], ex.Request.Path)
	ex.Path = path
	if !ok {
		ex.RefuseLater(fault.BadPath) // restorePath may take this one back, and no other
		return
	}
	ex.OriginalPath, ex.Request.Path = ex.Request.Path, path
}

// rewritePath replaces the prefix of the path that r matched.
func rewritePath(r *exchange.Route, ex *exchange.Exchange) {
	path := ex.Request.Path
	if ex.OriginalPath == nil {
		ex.OriginalPath = path
		path = r.Rewrite.Append(ex.Path[:0], path)
	} else { // path is in ex.Path
		path = r.Rewrite.Replace(path)
	}
	ex.Path, ex.Request.Path = path, path
}
