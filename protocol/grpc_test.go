package protocol

import (
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestGRPCStatus: the outcome is in the trailers, or in the headers of a response without a body.
func TestGRPCStatus(t *testing.T) {
	const none = -1
	for _, c := range []struct {
		status            int
		headers, trailers string
		body              string
		want              int
	}{
		{200, "", "grpc-status: 0", "x", int(GRPCOK)},
		{200, "", "a: b|Grpc-Status: 14", "x", int(GRPCUnavailable)},
		{200, "", "grpc-status: 16", "", int(GRPCUnauthenticated)},
		{200, "grpc-status: 13", "", "", int(GRPCInternal)},
		{200, "", "grpc-status: 05", "x", int(GRPCNotFound)},
		{200, "", "grpc-status: 17", "x", int(GRPCOther)},
		{200, "", "grpc-status: 99999999999999999999", "x", int(GRPCOther)},
		{200, "", "grpc-status: -1", "x", int(GRPCOther)},
		{200, "", "grpc-status: ok", "x", int(GRPCOther)},
		{200, "", "grpc-status: ", "x", int(GRPCOther)},
		{200, "grpc-status: 13", "", "x", none},      // a body and no trailers: cut off, or no gRPC
		{200, "grpc-status: 13", "a: b", "", none},   // the trailers end the call
		{503, "grpc-status: 13", "", "", none},       // HTTP
		{200, "a: b", "", "", none},                  // HTTP
		{200, "", "a: b|grpc-message: x", "x", none}, // HTTP with trailers
		{200, "x-grpc-status: 1", "", "", none},      // another name
		{200, "grpc-status: 7|grpc-status: 0", "", "", int(GRPCPermissionDenied)},
	} {
		res := Response{Status: c.status, Headers: someLines(c.headers), Trailers: someLines(c.trailers), Body: []byte(c.body)}
		code, ok := GRPCStatus(&res)
		if ok != (c.want != none) || ok && code != GRPCCode(c.want) {
			t.Errorf("%d %q %q %q: %v, %v, want %d", c.status, c.headers, c.body, c.trailers, code, ok, c.want)
		}
		if n := testing.AllocsPerRun(10, func() { GRPCStatus(&res); GRPCPushback(&res) }); n > 0 {
			t.Errorf("%q %q: %v allocations", c.headers, c.trailers, n)
		}
	}
}

// someLines returns no line for an empty text.
func someLines(text string) []Header {
	if text == "" {
		return nil
	}
	return lines(text)
}

// TestGRPCOfHTTP: which outcome clients make of an HTTP status.
func TestGRPCOfHTTP(t *testing.T) {
	want := map[int]GRPCCode{
		400: GRPCInternal, 401: GRPCUnauthenticated, 403: GRPCPermissionDenied, 404: GRPCUnimplemented,
		429: GRPCUnavailable, 502: GRPCUnavailable, 503: GRPCUnavailable, 504: GRPCUnavailable,
	}
	for status := 100; status < 600; status++ {
		code, ok := want[status]
		if !ok {
			code = GRPCUnknown
		}
		if got := GRPCOfHTTP(status); got != code {
			t.Errorf("%d: %s, want %s", status, got, code)
		}
	}
}

// TestInteractive: streams of gRPC, gRPC-Web and the Connect protocol are conversations.
func TestInteractive(t *testing.T) {
	for value, want := range map[string]bool{
		"application/grpc": true, "application/grpc-web+proto": true, "application/connect+proto": true,
		"Application/Connect+json": true, "application/connect": false, "application/proto": false, "application/json": false, "": false,
	} {
		if got := Interactive(lines("content-type: " + value)); got != want {
			t.Errorf("%q: %t", value, got)
		}
	}
}

func TestIsGRPC(t *testing.T) {
	for value, want := range map[string]bool{
		"application/grpc": true, "Application/gRPC+proto": true, "application/grpc+json": true, "application/grpc; charset=x": true,
		"application/grpc ; a=b": true, "application/grpc-web": false, "application/grpc-web+proto": false, "application/grpcx": false,
		"application/json": false, "application/grp": false, "": false,
	} {
		if got := IsGRPC(lines("a: b|Content-Type: " + value)); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
	if IsGRPC(nil) {
		t.Error("no headers")
	}
}

// TestLeastGRPC: the prefix of the first message of a gRPC body tells how long the body is at least.
func TestLeastGRPC(t *testing.T) {
	for _, c := range []struct {
		media, part string
		want        int64
	}{
		{"application/grpc", "", 0},
		{"application/grpc", "\x00\x00\x00\x01", 0},
		{"application/grpc", "\x00\x00\x00\x00\x00", 5},
		{"application/grpc+proto", "\x00\x00\x00\x01\x02", 5 + 0x102},
		{"application/grpc", "\x01\x00\x40\x00\x00compressed", 5 + 4<<20},
		{"application/grpc", "\x00\xff\xff\xff\xff", 5 + math.MaxUint32},
		{"application/grpc", "\x02\x00\x00\x01\x02", 0},
		{"application/grpc-web", "\x00\x00\x00\x01\x02", 0},
		{"text/plain", "\x00\x00\x00\x01\x02", 0},
	} {
		if got := LeastGRPC(lines("content-type: "+c.media), []byte(c.part)); got != c.want {
			t.Errorf("%s %q: %d, want %d", c.media, c.part, got, c.want)
		}
	}
}

// TestGRPCNames: each code has a name, and each name of an error its code.
func TestGRPCNames(t *testing.T) {
	for c := range GRPCCode(GRPCCodes) {
		got, ok := GRPCCodeNamed(c.String())
		if isError := c != GRPCOK && c != GRPCOther; c.String() == "" || ok != isError || ok && got != c {
			t.Errorf("%d %q: %v, %v", c, c, got, ok)
		}
	}
	for _, name := range []string{"UNAVAILABLE", "", "other", "ok"} {
		if c, ok := GRPCCodeNamed(name); ok || c != GRPCOK {
			t.Errorf("%q is the error %v", name, c)
		}
	}
	if names := GRPCErrorNames(); len(names) != 16 || names[13] != "unavailable" {
		t.Errorf("%q", names)
	}
}

func TestGRPCPushback(t *testing.T) {
	for _, c := range []struct {
		headers, trailers string
		want              time.Duration
		ok                bool
	}{
		{"", "", 0, false},
		{"", "grpc-retry-pushback-ms: 250", 250 * time.Millisecond, true},
		{"Grpc-Retry-Pushback-Ms: 7", "", 7 * time.Millisecond, true},
		{"grpc-retry-pushback-ms: 7", "grpc-retry-pushback-ms: 8", 8 * time.Millisecond, true},
		{"", "grpc-retry-pushback-ms: 0", 0, true},
		{"", "grpc-retry-pushback-ms: -1", -1, true},
		{"", "grpc-retry-pushback-ms: ", -1, true},
		{"", "grpc-retry-pushback-ms: soon", -1, true},
		{"", "grpc-retry-pushback-ms: 99999999999", -1, true},
		{"", "grpc-retry-pushback-ms: 4294967295", (1<<32 - 1) * time.Millisecond, true},
		{"", "grpc-retry-pushback-ms: 4294967296", -1, true},
	} {
		res := Response{Status: 200, Headers: someLines(c.headers), Trailers: someLines(c.trailers)}
		if d, ok := GRPCPushback(&res); d != c.want || ok != c.ok {
			t.Errorf("%q %q: %v, %v, want %v, %v", c.headers, c.trailers, d, ok, c.want, c.ok)
		}
	}
}

func TestAddGRPCPrevious(t *testing.T) {
	for _, c := range []struct {
		before string
		more   int
		want   string
	}{
		{"a: b", 1, "a: b|grpc-previous-rpc-attempts: 1"},
		{"Grpc-Previous-Rpc-Attempts: 2|a: b", 1, "Grpc-Previous-Rpc-Attempts: 3|a: b"},
		{"grpc-previous-rpc-attempts: 3", -1, "grpc-previous-rpc-attempts: 2"},
		{"grpc-previous-rpc-attempts: some", 2, "grpc-previous-rpc-attempts: 2"},
		{"grpc-previous-rpc-attempts: 4000000000", 5, "grpc-previous-rpc-attempts: 1005"},
		{"grpc-previous-rpc-attempts: 4294967295", 5, "grpc-previous-rpc-attempts: 1005"},
		{"grpc-previous-rpc-attempts: 4294967296", 5, "grpc-previous-rpc-attempts: 5"},
		{"a: b|grpc-previous-rpc-attempts: 3|c: d", -3, "a: b|c: d"},
		{"grpc-previous-rpc-attempts: x", -5, ""},
	} {
		var text [8]byte
		if got := joined(AddGRPCPrevious(lines(c.before), c.more, text[:0])); got != c.want {
			t.Errorf("%q and %d more: %q, want %q", c.before, c.more, got, c.want)
		}
	}
}

// TestGRPCMessage: only what is no printable ASCII, and the percent sign, is encoded.
func TestGRPCMessage(t *testing.T) {
	if got, want := string(AppendGRPCMessage([]byte("p"), " a~\x7f\x1f%\xff!")), "p a~%7F%1F%25%FF!"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// FuzzGRPC compares what is read of values with their grammar, and what is written as a message
// with the decoder of URLs.
func FuzzGRPC(f *testing.F) {
	for _, seed := range []string{"", "0", "9", "14", "16", "17", "-1", "+1", "1.", "abc", "100%", "a\r\nb", "grüße\x00", "%41"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		res := Response{Status: 200, Trailers: []Header{{Name: NameGRPCStatus, Value: []byte(value)}, {Name: []byte(HeaderGRPCPushback), Value: []byte(value)}}}
		digits := value != "" && strings.Trim(value, "0123456789") == ""
		number := strings.TrimLeft(value, "0")
		code, ok := GRPCStatus(&res)
		i := slices.Index([]string{"", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"}, number)
		if named := digits && i >= 0; !ok || named && int(code) != i || !named && code != GRPCOther {
			t.Errorf("status %q: %d, %v", value, code, ok)
		}
		if d, ok := GRPCPushback(&res); !ok || !digits && d != -1 || d > time.Duration(1<<32)*time.Millisecond {
			t.Errorf("pushback %q: %v, %v", value, d, ok)
		}
		message := AppendGRPCMessage(nil, value)
		if slices.ContainsFunc(message, func(c byte) bool { return c < ' ' || c > '~' }) {
			t.Errorf("%q as a message: %q", value, message)
		}
		if back, err := url.PathUnescape(string(message)); err != nil || back != value {
			t.Errorf("%q as a message: %q, which is %q, %v", value, message, back, err)
		}
	})
}
