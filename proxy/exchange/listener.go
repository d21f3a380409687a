package exchange

import (
	"bytes"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/allow"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/forwarded"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/route"
)

// Listener is one loop's side of a listener.
type Listener struct {
	Name, Protocol string

	Local    bool          // its peers are on this host
	Sidecars bool          // its peers are sidecars
	Secure   bool          // its peers use TLS
	Links    *atomic.Int32 // of the listener, over all loops

	Fixed   *Route           // of a listener with a fixed service; nil means by route
	Paths   *route.PathRules // nil means that paths stay as they are
	Rate    *limit.Keyed     // nil means no limit
	Trust   *forwarded.Policy
	Allow   *allow.Set // nil means no rules
	Closing bool       // the listener is closed, or closes soon

	copies bool // its requests are of Copies

	Unrouted bool // requests without a route go to the host that they name
	Expects  bool // requests with Expect: 100-continue are streams, which forward it
}

// ruled reports whether a request that came in at l and has the route r meets any rule. r may
// be nil.
func (l *Listener) ruled(r *Route) bool { return l.Allow != nil || r != nil && r.ruled }

// Rules returns the rules of a request that came in at l and has the route r, which may be nil.
func (l *Listener) Rules(r *Route) (rules allow.Rules) {
	if r != nil {
		rules = r.rules
	}
	rules.Listener = l.Allow
	return rules
}

// limited takes a token of a rate limit for a request of a caller, and reports whether there was
// none. req may be nil: a request that is not known has an empty path and no headers.
func limited(l *limit.Keyed, now time.Duration, from Caller, req *protocol.Request) bool {
	switch {
	case l.By == limit.ByPeer:
		return !takeByPeer(l, now, from.RemoteAddr())
	case l.By == limit.ByPath && req != nil:
		return !takeByPath(l, now, req.Path)
	case l.By == limit.ByHeader && req != nil:
		return !l.Take(now, protocol.Find(req.Headers, l.Header))
	}
	return !l.Take(now, nil)
}

// keyForm is the form in which paths are keys, whatever the listener does with them: applications may take all
// spellings of a path for the same.
var keyForm = route.NewPathRules(&config.Path{Normalize: true, MergeSlashes: true, EscapedSlashes: config.SlashesUnescape})

// takeByPath takes a token for the path of a target. Paths that have no form share one bucket.
func takeByPath(l *limit.Keyed, now time.Duration, target []byte) bool {
	path, _, _ := bytes.Cut(target, []byte("?"))
	if !keyForm.Normal(path) {
		var ok bool
		if path, ok = keyForm.AppendNormal(nil, path); !ok {
			path = nil
		}
	}
	return l.Take(now, path)
}

// takeByPeer takes a token for a peer at "ip:port". Peers at any other address share one bucket
// for each address.
func takeByPeer(l *limit.Keyed, now time.Duration, remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return l.Take(now, []byte(remote))
	}
	source := loop.Source(at.Addr()).As16()
	return l.Take(now, source[:])
}
