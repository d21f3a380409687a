package config

import "strings"

// unbuilt is a key, or some values of a key, that the format has and the
// program does not act on yet. Such a key is an error, because silence would
// leave an operator with a protection that isn't there.
type unbuilt struct {
	path   string // in schema form; a leading **. stands for any parents
	values func(n *node) bool
	what   string
}

// unbuiltKeys is the one list of them: a feature is switched on by deleting its
// line.
var unbuiltKeys = []unbuilt{
	{"tracing", notEmpty, "tracing"},
}

// notBuilt says which feature n would need that does not exist, or "".
func notBuilt(schema string, n *node) string {
	for _, u := range unbuiltKeys {
		if matchesSchema(u.path, schema) && u.values(n) {
			return u.what
		}
	}
	return ""
}

// isUnbuilt tells whether a key is refused whatever it holds.
func isUnbuilt(schema string) bool {
	return notBuilt(schema, &node{kind: kindScalar, text: "anything"}) != ""
}

func matchesSchema(pattern, schema string) bool {
	if tail, ok := strings.CutPrefix(pattern, "**."); ok {
		return schema == tail || strings.HasSuffix(schema, "."+tail)
	}
	return schema == pattern
}

// The values that are refused.

func notEmpty(n *node) bool { return n.text != "" || len(n.items) > 0 || len(n.entries) > 0 }
