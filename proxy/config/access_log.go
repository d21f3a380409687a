package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// AccessLog writes a line for each request that Sample, Slow or Failed selects.
// With an empty Path it is off.
type AccessLog struct {
	// A file, `stdout` or `stderr`. Empty means off.
	Path string `yaml:"path"`
	// `json`, `common`, `combined`, or text with [placeholders](filters.md#log-formats) such as `{path}`.
	Format string `yaml:"format"`
	// Share of all requests that are logged.
	Sample float64 `yaml:"sample" in:"[0,1]"`
	// Requests at least this long are always logged. 0 means off.
	Slow time.Duration `yaml:"slow"`
	// 5xx and the sidecar's own responses are always logged.
	Failed bool `yaml:"failed"`
	// Bytes of lines that wait to be written. More lines are dropped and counted.
	Buffer int64 `yaml:"buffer" unit:"size" min:"64KiB" max:"1GiB"`
}

func (l *AccessLog) setDefaults() { *l = AccessLog{Format: AccessJSON, Sample: 1, Buffer: 4 << 20} }

// check reports settings without a path, and a log that would be empty.
func (l *AccessLog) check(in scope, at path) {
	switch {
	case l.Path == "" && *l != withDefaults[AccessLog]():
		in.report(at.key("path"), "missing; expected a file, stdout or stderr")
	case l.Sample == 0 && l.Slow == 0 && !l.Failed:
		in.report(at.key("sample"), "0 without slow or failed: no request would be logged")
	}
	if _, err := l.Parts(); err != nil {
		in.report(at.key("format"), "%v", err)
	}
}

// Formats of the access log that have a name.
const (
	AccessJSON     = "json"     // one object per line
	AccessCommon   = "common"   // of web servers
	AccessCombined = "combined" // common with two headers
)

var namedFormats = map[string]string{
	AccessCommon:   `{client_ip} - - [{clf_time}] "{method} {path} HTTP/1.1" {status} {bytes_out}`,
	AccessCombined: `{client_ip} - - [{clf_time}] "{method} {path} HTTP/1.1" {status} {bytes_out} "{header referer}" "{header user-agent}"`,
}

// LogPlaceholders are the names that a format of the access log may use. Those of fields of JSON
// lines mean the same.
var LogPlaceholders = []string{
	"time", "clf_time", "listener", "client", "client_ip", "protocol", "stream", "request_id", "trace_id", "method", "authority",
	"path", "service", "endpoint", "outcome", "status", "grpc_status", "error", "fault", "fallback", "cache", "bytes_in", "bytes_out", "duration_ms", "queued_ms",
	"attempts", "retries", "hedges", "hedge_won", "header NAME",
}

// Bounds of a format. With them a line has a bound, too.
const (
	maxFormat        = 1024 // bytes
	maxFormatHeaders = 8    // placeholders of headers
)

// FormatPart is a part of a line of the access log: text, or the value of a placeholder.
type FormatPart struct {
	Text   string
	Name   string // of the placeholder, from LogPlaceholders; empty for text
	Header string // the header, in lower case, whose value stands here
	Quoted bool   // the value stands between quotes
}

// Parts returns the parts of a line; none for JSON. The error says what is wrong with the format.
func (l *AccessLog) Parts() (parts []FormatPart, err error) {
	text, named := namedFormats[l.Format]
	switch {
	case l.Format == "" || l.Format == AccessJSON:
		return nil, nil
	case named:
	case len(l.Format) > maxFormat:
		return nil, fmt.Errorf("expected at most %d bytes, got %d", maxFormat, len(l.Format))
	case strings.ContainsFunc(l.Format, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return nil, fmt.Errorf("expected no line breaks and control characters: each request has one line")
	default:
		text = l.Format
	}
	p := formatParser{rest: text}
	for p.rest != "" {
		if err := p.next(); err != nil {
			return nil, err
		}
	}
	p.add(FormatPart{})
	if len(p.used) == 0 {
		return nil, fmt.Errorf("expected json, common, combined, or text with placeholders such as {path}, got %q%s",
			l.Format, didYouMean(l.Format, []string{AccessJSON, AccessCommon, AccessCombined}))
	}
	return p.parts, nil
}

// formatParser splits a format.
type formatParser struct {
	rest    string
	text    string // before the next placeholder
	quotes  int    // so far
	parts   []FormatPart
	used    []string // placeholders
	headers int
}

// add adds the text so far, and a placeholder.
func (p *formatParser) add(placeholder FormatPart) {
	if p.text != "" {
		p.parts = append(p.parts, FormatPart{Text: p.text})
		p.text = ""
	}
	if placeholder.Name != "" {
		placeholder.Quoted = p.quotes%2 == 1
		p.parts = append(p.parts, placeholder)
	}
}

// next takes text up to a brace, or a placeholder.
func (p *formatParser) next() error {
	switch at := strings.IndexAny(p.rest, "{}"); {
	case at != 0:
		if at < 0 {
			at = len(p.rest)
		}
		p.quotes += strings.Count(p.rest[:at], `"`)
		p.text, p.rest = p.text+p.rest[:at], p.rest[at:]
		return nil
	case strings.HasPrefix(p.rest, "{{"), strings.HasPrefix(p.rest, "}}"):
		p.text, p.rest = p.text+p.rest[:1], p.rest[2:]
		return nil
	case p.rest[0] == '}':
		return fmt.Errorf("a } without {: expected }} for the brace itself")
	}
	name, rest, closed := strings.Cut(p.rest[1:], "}")
	if !closed {
		return fmt.Errorf("a { without }: expected {{ for the brace itself")
	}
	p.rest = rest
	return p.placeholder(name)
}

func (p *formatParser) placeholder(name string) error {
	kind, header, _ := strings.Cut(name, " ")
	isHeader := kind == "header"
	switch {
	case !isHeader && !slices.Contains(LogPlaceholders, name):
		return fmt.Errorf("unknown placeholder {%s}; %s", name, expectedKeys(LogPlaceholders, keyAlone(name)))
	case isHeader && !isHeaderName(header):
		return fmt.Errorf("expected the name of a header, as in {header user-agent}, got {%s}", name)
	case isHeader && strings.HasPrefix(strings.ToLower(header), "x-remora-"):
		return fmt.Errorf("the sidecar removes its own headers before it logs: {%s} would always be empty", name)
	case slices.Contains(p.used, strings.ToLower(name)):
		return fmt.Errorf("{%s} is there twice", name)
	case isHeader:
		if p.headers++; p.headers > maxFormatHeaders {
			return fmt.Errorf("expected at most %d headers", maxFormatHeaders)
		}
		p.add(FormatPart{Name: "header NAME", Header: strings.ToLower(header)})
	default:
		p.add(FormatPart{Name: name})
	}
	p.used = append(p.used, strings.ToLower(name))
	return nil
}
