package shard

import (
	"bytes"

	"github.com/remora-proxy/remora/internal/printable"
	"github.com/remora-proxy/remora/proxy/fault"
)

// ReportStream counts a stream that failed with f, and logs an example. service is empty if
// none counts it.
func ReportStream(w *Shard, from Client, service string, f *fault.Failure) {
	w.Stats.CountFailure(from.Listener, f)
	if service == "" {
		w.Stats.CountUnrouted(from.Listener)
	}
	LogExample(w, from, service, Example{}, f)
}

// Example is what the log says of one failed request. Its bytes are as the peer sent them.
type Example struct{ Method, Host, Path []byte }

// LogExample logs a failed request as an example of those with its listener and code, of which
// most get no line. service is empty if the request was refused before it had one.
func LogExample(w *Shard, from Client, service string, e Example, f *fault.Failure) {
	if f == fault.NotAllowed || f == fault.Connect { // the rules, or the dial, have a line of their own
		return
	}
	msg := "request failed"
	if service == "" {
		msg = "request refused"
	}
	omitted, due := w.Log.Due(msg, from.Listener, f.Code)
	if !due {
		return
	}
	args := []any{"listener", from.Listener, "code", f.Code, "reason", f.Text, "peer", from.Addr}
	if service != "" {
		args = append(args, "service", service)
	}
	path, _, _ := bytes.Cut(e.Path, []byte{'?'}) // a query may hold secrets
	for _, part := range []struct {
		key   string
		value []byte
	}{{"method", e.Method}, {"host", e.Host}, {"path", path}} {
		if len(part.value) > 0 {
			args = append(args, part.key, excerpt(part.value))
		}
	}
	w.Log.Example(msg, omitted, args...)
}

// maxExample bounds the bytes of each part of an example.
const maxExample = 128

// excerpt returns the beginning of b, without characters that a terminal would obey.
func excerpt(b []byte) string {
	text := printable.Text(string(b[:min(len(b), maxExample)]), "")
	if len(b) > maxExample {
		text += "…"
	}
	return text
}
