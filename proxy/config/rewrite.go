package config

import (
	"strings"

	"github.com/remora-proxy/remora/internal/hostname"
)

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

// check reports what can't take the place of a path or a host.
func (r *Rewrite) check(in scope, at path) {
	r.checkPath(in, at.key("path"))
	r.checkHost(in, at.key("host"))
}

// checkPath reports a replacement that would join wrongly with the rest of the path: if
// /api replaced the text /v1/, /v1/users would become /apiusers.
func (r *Rewrite) checkPath(in scope, at path) {
	m := &in.route.Match
	from, to := m.PrefixText, r.Path
	switch {
	case to == "":
	case from == "" && m.Path == "":
		in.report(at, "replaces match.path, which is not set")
	case from != "" && strings.HasPrefix(to, "/") && strings.HasSuffix(from, "/") != strings.HasSuffix(to, "/"):
		in.report(at, `expected it to end in "/" if and only if match.prefix_text does, %q; got %q`, from, to)
	default:
		checkPath(in, at, to)
	}
}

// checkHost reports a host that nobody would get.
func (r *Rewrite) checkHost(in scope, at path) {
	to := in.route
	checkHost(in, at, r.Host)
	in.refuseIf(r.Host != "" && to.Answers(), at, "nothing is sent on; redirect.host is where clients are sent")
	in.refuseIf(in.config.routeProtocol(&to.Match) != ProtocolHTTP && (r.Host != "" || to.RequestHeaders.Given() || to.ResponseHeaders.Given()),
		at.parent().parent(), "only Dubbo calls come here, and they have no host and no headers")
}

// checkHost reports a text that can't take the place of a host. Empty means none does.
func checkHost(in scope, at path, to string) {
	isBad := func(c rune) bool {
		return c > '~' || !hostname.IsUnreserved(byte(c)) && !strings.ContainsRune(":[]", c)
	}
	in.refuseIf(len(to) > maxRewrite || strings.ContainsFunc(to, isBad), at, "expected a host with or without a port, got %q", to)
}

// checkPath reports a text that can't take the place of a path, or of a part of it.
func checkPath(in scope, at path, to string) {
	isBad := func(c rune) bool { return c <= ' ' || c > '~' || c == '?' || c == '#' }
	switch {
	case !strings.HasPrefix(to, "/") || strings.ContainsFunc(to, isBad):
		in.report(at, `expected a path that starts with "/", got %q`, to)
	case len(to) > maxRewrite:
		in.report(at, "expected at most %d bytes, got %d", maxRewrite, len(to))
	}
}
