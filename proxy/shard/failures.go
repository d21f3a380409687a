package shard

import (
	"bytes"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/remora-proxy/remora/proxy/fair/share"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
)

// Client is who a request or stream came from.
type Client struct {
	Listener string     // its name; empty if it is unknown
	Addr     string     // "ip:port" of the peer
	Behind   netip.Addr // the loop.Source of the client whom the peer, a sidecar, serves; the zero Addr if it is unknown
	GRPC     bool       // it made a gRPC call
	Session  Session
}

// Source returns whose share the client's places count for.
func (c *Client) Source() share.Source {
	return share.Source{Peer: loop.Source(loop.PeerAddr(c.Addr)), Client: c.Behind}
}

// Session is what is known of the session of a stream.
type Session struct {
	Key    uint64 // for a policy by key; 0 means none
	Pin    string // the value of the sticky cookie; empty means none
	Cookie []byte // Set-Cookie of the session that the stream begins; empty means none
	Secure bool   // the client uses TLS
}

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
			args = append(args, part.key, printable(part.value))
		}
	}
	w.Log.Example(msg, omitted, args...)
}

// maxExample bounds the bytes of each part of an example.
const maxExample = 128

// printable returns the beginning of b without characters that a terminal would obey.
func printable(b []byte) string {
	cut := len(b) > maxExample
	text := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, string(b[:min(len(b), maxExample)]))
	if cut {
		text += "…"
	}
	return text
}
