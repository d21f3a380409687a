package config

import "strings"

// RateLimit bounds the requests a second, over all loops of the process. The zero
// Rate is off.
type RateLimit struct {
	// Requests per second. More get 429 `rate-limited`. 0 means no limit.
	Rate int `yaml:"rate" max:"1000000"`
	// Requests at once after a pause. 0 means one second's worth.
	Burst int `yaml:"burst" max:"1000000"`
	// Requests with a limit of their own: those of a `peer`, of a `path`, or with a value of `header NAME`. Empty means one limit for all. For listeners and routes.
	Key string `yaml:"key"`
}

// Kinds of RateLimit.Key.
const (
	KeyPeer   = "peer"   // the client's address, of IPv6 the first 64 bits
	KeyPath   = "path"   // the path without its query; of a Dubbo call the interface
	KeyHeader = "header" // the value of a header, whose name follows
)

// KeyParts returns the kind of the key, and the name of the header. Both may be empty.
func (l *RateLimit) KeyParts() (kind, header string) {
	kind, header, _ = strings.Cut(l.Key, " ")
	return kind, header
}

// check reports a limit without a rate, and a key that no request has.
func (l *RateLimit) check(in scope, at path) {
	in.refuseIf(l.Burst > 0 && l.Rate == 0, at.key("rate"), "missing; a burst alone limits nothing")
	in.refuseIf(l.Key != "" && l.Rate == 0, at.key("rate"), "missing; a key alone limits nothing")
	switch {
	case in.listener != nil:
		l.checkKey(in, at.key("key"), in.listener.Protocol == ProtocolDubbo)
		in.refuseIf(in.listener.Protocol == ProtocolTCP && *l != RateLimit{}, at,
			"a tcp listener sees no requests; expected it at the service")
	case in.route != nil:
		l.checkKey(in, at.key("key"), in.route.Match.OfDubbo())
	default:
		in.refuseIf(l.Key != "", at.key("key"), "only the limits of listeners and routes have a key")
	}
}

// checkKey reports a key that no request has. dubbo says that only Dubbo calls come.
func (l *RateLimit) checkKey(in scope, at path, dubbo bool) {
	kind, header := l.KeyParts()
	switch {
	case l.Key == "" || kind != KeyHeader && header == "" && (kind == KeyPeer || kind == KeyPath):
	case kind != KeyHeader:
		in.report(at, "expected peer, path or header NAME, got %q%s", l.Key, didYouMean(kind, []string{KeyPeer, KeyPath, KeyHeader}))
	case !isHeaderName(header):
		in.report(at, "expected header and the name of a header, such as header x-user, got %q", l.Key)
	case strings.EqualFold(header, "host"):
		in.report(at, "the host is no key; routes by match.host may have limits of their own")
	case strings.HasPrefix(strings.ToLower(header), "x-remora-"):
		in.report(at, "the sidecar removes its own headers before it looks at limits")
	case dubbo:
		in.report(at, "calls of Dubbo have no headers")
	}
}
