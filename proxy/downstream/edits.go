package downstream

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/route"
)

// editRequest changes the host and the headers of the request of ex as its route r says. The path
// is not rewritten yet.
func editRequest(r *exchange.Route, ex *exchange.Exchange, from *Origin) {
	req := &ex.Request
	ex.Edited = ex.Edited[:0]
	if r.Edits.Request.Given() {
		v := valuesOf(r, ex, from)
		req.Headers, ex.Edited = r.Edits.Request.Apply(req.Headers, &v, ex.Edited)
	}
	if len(r.Edits.Host) > 0 {
		ex.OriginalHost, req.Authority = req.Authority, r.Edits.Host
	}
}

// EditResponse changes the headers of the response to ex as its route, which has edits, says. Their
// memory is that of ex.
func EditResponse(ex *exchange.Exchange, res *protocol.Response, from *Origin) {
	e := &ex.Route.Edits.Response
	if e.Given() {
		v := valuesOf(ex.Route, ex, from)
		res.Headers, ex.Edited = e.Apply(res.Headers, &v, ex.Edited) // the request's may still be in use
	}
}

// ResponseEditor returns what EditResponse does, for a response that comes after ex has ended. It
// returns nil if there is no route, or it has no edits.
func ResponseEditor(ex *exchange.Exchange, from *Origin) func(*protocol.Response) {
	if ex.Route == nil || ex.Route.Edits == nil || !ex.Route.Edits.Response.Given() {
		return nil
	}
	e := ex.Route.Edits
	v := valuesOf(ex.Route, ex, from)
	kept := v.Clone()
	return func(res *protocol.Response) { res.Headers, _ = e.Response.Apply(res.Headers, kept, nil) }
}

func valuesOf(r *exchange.Route, ex *exchange.Exchange, from *Origin) route.Values {
	v := route.Values{
		Peer: from.Addr, Host: ex.Request.Authority, Method: ex.Request.Method, Target: ex.Request.Path,
		RequestID: ex.RequestID, Service: r.ServiceName(), Listener: from.Listener.Name,
	}
	if ex.OriginalHost != nil {
		v.Host = ex.OriginalHost
	}
	if ex.OriginalPath != nil {
		v.Target = ex.OriginalPath
	}
	return v
}
