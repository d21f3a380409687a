package accesslog

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/printable"
	"time"
	"unicode/utf8"
)

// example returns a record with all fields set.
func example() *Record {
	return &Record{
		Time:     time.Date(2026, 3, 29, 23, 59, 59, 123456789, time.FixedZone("", 7200)),
		Listener: "egress", Client: "127.0.0.1:5", Protocol: "http", Stream: "answer",
		Request: Request{
			RequestID: []byte("7"), TraceID: []byte("4bf92f3577b34da6a3ce929d0e0e4736"),
			Method: []byte("GET"), Authority: []byte("compute:80"), Path: []byte("/a?b=c"),
		},
		Service: "compute", Endpoint: "10.0.0.1:8080", Outcome: "5xx", Status: 503, Error: "overloaded", GRPC: "unavailable", Fault: "delay", Fallback: "breaker", Cache: "miss",
		BytesIn: 1, BytesOut: 1 << 40, Duration: 1234567 * time.Nanosecond, Queued: 999 * time.Nanosecond,
		Attempts: 4, Retries: 2, Hedges: 1, HedgeWon: true,
	}
}

func line(r *Record) string {
	var e encoder
	return string(e.append(nil, r))
}

func TestLine(t *testing.T) {
	for _, c := range []struct {
		name string
		r    *Record
		want string
	}{
		{"all", example(), `{"time":"2026-03-29T21:59:59.123456Z","listener":"egress","client":"127.0.0.1:5","protocol":"http",` +
			`"stream":"answer","request_id":"7","trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","method":"GET",` +
			`"authority":"compute:80","path":"/a?b=c","service":"compute","endpoint":"10.0.0.1:8080","outcome":"5xx",` +
			`"status":503,"grpc_status":"unavailable","error":"overloaded","fault":"delay","fallback":"breaker","cache":"miss","bytes_in":1,"bytes_out":1099511627776,"duration_ms":1.234,"queued_ms":0.000,` +
			`"attempts":4,"retries":2,"hedges":1,"hedge_won":true}` + "\n"},
		{"nothing", &Record{}, `{"status":0,"bytes_in":0,"bytes_out":0,"duration_ms":0.000,"queued_ms":0.000,` +
			`"attempts":0,"retries":0,"hedges":0,"hedge_won":false}` + "\n"},
	} {
		if got := line(c.r); got != c.want {
			t.Errorf("%s: got\n%swant\n%s", c.name, got, c.want)
		}
	}
}

// TestTimes: one encoder writes different seconds in any order.
func TestTimes(t *testing.T) {
	var e encoder
	for _, want := range []string{
		"1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.000001Z", "2026-12-31T23:59:59.999999Z",
		"2027-01-01T00:00:00.100000Z", "1969-12-31T23:59:59.500000Z",
	} {
		at, err := time.Parse(time.RFC3339, want)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(e.append(nil, &Record{Time: at})); !strings.HasPrefix(got, `{"time":"`+want+`",`) {
			t.Errorf("got %s, want the time %s", got, want)
		}
	}
}

// TestLength: no line is longer than maxLine, and truncation splits no character.
func TestLength(t *testing.T) {
	for _, unit := range []string{"a", "\x00", "\xff", "\u2028", "é", "\U0001F600", "\x80"} {
		long := strings.Repeat(unit, 10_000)
		for shift := range 4 {
			s := strings.Repeat("b", shift) + long
			b := []byte(s)
			r := &Record{
				Time: time.Unix(1<<33, 999999999), Listener: s, Client: s, Protocol: s, Stream: s, Service: s,
				Request:  Request{RequestID: b, TraceID: b, Method: b, Authority: b, Path: b},
				Endpoint: s, Outcome: s, Error: s, GRPC: s, Fault: s, Status: -1 << 62, BytesIn: -1 << 62,
				BytesOut: -1 << 62, Duration: 1<<63 - 1, Queued: 1<<63 - 1, Attempts: -1 << 62, Retries: -1 << 62, Hedges: -1 << 62,
			}
			got := line(r)
			if len(got) > maxLine {
				t.Errorf("%q: a line of %d bytes, maxLine is %d", unit, len(got), maxLine)
			}
			var v struct{ Path string }
			if err := json.Unmarshal([]byte(got), &v); err != nil {
				t.Fatalf("%q: %v in %s", unit, err, got)
			}
			if utf8.ValidString(s) && !strings.HasPrefix(s, v.Path) {
				t.Errorf("%q: the path ends in %q", unit, v.Path[len(v.Path)-8:])
			}
			if n := len(v.Path); utf8.ValidString(s) && (n > maxPath || n <= maxPath-utf8.UTFMax) {
				t.Errorf("%q: %d bytes of the path are left", unit, n)
			}
		}
	}
}

// TestExactLength: what is as long as a line may have it is whole.
func TestExactLength(t *testing.T) {
	for n, want := range map[int]int{maxPath: maxPath, maxPath + 1: maxPath} {
		r := &Record{Request: Request{Path: bytes.Repeat([]byte("a"), n)}}
		var v struct{ Path string }
		if err := json.Unmarshal([]byte(line(r)), &v); err != nil || len(v.Path) != want {
			t.Errorf("of %d bytes %d are left in JSON, %v", n, len(v.Path), err)
		}
		if got := formatted(t, "{path}", r); len(got) != want+len("\n") {
			t.Errorf("of %d bytes %d are left", n, len(got)-1)
		}
	}
}

// FuzzEscape compares escape with encoding/json and package printable.
func FuzzEscape(f *testing.F) {
	var all []byte
	for c := range 256 {
		all = append(all, byte(c))
	}
	for _, s := range []string{"", string(all), "\u2027\u2028\u2029\u2030", "\U0010FFFF\ufffd", "\xed\xa0\x80", "a\xc3", "\"\\/<>&\x7f", "\u0085\u009b\u202e\ufeff\U000e0001"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, s []byte) {
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(string(s)); err != nil {
			t.Fatal(err)
		}
		for _, got := range []string{string(escape(nil, s)), string(escape(nil, string(s)))} {
			if want := string(printable.AppendJSON(nil, want.Bytes())); `"`+got+`"`+"\n" != want {
				t.Errorf("%q: got %s, want %s", s, got, want)
			}
		}
		r := &Record{Request: Request{Path: s, RequestID: s, Method: s}, Listener: string(s)}
		if got := line(r); !json.Valid([]byte(got)) || strings.Count(got, "\n") != 1 {
			t.Errorf("%q: the line is %s", s, got)
		}
	})
}
