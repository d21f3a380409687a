package config

import "slices"

// Items of Policy.Idempotent. Without one of them, GET and HEAD may be sent twice, and what the caller says.
const (
	IdempotentTrue    = "true"    // every request
	IdempotentFalse   = "false"   // none beside these
	IdempotentMethods = "methods" // those of the idempotent methods of RFC 9110 section 9.2.2
	IdempotentKey     = "key"     // those with an Idempotency-Key (draft-ietf-httpapi-idempotency-key-header)
)

// checkIdempotent reports items that contradict each other, and those that no call of a route for Dubbo can meet.
func (p *Policy) checkIdempotent(in scope, at path) {
	for i, item := range p.Idempotent {
		ofHTTP := item == IdempotentMethods || item == IdempotentKey
		switch {
		case slices.Contains(p.Idempotent[:i], item):
			in.report(at.item(i), "%q is listed twice", item)
		case !ofHTTP && len(p.Idempotent) > 1:
			in.report(at.item(i), "%s stands alone; expected true, false, methods, key or [methods, key]", item)
		case ofHTTP && in.route != nil && in.config.routeProtocol(&in.route.Match) == ProtocolDubbo:
			in.report(at.item(i), "the route is for Dubbo calls, which have no HTTP method and no Idempotency-Key; expected true or false")
		}
	}
}
