package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// HeaderEdits change the headers of a message: some are removed, then others set, and then added.
type HeaderEdits struct {
	// Values by name, in place of all others. [Placeholders](routing.md#placeholders) are filled in. `/config` does not show them.
	Set map[string]string `yaml:"set" secret:"true"`
	// Values by name, beside those that are there.
	Add map[string]string `yaml:"add" secret:"true"`
	// Names.
	Remove []string `yaml:"remove"`
}

// Given reports whether there is a change.
func (e *HeaderEdits) Given() bool { return len(e.Set)+len(e.Add)+len(e.Remove) > 0 }

// maxEdits bounds the headers of each list, maxEditValue the length of a value with its
// placeholders, in bytes.
const (
	maxEdits     = 32
	maxEditValue = 4096
)

// keptHeaders are headers that a route may not change, in lower case: those that frame a message
// or belong to a connection, and those that the sidecar needs or sets itself.
var keptHeaders = []string{
	"cdn-loop", "connection", "content-length", "expect", "host", "keep-alive", "max-forwards", "proxy-connection", "te", "trailer",
	"traceparent", "tracestate", "transfer-encoding", "upgrade", "via", "x-request-id",
}

// Part is a piece of a value: text, or what takes the place of a placeholder.
type Part struct{ Text, Placeholder string }

// Placeholders are the names that a value may have in braces.
var Placeholders = []string{"peer", "host", "method", "path", "query", "service", "listener", "request_id"}

// ParseValue splits a value into its parts. {{ and }} stand for braces. Its errors don't show
// the value, which may be a secret.
func ParseValue(value string) (parts []Part, err error) {
	text := ""
	for value != "" {
		i := strings.IndexAny(value, "{}")
		if i < 0 {
			i = len(value)
		}
		text, value = text+value[:i], value[i:]
		switch {
		case value == "":
		case strings.HasPrefix(value, "{{") || strings.HasPrefix(value, "}}"):
			text, value = text+value[:1], value[2:]
		default:
			name, rest, closed := strings.Cut(strings.TrimPrefix(value, "{"), "}")
			switch {
			case value[0] == '}' || !closed:
				return nil, fmt.Errorf("a brace without its other half; expected {{ or }} for the brace itself")
			case !slices.Contains(Placeholders, name):
				return nil, fmt.Errorf("unknown placeholder; %s, or {{ for a brace", expectedKeys(Placeholders, name))
			}
			if text != "" {
				parts = append(parts, Part{Text: text})
			}
			parts, text, value = append(parts, Part{Placeholder: name}), "", rest
		}
	}
	if text != "" {
		parts = append(parts, Part{Text: text})
	}
	return parts, nil
}

// check reports headers that a route may not change, or changes twice.
func (e *HeaderEdits) check(in scope, at path) {
	checkHeaderValues(in, at.key("set"), e.Set)
	checkHeaderValues(in, at.key("add"), e.Add)
	in.refuseIf(len(e.Remove) > maxEdits, at.key("remove"), "expected at most %d headers, got %d", maxEdits, len(e.Remove))
	listed := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(e.Set)) {
		listed[strings.ToLower(name)] = "set"
	}
	for _, name := range slices.Sorted(maps.Keys(e.Add)) {
		in.refuseIf(listed[strings.ToLower(name)] != "", at.key("add").entry(name), "contradicts set")
		listed[strings.ToLower(name)] = "add"
	}
	for i, name := range e.Remove {
		shown, lower := at.key("remove").item(i), strings.ToLower(name)
		checkHeaderName(in, shown, name)
		in.refuseIf(listed[lower] == "set", shown, "needless: set replaces %s", name)
		in.refuseIf(listed[lower] == "remove", shown, "%q is listed twice", name)
		if listed[lower] == "" {
			listed[lower] = "remove"
		}
	}
}

// checkHeaderName reports a header that a route may not change.
func checkHeaderName(in scope, at path, name string) {
	switch lower := strings.ToLower(name); {
	case !isHeaderName(name):
		in.report(at, "expected the name of a header, got %q", name)
	case lower == "host":
		in.report(at, "expected rewrite.host for the host")
	case slices.Contains(keptHeaders, lower) || strings.HasPrefix(lower, "x-remora-"):
		in.report(at, "%s belongs to the connection, the framing or the sidecar: a route can't change it", name)
	}
}

// checkHeaderValues reports names and values that can't be set.
func checkHeaderValues(in scope, at path, all map[string]string) {
	in.refuseIf(len(all) > maxEdits, at, "expected at most %d headers, got %d", maxEdits, len(all))
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		shown, value := at.entry(name), all[name]
		checkHeaderName(in, shown, name)
		in.refuseIf(seen[strings.ToLower(name)], shown, "is listed twice, in another case")
		seen[strings.ToLower(name)] = true
		_, err := ParseValue(value)
		isBad := func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
		switch {
		case strings.ContainsFunc(value, isBad) || value != strings.Trim(value, " \t"):
			in.report(shown, "expected the value of a header, without line breaks and without spaces around it")
		case len(value) > maxEditValue:
			in.report(shown, "expected at most %d bytes, got %d", maxEditValue, len(value))
		case err != nil:
			in.report(shown, "%s", err)
		}
	}
}

// isHeaderName reports whether a name is a token (RFC 9110 section 5.6.2).
func isHeaderName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}
