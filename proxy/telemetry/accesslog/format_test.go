package accesslog

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
)

// formatted returns the line of r by a format, which must be valid.
func formatted(t *testing.T, text string, r *Record) string {
	t.Helper()
	rules := &config.AccessLog{Format: text}
	if _, err := rules.Parts(); err != nil {
		t.Fatal(err)
	}
	e := encoder{format: newFormat(rules)}
	return string(e.append(nil, r))
}

// everything has all placeholders.
func everything() string {
	var b strings.Builder
	for _, name := range config.LogPlaceholders {
		b.WriteString("{" + strings.Replace(name, "NAME", "User-Agent", 1) + "} ")
	}
	return b.String()
}

func TestFormats(t *testing.T) {
	r := example()
	r.Headers = []protocol.Header{{Name: []byte("User-Agent"), Value: []byte("curl/8 (x)")}}
	for format, want := range map[string]string{
		"common": `127.0.0.1 - - [29/Mar/2026:21:59:59 +0000] "GET /a?b=c HTTP/1.1" 503 1099511627776`,
		"combined": `127.0.0.1 - - [29/Mar/2026:21:59:59 +0000] "GET /a?b=c HTTP/1.1" 503 1099511627776 ` +
			`"-" "curl/8 (x)"`,
		`{{"at": "{time}", "ms": {duration_ms}}}`: `{"at": "2026-03-29T21:59:59.123456Z", "ms": 1.234}`,
		everything(): `2026-03-29T21:59:59.123456Z 29/Mar/2026:21:59:59 +0000 egress 127.0.0.1:5 127.0.0.1 http answer 7 ` +
			`4bf92f3577b34da6a3ce929d0e0e4736 GET compute:80 /a?b=c compute 10.0.0.1:8080 5xx 503 unavailable overloaded delay breaker miss 1 1099511627776 1.234 0.000 ` +
			`4 2 1 true curl/8\u0020(x) `,
	} {
		if got := formatted(t, format, r); got != want+"\n" {
			t.Errorf("%s: got\n%swant\n%s", format, got, want)
		}
	}
	if got, want := formatted(t, everything(), &Record{}), strings.Repeat("- ", 15)+"0 - - - - - 0 0 0.000 0.000 0 0 0 false - \n"; got != want {
		t.Errorf("of nothing: got\n%swant\n%s", got, want)
	}
	for client, want := range map[string]string{"[::1]:5": "::1\n", "@": "@\n", ":5": ":5\n", "a:5": "a\n"} {
		if got := formatted(t, "{client_ip}", &Record{Client: client}); got != want {
			t.Errorf("of %s: %s", client, got)
		}
	}
}

