package config

import "strings"

// Rewrite changes a request on its way.
type Rewrite struct {
	// Replaces the prefix that matched; a `/` at the end of `match.path` or of this counts for nothing. With `prefix_text` both end with `/`, or neither does. At most 1024 bytes.
	Path string `yaml:"path"`
	// Host, with or without a port, that the service gets in place of the client's.
	Host string `yaml:"host"`
}

// maxRewrite bounds rewrite.path, in bytes: a rewrite makes a path longer by at most
// this.
const maxRewrite = 1024

// rewrite reports a replacement that would join wrongly with the rest of the path: if
// /api replaced the text /v1/, /v1/users would become /apiusers.
func (v *validator) rewrite(at path, r *Route) {
	from, to := r.Match.PrefixText, r.Rewrite.Path
	switch {
	case to == "":
	case from == "" && r.Match.Path == "":
		v.report(at, "replaces match.path, which is not set")
	case from != "" && strings.HasPrefix(to, "/") && strings.HasSuffix(from, "/") != strings.HasSuffix(to, "/"):
		v.report(at, `expected it to end in "/" if and only if match.prefix_text does, %q; got %q`, from, to)
	default:
		v.newPath(at, to)
	}
}

// rewriteHost reports a host that nobody would get.
func (v *validator) rewriteHost(at path, r *Route) {
	v.newHost(at, r.Rewrite.Host)
	v.refuseIf(r.Rewrite.Host != "" && r.Answers(), at, "nothing is sent on; redirect.host is where clients are sent")
	v.refuseIf(v.routeProtocol(&r.Match) != ProtocolHTTP && (r.Rewrite.Host != "" || r.RequestHeaders.Given() || r.ResponseHeaders.Given()),
		at.parent().parent(), "only Dubbo calls come here, and they have no host and no headers")
}

// newHost reports a text that can't take the place of a host. Empty means none does.
func (v *validator) newHost(at path, to string) {
	isBad := func(c rune) bool { return c > '~' || !isUnreserved(byte(c)) && !strings.ContainsRune(":[]", c) }
	v.refuseIf(len(to) > maxRewrite || strings.ContainsFunc(to, isBad), at, "expected a host with or without a port, got %q", to)
}

// newPath reports a text that can't take the place of a path, or of a part of it.
func (v *validator) newPath(at path, to string) {
	isBad := func(c rune) bool { return c <= ' ' || c > '~' || c == '?' || c == '#' }
	switch {
	case !strings.HasPrefix(to, "/") || strings.ContainsFunc(to, isBad):
		v.report(at, `expected a path that starts with "/", got %q`, to)
	case len(to) > maxRewrite:
		v.report(at, "expected at most %d bytes, got %d", maxRewrite, len(to))
	}
}
