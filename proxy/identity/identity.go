// Package identity compares the names that a peer has proved by its certificate with patterns
// of the configuration. It is pure; proxy/certs reads certificates.
package identity

import (
	"fmt"
	"net/url"
	"strings"
)

// Names are the subject alternative names of a verified certificate. They do not change. nil
// means that the peer has proved none.
type Names struct {
	DNS  []string // in lower case, none with a wildcard
	URIs []string
}

// Named is a connection that may know its peer.
type Named interface {
	// PeerNames returns the names that the peer has proved, or nil.
	PeerNames() *Names
}

// Of returns the names of the peer of a connection, or nil.
func Of(conn any) *Names {
	if c, ok := conn.(Named); ok {
		return c.PeerNames()
	}
	return nil
}

// Patterns is a list of accepted names.
type Patterns []Pattern

// Pattern accepts one name, or all below one.
type Pattern struct {
	uri    string // a URI, or its beginning if prefix is set; empty for a DNS name
	prefix bool
	dns    string // in lower case; after a leading dot, a suffix of names with one more label
}

// Parse reads a list of
//
//	spiffe://domain/path    that URI; with /* at its end, each URI below it, if its path is valid in SPIFFE
//	dns:name or name        that DNS name; case and a dot at its end are ignored
//	dns:*.suffix, *.suffix  each name with one more label
func Parse(list []string) (Patterns, error) {
	var out Patterns
	for _, text := range list {
		p, err := parse(text)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func parse(text string) (Pattern, error) {
	wrong := func() (Pattern, error) {
		return Pattern{}, fmt.Errorf("expected spiffe://domain/path, dns:name or *.suffix, got %q", text)
	}
	if strings.Contains(text, "://") {
		p := Pattern{uri: text}
		if base, ok := strings.CutSuffix(text, "/*"); ok {
			p = Pattern{uri: base + "/", prefix: true}
		}
		u, err := url.Parse(p.uri)
		if err != nil || u.Host == "" || strings.Contains(p.uri, "*") {
			return wrong()
		}
		return p, nil
	}
	name := strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(text, "dns:"), "."))
	suffix, isWild := strings.CutPrefix(name, "*")
	if isWild != strings.HasPrefix(suffix, ".") || strings.ContainsAny(suffix, "*/: \t") || strings.Trim(suffix, ".") == "" {
		return wrong()
	}
	return Pattern{dns: suffix}, nil
}

// Match reports whether one of the patterns accepts one of the names.
func (ps Patterns) Match(n *Names) bool {
	if n == nil {
		return false
	}
	for i := range ps {
		if ps[i].match(n) {
			return true
		}
	}
	return false
}

func (p *Pattern) match(n *Names) bool {
	if p.uri != "" {
		for _, u := range n.URIs {
			below, starts := strings.CutPrefix(u, p.uri)
			if starts && (below == "" && !p.prefix || p.prefix && validPath(below)) {
				return true
			}
		}
		return false
	}
	for _, name := range n.DNS {
		label, ends := strings.CutSuffix(name, p.dns)
		switch {
		case !ends:
		case p.dns[0] != '.' && label == "", p.dns[0] == '.' && label != "" && !strings.Contains(label, "."):
			return true
		}
	}
	return false
}

// validPath reports whether path is valid in a SPIFFE ID (SPIFFE-ID, section 2.2). Others might
// name something that is not below the prefix: "../x", "%2e%2e/x", "?x".
func validPath(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || segment == "." || segment == ".." || strings.ContainsFunc(segment, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._", r)
		}) {
			return false
		}
	}
	return true
}
