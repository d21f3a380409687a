package config

import (
	"fmt"
	"slices"
	"strings"
)

// Redirect sends the client elsewhere, with the query of its request.
type Redirect struct {
	// 301, 302, 303, 307 or 308. 0 means 302.
	Status int `yaml:"status" max:"308"`
	// `http` or `https`. Empty means that of the request. Without `host` its host stays, without its port.
	Scheme string `yaml:"scheme"`
	// Host, with or without a port. Empty means that of the request.
	Host string `yaml:"host"`
	// Path in place of the request's. Empty means the request's, after `rewrite.path`.
	Path string `yaml:"path"`
}

// Given reports whether a file sets any key.
func (r *Redirect) Given() bool { return *r != Redirect{} }

// Respond answers a request itself.
type Respond struct {
	// 200 to 599. 0 means 200.
	Status int `yaml:"status" max:"599"`
	// At most 64 KiB. `Content-Type` is that of text, unless a header says otherwise.
	Body string `yaml:"body"`
	// Headers, as in `response_headers.set`.
	Headers map[string]string `yaml:"headers"`
}

// Given reports whether a file sets any key.
func (r *Respond) Given() bool { return r.Status != 0 || r.Body != "" || len(r.Headers) > 0 }

// Answers reports whether the route answers itself, and leads to no service.
func (r *Route) Answers() bool { return r.Redirect.Given() || r.Respond.Given() }

const maxBody = 64 << 10

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
