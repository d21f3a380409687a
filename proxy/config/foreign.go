package config

import (
	"regexp"
	"strings"
)

// foreignVariable is what other proxies would fill in: $host of nginx, %REQ(:path)% of Envoy, %[src] of HAProxy.
var foreignVariable = regexp.MustCompile(`\$[a-z_]{2,}|%[A-Z_]{2,}(\(.*\))?%|%\[`)

// warnForeign warns of text of a route that has a meaning in other proxies, and none here.
func warnForeign(in scope, at path, r *Route) {
	for _, c := range []struct{ key, prefix string }{{"path", r.Match.Path}, {"prefix_text", r.Match.PrefixText}} {
		if strings.Contains(c.prefix, "*") {
			in.warn(at.key("match").key(c.key), "* stands for itself; the paths below a prefix match without it")
		}
	}
	for _, edits := range []struct {
		key string
		*HeaderEdits
	}{{"request_headers", &r.RequestHeaders}, {"response_headers", &r.ResponseHeaders}} {
		for list, values := range map[string]map[string]string{"set": edits.Set, "add": edits.Add} {
			for name, value := range values {
				if foreignVariable.MatchString(value) {
					in.warn(at.key(edits.key).key(list).entry(name), "has a variable of another proxy, which is sent as it stands; "+
						"expected a placeholder such as {%s}", Placeholders[0])
				}
			}
		}
	}
}