// TestFieldsOfJSON: each field of a line of JSON is a placeholder, which has the same value.
func TestFieldsOfJSON(t *testing.T) {
	r := example()
	var fields map[string]any
	decoder := json.NewDecoder(strings.NewReader(line(r)))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil {
		t.Fatal(err)
	}
	for name, value := range fields {
		if got, want := formatted(t, "{"+name+"}", r), fmt.Sprintln(value); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if len(fields) < 26 {
		t.Errorf("the example has %d fields", len(fields))
	}
}

// TestForgedLines: whatever a client sends, a line stays one line with the same values, and a
// format of JSON stays JSON.
func TestForgedLines(t *testing.T) {
	const plain, quoted, object = `{path} {header user-agent} end`, `"{path}" "{header user-agent}" end`, `{{"a": "{path}", "b": "{header user-agent}"}}`
	rnd := rand.New(rand.NewPCG(1, 2))
	values := []string{"/\n127.0.0.1 - forged", "/\r\n", `/" 200 "`, `\" x`, "\\", "\x00\x1b[2J", "\xff\xfe", "\u2028", "a b  c", " "}
	for range 2000 {
		b := make([]byte, 1+rnd.IntN(12))
		for i := range b {
			b[i] = "\n\r\t \"\\{}\x00\x7f\x80\xe2a-/"[rnd.IntN(15)]
		}
		values = append(values, string(b))
	}
	for _, v := range values {
		r := &Record{Request: Request{Path: []byte(v), Headers: []protocol.Header{{Name: []byte("user-agent"), Value: []byte(v)}}}}
		for _, format := range []string{plain, quoted, object} {
			if got := formatted(t, format, r); strings.Count(got, "\n") != 1 || strings.ContainsAny(got[:len(got)-1], "\r\x00\x1b") {
				t.Errorf("%q makes of %s: %q", v, format, got)
			}
		}
		if got := strings.Fields(formatted(t, plain, r)); len(got) != 3 || got[2] != "end" {
			t.Errorf("%q makes %q", v, got)
		}
		unescaped := strings.NewReplacer(`\\`, "", `\"`, "").Replace(formatted(t, quoted, r))
		if strings.Count(unescaped, `"`) != 4 {
			t.Errorf("%q ends its quotes: %s", v, unescaped)
		}
		var o struct{ A, B string }
		if err := json.Unmarshal([]byte(formatted(t, object, r)), &o); err != nil || o.A != o.B {
			t.Errorf("%q makes %+v, %v", v, o, err)
		}
	}
}

// TestFormatLength: no line is longer than its bound, which leaves room in a batch.
func TestFormatLength(t *testing.T) {
	format := everything() + "{header a}{header b}{header c}{header d}{header e}{header f}{header g}"
	f := newFormat(&config.AccessLog{Format: format})
	if f == nil || f.longest > batchSize*3/4 {
		t.Fatalf("%+v", f)
	}
	for _, unit := range []string{"a", " ", "\x00", "\xff", "\u2028"} {
		s := strings.Repeat(unit, 5000)
		b := []byte(s)
		r := &Record{
			Time: time.Unix(1<<33, 999999999), Listener: s, Client: s, Protocol: s, Stream: s, Service: s, Endpoint: s, Outcome: s, Error: s, GRPC: s, Fault: s,
			Request: Request{RequestID: b, TraceID: b, Method: b, Authority: b, Path: b},
			Status:  -1 << 62, BytesIn: -1 << 62, BytesOut: -1 << 62, Duration: 1<<63 - 1, Queued: 1<<63 - 1, Attempts: -1 << 62, Retries: -1 << 62, Hedges: -1 << 62,
		}
		for _, name := range f.headers {
			r.Headers = append(r.Headers, protocol.Header{Name: []byte(name), Value: b})
		}
		if n := len(formatted(t, format, r)); n > f.longest || n < 4096 {
			t.Errorf("%q: a line of %d bytes, the bound is %d", unit, n, f.longest)
		}
	}
}

// TestTextLength: the bound of a line has room for the text between its values.
func TestTextLength(t *testing.T) {
	const digits = 20
	text := strings.Repeat("x", 500)
	format := text + "{status}" + text
	got := formatted(t, format, &Record{Status: -1 << 62})
	if bound := newFormat(&config.AccessLog{Format: format}).longest; len(got) != 2*len(text)+digits+len("\n") || bound < len(got) {
		t.Errorf("a line of %d bytes, the bound is %d", len(got), bound)
	}
}

// TestOwnHeaders: a record that outlives its request keeps only the headers of the format.
func TestOwnHeaders(t *testing.T) {
	header := func(name, value string) protocol.Header {
		return protocol.Header{Name: []byte(name), Value: []byte(value)}
	}
	r := Record{Request: Request{Headers: []protocol.Header{header("A", "1"), header("User-Agent", strings.Repeat("x", 5000))}}}
	r.Own([]string{"user-agent", "none"})
	if len(r.Headers) != 1 || len(r.Headers[0].Value) != maxName {
		t.Errorf("%d headers", len(r.Headers))
	}
	r.Own(nil)
	if r.Headers != nil {
		t.Errorf("%+v", r.Headers)
	}
}

// TestFormatAllocations: in steady state a line costs no allocation, and keeps no memory.
func TestFormatAllocations(t *testing.T) {
	e := encoder{format: newFormat(&config.AccessLog{Format: "combined"})}
	r, b := example(), make([]byte, 0, batchSize)
	if n := testing.AllocsPerRun(100, func() { e.append(b, r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if e.record.Path != nil {
		t.Error("the memory of a request is kept until the next line")
	}
}
