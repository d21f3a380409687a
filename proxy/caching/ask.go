package caching

import (
	"bytes"
	"slices"
	"time"

	"github.com/remora-proxy/remora/internal/hostname"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/caching/store"
)

// Ask is what a request says to caches. Its slices alias the request.
type Ask struct {
	Pass        bool // the response is made for this request alone: a range of bytes, a precondition, or an override
	NoStore     bool
	Credentials bool // Authorization, Proxy-Authorization or Cookie came, and is no part of the key
	Claims      bool // another header that may say who asks came, and is no part of the key
	OnlyCached  bool // only-if-cached
	Target      int  // length of the target, with which the key begins
	Conditional bool // If-None-Match or If-Modified-Since came

	noCache, pragma, control     bool
	timed                        bool // one of these is given
	maxAge, minFresh, maxStale   time.Duration
	ifNoneMatch, ifModifiedSince []byte
}

// Reader reads requests of one route.
type Reader struct {
	names   []string // of headers that are part of the key, in lower case
	lengths uint64   // bit n: a header with a name of n bytes, or 64 more, may matter
	claims  *claims
}

// MaxKeys is how many headers may be part of the key.
const MaxKeys = 8

// fields are the headers that matter to every reader, but for the key's own.
var fields = []string{
	"range", "pragma", "if-match", "if-range", "cache-control", "if-none-match", "if-modified-since", "if-unmodified-since",
	"x-forwarded-proto",
}

// overrides are headers by which frameworks take another method, or another target, than those of the request.
var overrides = []string{"x-http-method", "x-http-method-override", "x-method-override", "x-original-url", "x-rewrite-url"}

// NewReader returns a reader whose keys have the values of the named headers. The ignored ones are no
// credentials.
func NewReader(names, ignored []string) *Reader {
	r := &Reader{names: lowerAll(names)}
	r.claims = newClaims(append(ignored[:len(ignored):len(ignored)], names...))
	for _, name := range slices.Concat(fields, overrides, r.names) {
		r.lengths |= 1 << (len(name) & 63)
	}
	return r
}

// Read reads a GET or HEAD, and appends its key to dst, which is empty. One pass over the headers does both. The
// key has the host as it is spelled, but for case, the target, whether the client uses HTTPS, and the named headers.
func (r *Reader) Read(req *protocol.Request, a *Ask, dst []byte) []byte {
	*a = Ask{}
	dst, a.Target = appendURI(dst, req)
	hs := req.Headers
	for i, is := r.claims.next(hs, 0); is != noClaim; i, is = r.claims.next(hs, i+1) {
		a.Credentials = a.Credentials || is == credentials
		a.Claims = a.Claims || is == claimOther
	}
	for i := range hs {
		h := &hs[i]
		if r.lengths>>(len(h.Name)&63)&1 == 0 {
			continue
		}
		for n, name := range r.names {
			if protocol.EqualFold(h.Name, name) {
				dst = append(append(dst, '\n', 'a'+byte(n)), h.Value...)
			}
		}
		switch len(h.Name) {
		case len("range"):
			a.Pass = a.Pass || protocol.EqualFold(h.Name, "range")
		case len("pragma"):
			a.pragma = a.pragma || protocol.EqualFold(h.Name, "pragma") && protocol.EqualFold(h.Value, "no-cache")
		case len("if-match"):
			a.Pass = a.Pass || protocol.EqualFold(h.Name, "if-match") || protocol.EqualFold(h.Name, "if-range")
		case len("cache-control"):
			switch {
			case protocol.EqualFold(h.Name, "cache-control"):
				a.readControl(h.Value)
			case protocol.EqualFold(h.Name, "if-none-match"):
				a.addTags(h.Value)
			default:
				a.Pass = a.Pass || protocol.EqualFold(h.Name, "x-http-method") || protocol.EqualFold(h.Name, "x-rewrite-url")
			}
		case len("x-original-url"):
			a.Pass = a.Pass || protocol.EqualFold(h.Name, "x-original-url")
		case len("if-modified-since"):
			switch {
			case protocol.EqualFold(h.Name, "if-modified-since"):
				a.Conditional, a.ifModifiedSince = true, h.Value
			case protocol.EqualFold(h.Name, "x-method-override"):
				a.Pass = true
			case len(h.Value) != len("https"):
			case protocol.EqualFold(h.Name, "x-forwarded-proto") && protocol.EqualFold(h.Value, "https"):
				dst = append(dst, "\ns"...)
			}
		case len("if-unmodified-since"):
			a.Pass = a.Pass || protocol.EqualFold(h.Name, "if-unmodified-since")
		case len("x-http-method-override"):
			a.Pass = a.Pass || protocol.EqualFold(h.Name, "x-http-method-override")
		}
	}
	if a.pragma && !a.control {
		a.noCache = true
	}
	return dst
}

// AppendTarget appends the canonical form of the host, and the target of a request. It is the same for all
// spellings of a URI.
func AppendTarget(dst []byte, req *protocol.Request) []byte {
	isHTTPS := protocol.EqualFold(protocol.Find(req.Headers, "x-forwarded-proto"), "https")
	dst = hostname.AppendAuthority(dst, req.Authority, isHTTPS)
	return append(append(dst, '\n'), req.Path...)
}

