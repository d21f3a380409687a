package accesslog

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
)

// format encodes lines by access_log.format. It does not change.
type format struct {
	parts   []formatPart
	headers []string // whose values are part of a line, in lower case
	longest int      // bound of a line
}

type formatPart struct {
	config.FormatPart
	value *formatValue // nil for text
}

// formatValue appends the value of a placeholder.
type formatValue struct {
	longest int // bound of what it appends
	append  func(e *encoder, b []byte, r *Record, p *formatPart) []byte
}

// newFormat compiles the format of the rules, which is valid. It returns nil for JSON.
func newFormat(rules *config.AccessLog) *format {
	parts, err := rules.Parts()
	if err != nil || len(parts) == 0 {
		return nil
	}
	f := &format{longest: 1}
	for _, p := range parts {
		v := formatValues[p.Name]
		f.parts = append(f.parts, formatPart{p, v})
		f.longest += len(p.Text)
		if v != nil {
			f.longest += v.longest
		}
		if p.Header != "" {
			f.headers = append(f.headers, p.Header)
		}
	}
	return f
}

// append appends the line of e.record.
func (f *format) append(e *encoder, b []byte) []byte {
	for i := range f.parts {
		p := &f.parts[i]
		if p.value == nil {
			b = append(b, p.Text...)
			continue
		}
		b = p.value.append(e, b, &e.record, p)
	}
	return append(b, '\n')
}

// textValue is the placeholder of a text of at most maxBytes.
func textValue[T string | []byte](maxBytes int, of func(r *Record, p *formatPart) T) *formatValue {
	return &formatValue{6 * maxBytes, func(_ *encoder, b []byte, r *Record, p *formatPart) []byte {
		return appendValue(b, of(r, p), maxBytes, p.Quoted)
	}}
}

func numberValue(of func(*Record) int64) *formatValue {
	return &formatValue{20, func(_ *encoder, b []byte, r *Record, _ *formatPart) []byte { return strconv.AppendInt(b, of(r), 10) }}
}

// clfTime is the time in the common log format of web servers.
const clfTime = "02/Jan/2006:15:04:05 -0700"

// formatValues has an entry for each of config.LogPlaceholders.
var formatValues = map[string]*formatValue{
	"time": {40, func(e *encoder, b []byte, r *Record, _ *formatPart) []byte {
		if r.Time.IsZero() {
			return append(b, '-')
		}
		return e.time(b, r.Time)
	}},
	"clf_time": {40, func(_ *encoder, b []byte, r *Record, _ *formatPart) []byte {
		if r.Time.IsZero() {
			return append(b, '-')
		}
		return r.Time.UTC().AppendFormat(b, clfTime)
	}},
	"listener":    textValue(maxName, func(r *Record, _ *formatPart) string { return r.Listener }),
	"client":      textValue(maxName, func(r *Record, _ *formatPart) string { return r.Client }),
	"client_ip":   textValue(maxName, func(r *Record, _ *formatPart) string { return withoutPort(r.Client) }),
	"protocol":    textValue(maxWord, func(r *Record, _ *formatPart) string { return r.Protocol }),
	"stream":      textValue(maxWord, func(r *Record, _ *formatPart) string { return r.Stream }),
	"request_id":  textValue(maxID, func(r *Record, _ *formatPart) []byte { return r.RequestID }),
	"trace_id":    textValue(maxID, func(r *Record, _ *formatPart) []byte { return r.TraceID }),
	"method":      textValue(maxWord, func(r *Record, _ *formatPart) []byte { return r.Method }),
	"authority":   textValue(maxName, func(r *Record, _ *formatPart) []byte { return r.Authority }),
	"path":        textValue(maxPath, func(r *Record, _ *formatPart) []byte { return r.Path }),
	"service":     textValue(maxName, func(r *Record, _ *formatPart) string { return r.Service }),
	"endpoint":    textValue(maxName, func(r *Record, _ *formatPart) string { return r.Endpoint }),
	"outcome":     textValue(maxWord, func(r *Record, _ *formatPart) string { return r.Outcome }),
	"grpc_status": textValue(maxWord, func(r *Record, _ *formatPart) string { return r.GRPC }),
	"error":       textValue(maxWord, func(r *Record, _ *formatPart) string { return r.Error }),
	"fault":       textValue(maxWord, func(r *Record, _ *formatPart) string { return r.Fault }),
	"fallback":    textValue(maxWord, func(r *Record, _ *formatPart) string { return r.Fallback }),
	"cache":       textValue(maxWord, func(r *Record, _ *formatPart) string { return r.Cache }),
	"header NAME": textValue(maxName, func(r *Record, p *formatPart) []byte { return protocol.Find(r.Headers, p.Header) }),
	"status":      numberValue(func(r *Record) int64 { return int64(r.Status) }),
	"bytes_in":    numberValue(func(r *Record) int64 { return r.BytesIn }),
	"bytes_out":   numberValue(func(r *Record) int64 { return r.BytesOut }),
	"attempts":    numberValue(func(r *Record) int64 { return int64(r.Attempts) }),
	"retries":     numberValue(func(r *Record) int64 { return int64(r.Retries) }),
	"hedges":      numberValue(func(r *Record) int64 { return int64(r.Hedges) }),
	"duration_ms": {24, func(_ *encoder, b []byte, r *Record, _ *formatPart) []byte { return appendMillis(b, "", r.Duration) }},
	"queued_ms":   {24, func(_ *encoder, b []byte, r *Record, _ *formatPart) []byte { return appendMillis(b, "", r.Queued) }},
	"hedge_won":   {5, func(_ *encoder, b []byte, r *Record, _ *formatPart) []byte { return strconv.AppendBool(b, r.HedgeWon) }},
}

// withoutPort returns the host of an "ip:port", and any other address as it is.
func withoutPort(addr string) string {
	if at := strings.LastIndexByte(addr, ':'); at > 0 {
		return strings.Trim(addr[:at], "[]")
	}
	return addr
}

// appendValue appends s, which others choose, so that it stays one value: with the escapes of
// JSON, and outside quotes also with one for each space. An empty value is a dash.
func appendValue[T string | []byte](b []byte, s T, maxBytes int, quoted bool) []byte {
	if len(s) == 0 {
		return append(b, '-')
	}
	if len(s) > maxBytes {
		s = s[:truncatedLen(s, maxBytes)]
	}
	from := len(b)
	b = escape(b, s)
	if quoted || bytes.IndexByte(b[from:], ' ') < 0 {
		return b
	}
	escaped := bytes.ReplaceAll(b[from:], []byte(" "), []byte(`\u0020`))
	return append(b[:from], escaped...)
}
