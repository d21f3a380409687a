package route

import (
	"cmp"
	"slices"
	"strings"
)

// Rewrite replaces the prefix of the path that a route matched.
type Rewrite struct {
	length int    // of the prefix, without a slash at its end
	with   []byte // without a slash at its end, unless it is only that
}

// NewRewrite returns the rewrite of a plan, or nil if it has none.
func NewRewrite(p *Plan) *Rewrite {
	to := p.Route.Rewrite.Path
	if to == "" {
		return nil
	}
	prefix, _ := prefixOf(p.Match)
	return &Rewrite{
		length: len(strings.TrimSuffix(prefix, "/")), with: []byte(cmp.Or(strings.TrimSuffix(to, "/"), "/")),
	}
}

// Append appends target to dst with its prefix replaced. They must not overlap.
func (w *Rewrite) Append(dst, target []byte) []byte {
	return append(append(dst, w.with...), w.rest(target)...)
}

// Replace replaces the prefix of target in target's memory, or in new memory if there is too
// little.
func (w *Rewrite) Replace(target []byte) []byte {
	return slices.Replace(target, 0, len(target)-len(w.rest(target)), w.with...)
}

// rest returns what follows the replacement. Behind one that is a slash alone it has none at its
// start: a client takes a target that starts with two, if a redirect sends it there, for a host.
func (w *Rewrite) rest(target []byte) []byte {
	rest := target[w.length:]
	for len(w.with) == 1 && len(rest) > 0 && rest[0] == '/' {
		rest = rest[1:]
	}
	return rest
}
