package exchange

import (
	"slices"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
)

// consent is which requests a route allows to be sent twice. GET and HEAD, and requests whose caller says so,
// need none.
type consent struct {
	all     bool
	methods bool // the idempotent methods of RFC 9110 section 9.2.2
	key     bool // requests with an Idempotency-Key
}

func newConsent(idempotent []string) consent {
	return consent{
		all:     slices.Contains(idempotent, config.IdempotentTrue),
		methods: slices.Contains(idempotent, config.IdempotentMethods),
		key:     slices.Contains(idempotent, config.IdempotentKey),
	}
}

// covers reports whether a request may be sent twice.
func (c *consent) covers(req *protocol.Request) bool {
	return c.all || c.methods && idempotentMethod(req) || c.keyed(req)
}

// keyed reports whether a request may be sent twice because the application tells the copies by their key.
func (c *consent) keyed(req *protocol.Request) bool { return c.key && hasIdempotencyKey(req) }

// idempotentMethod reports whether the method is idempotent by RFC 9110 section 9.2.2, and not one of safeMethod.
func idempotentMethod(req *protocol.Request) bool {
	if req.Codec != protocol.CodecHTTP {
		return false
	}
	switch string(req.Method) {
	case "PUT", "DELETE", "OPTIONS", "TRACE":
		return true
	}
	return false
}

// hasIdempotencyKey reports whether the request has exactly one key, which is not empty. Nobody knows which of
// several keys an application heeds.
func hasIdempotencyKey(req *protocol.Request) bool {
	if req.Codec != protocol.CodecHTTP {
		return false
	}
	keys, key := 0, []byte(nil)
	for i := range req.Headers {
		if h := &req.Headers[i]; protocol.EqualFold(h.Name, "idempotency-key") {
			keys, key = keys+1, h.Value
		}
	}
	return keys == 1 && len(key) > 0 && string(key) != `""`
}

// mayRepeat reports whether a request may be sent twice. Servers refuse the second use of credentials
// that log in a connection.
func (r *Route) mayRepeat(req *protocol.Request) bool {
	return !r.once && !req.Login && (req.Idempotent || safeMethod(req) || r.consent.covers(req))
}

// safeMethod reports whether the method alone allows sending a request twice: GET and HEAD.
func safeMethod(req *protocol.Request) bool {
	return req.Codec == protocol.CodecHTTP && (string(req.Method) == "GET" || string(req.Method) == "HEAD")
}

// Repeats returns how often a stream with a request that has not begun may be sent again although an endpoint may have
// seen it.
func (r *Route) Repeats(req *protocol.Request) int {
	if cascade := req.Attempt > 0 || req.Hedge; cascade || !r.mayRepeat(req) {
		return 0
	}
	return r.Policy.Repeats()
}
