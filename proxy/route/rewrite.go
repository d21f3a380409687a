package route

import (
	"bytes"
	"slices"
	"strings"
)

// Rewrite replaces the prefix of the path that a route matched.
type Rewrite struct {
	length int    // of the prefix, without a slash at its end
	with   []byte // without a slash at its end
}

// NewRewrite returns the rewrite of a plan, or nil if it has none.
func NewRewrite(p *Plan) *Rewrite {
	if p.Rewrite == "" {
		return nil
	}
	prefix, _ := prefixOf(p.Match)
	return &Rewrite{
		length: len(strings.TrimSuffix(prefix, "/")), with: []byte(strings.TrimSuffix(p.Rewrite, "/")),
	}
}

// Replace replaces the prefix of target in target's memory, or in new memory if there is too
// little. It never makes a target that starts with two slashes, which clients of a redirect
// would take for the name of a host.
func (w *Rewrite) Replace(target []byte) []byte {
	end, with := w.length, w.with
	if len(with) == 0 {
		for bytes.HasPrefix(target[end:], doubleSlash) {
			end++
		}
		if end == len(target) || target[end] != '/' {
			with = slash
		}
	}
	return slices.Replace(target, 0, end, with...)
}

var doubleSlash = []byte("//")