// appendURI appends what AppendTarget does, and returns the length up to there. The authority follows if it is
// not spelled, but for case, as its canonical form is: a dot at the end, a default port, escapes. The service
// sees it as it came, and may respond to one spelling otherwise than to another.
func appendURI(dst []byte, req *protocol.Request) (_ []byte, target int) {
	if hostname.IsCanonical(req.Authority) {
		dst = append(append(append(dst, req.Authority...), '\n'), req.Path...)
		return dst, len(dst)
	}
	start := len(dst)
	dst = AppendTarget(dst, req)
	target = len(dst)
	const mark = "\n@"
	dst = appendLower(append(dst, mark...), req.Authority)
	if bytes.Equal(dst[start:target-len(req.Path)-1], dst[target+len(mark):]) {
		return dst[:target], target
	}
	return dst, target
}

func appendLower(dst, text []byte) []byte {
	for _, c := range text {
		dst = append(dst, lower(c))
	}
	return dst
}

func lower(c byte) byte {
	if c-'A' < 26 {
		c |= 0x20
	}
	return c
}

// addTags notes If-None-Match. A second line of it counts as a precondition that nobody reads.
func (a *Ask) addTags(value []byte) {
	a.Pass = a.Pass || a.ifNoneMatch != nil
	a.Conditional, a.ifNoneMatch = true, value
}

// NameTag and NameDate are the headers that make a request conditional.
var NameTag, NameDate = []byte("If-None-Match"), []byte("If-Modified-Since")

// AppendConditions appends the conditions of the request.
func (a *Ask) AppendConditions(hs []protocol.Header) []protocol.Header {
	if a.ifNoneMatch != nil {
		hs = append(hs, protocol.Header{Name: NameTag, Value: a.ifNoneMatch})
	}
	if a.ifModifiedSince != nil {
		hs = append(hs, protocol.Header{Name: NameDate, Value: a.ifModifiedSince})
	}
	return hs
}

func (a *Ask) readControl(value []byte) {
	if !a.control {
		a.control, a.maxAge, a.minFresh, a.maxStale = true, unset, unset, unset
	}
	for {
		name, arg, rest := nextDirective(value)
		if value = rest; len(name) == 0 && len(rest) == 0 {
			return
		}
		switch {
		case protocol.EqualFold(name, "no-cache"):
			a.noCache = true
		case protocol.EqualFold(name, "no-store"):
			a.NoStore = true
		case protocol.EqualFold(name, "only-if-cached"):
			a.OnlyCached = true
		case protocol.EqualFold(name, "max-age"):
			a.timed = true
			lifetime(&a.maxAge, arg)
		case protocol.EqualFold(name, "min-fresh"):
			if n, ok := seconds(arg); ok {
				a.timed, a.minFresh = true, n
			}
		case protocol.EqualFold(name, "max-stale"):
			n, ok := seconds(arg)
			switch {
			case ok:
				a.timed, a.maxStale = true, n
			case len(arg) == 0:
				a.timed, a.maxStale = true, longest
			}
		}
	}
}

// Shares reports whether a response without FlagOpen is for the client of a request with headers hs. names
// are those of AppendNames that the response varies by.
func (r *Reader) Shares(a *Ask, names []byte, hs []protocol.Header) bool {
	return !a.Credentials && (!a.Claims || r.claims.covered(names, hs))
}

// Use is how a stored response may be used for a request.
type Use uint8

const (
	Validate Use = iota // not before the service has validated it
	Fresh
	Stale   // although it is stale
	Refresh // although it is stale, while it is refreshed
)

// Flags of store.Meta.
const (
	FlagMustRevalidate = 1 << iota // it must not be used once it is stale
	FlagOpen                       // for requests with other credentials, too (RFC 9111 section 3.5)
	FlagTag                        // it has an ETag
	FlagDate                       // it has a Last-Modified
	FlagNeverIndexed               // no compression table may take its fields
	FlagVaries                     // not a response, but the names of the headers that it varies by
)

// Use returns how a stored response may be used.
func (a *Ask) Use(now time.Duration, m *store.Meta) Use {
	left := m.Fresh - now
	if left > 0 && !a.noCache && !a.timed {
		return Fresh
	}
	switch {
	case a.noCache, a.timed && a.tooOld(now-m.Born, left):
		return Validate
	case left > 0:
		return Fresh
	case m.Flags&FlagMustRevalidate != 0:
		return Validate
	case a.timed && a.maxStale >= -left:
		return Stale
	case -left < m.While:
		return Refresh
	}
	return Validate
}

// tooOld reports whether the client wants a response that is younger, or fresh for longer.
func (a *Ask) tooOld(age, left time.Duration) bool {
	return a.maxAge != unset && age > a.maxAge || a.minFresh != unset && left < a.minFresh
}

// IfError reports whether a stored response that is stale may be used because the service fails.
func IfError(now time.Duration, m *store.Meta) bool {
	return m.Flags&FlagMustRevalidate == 0 && m.IfError > 0 && now-m.Fresh < m.IfError
}
