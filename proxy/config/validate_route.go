package config

import (
	"maps"
	"slices"
	"strings"
)

// maxRewrite bounds rewrite.path, so that a path grows by no more than that.
const maxRewrite = 1024

// matchHeaders reports conditions that no request could meet.
func (v *validator) matchHeaders(at path, headers map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		shown, value := at.entry(name), headers[name]
		lower := strings.ToLower(name)
		switch {
		case !isHeaderName(name):
			v.report(shown, "expected the name of a header, got %q", name)
		case lower == "host":
			v.report(shown, "expected match.host for the host")
		case strings.HasPrefix(lower, "x-remora-"):
			v.report(shown, "headers of the sidecar's own are taken out before routes are looked at")
		case value != strings.Trim(value, " \t") || strings.ContainsAny(value, "\r\n\x00"):
			v.report(shown, "expected a value as it stands in a header, without spaces around it, got %q", value)
		}
	}
}

// isHeaderName tells whether a name is a token (RFC 9110 section 5.6.2).
func isHeaderName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}

// rewrite reports a replacement that would join wrongly with what follows the
// prefix: /api in the place of /v1/ would make /apiusers of /v1/users.
func (v *validator) rewrite(at path, r *Route) {
	from, to := r.Match.Path, r.Rewrite.Path
	switch {
	case to == "":
	case from == "":
		v.report(at, "takes the place of match.path, which is not set")
	case !strings.HasPrefix(to, "/") || strings.ContainsFunc(to, func(c rune) bool { return c <= ' ' || c > '~' || c == '?' || c == '#' }):
		v.report(at, `expected a path that starts with "/", got %q`, to)
	case len(to) > maxRewrite:
		v.report(at, "expected at most %d bytes, got %d", maxRewrite, len(to))
	case strings.HasSuffix(from, "/") != strings.HasSuffix(to, "/"):
		v.report(at, `expected it to end in "/" if and only if match.path does, %q; got %q`, from, to)
	}
}

// routePolicies checks the policy of a route and those of its shares. What is
// inherited unchanged was reported where it stands.
func (v *validator) routePolicies(at path, r *Route) {
	var inherited []*Policy
	inherit := func(service string) {
		if s := v.config.Services[service]; s != nil {
			inherited = append(inherited, &s.Policy)
		}
	}
	inherit(r.Service)
	v.policy(at, &r.Policy, inherited)
	inherited = append(inherited, &r.Policy)
	for i := range r.Split {
		s := &r.Split[i]
		inherit(s.Name)
		v.policy(at.key("service").item(i), &s.Policy, inherited)
	}
}

func (v *validator) policy(at path, p *Policy, inherited []*Policy) {
	if !slices.ContainsFunc(inherited, func(q *Policy) bool { return slices.Equal(p.Retry.On, q.Retry.On) }) {
		v.retry(at, p)
	}
	if !slices.ContainsFunc(inherited, func(q *Policy) bool { return p.Hedge == q.Hedge && p.Timeout == q.Timeout }) {
		v.hedge(at, p)
	}
}

// split reports shares that make no whole, or can't take what is sent.
func (v *validator) split(at path, shares []Share, sent string) {
	sum, seen := 0, map[string]bool{}
	for i, s := range shares {
		item := at.item(i)
		switch {
		case s.Name == "":
			v.report(item.key("name"), "missing; a share needs a service")
		case seen[s.Name]:
			v.report(item.key("name"), "%s was given before", s.Name)
		default:
			v.reference(item.key("name"), s.Name)
			v.speaks(item.key("name"), s.Name, sent)
		}
		seen[s.Name] = true
		sum += s.Weight
	}
	if sum == 0 {
		v.report(at, "every weight is 0: no request could go anywhere")
	}
}
