package caching

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/caching/store"
)

// headers makes headers of lines such as "name: value".
func headers(lines ...string) (hs []protocol.Header) {
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		hs = append(hs, protocol.Header{Name: []byte(name), Value: []byte(strings.TrimSpace(value))})
	}
	return hs
}

func ask(keys []string, lines ...string) (a Ask, key string) {
	req := &protocol.Request{Method: []byte("GET"), Authority: []byte("Host:80"), Path: []byte("/p?q"), Headers: headers(lines...)}
	return a, string(NewReader(keys, nil).Read(req, &a, nil))
}

var wall = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// TestJudge: which responses are stored, and for how long (RFC 9111 sections 3 and 4.2).
func TestJudge(t *testing.T) {
	const (
		now     = "Date: Wed, 01 Jul 2026 12:00:00 GMT"
		earlier = "Date: Wed, 01 Jul 2026 11:59:50 GMT"
	)
	for _, c := range []struct {
		request, response string // lines, with a semicolon between them
		status            int
		want              string // "refused", or seconds: fresh, age, while, if error; then flags
	}{
		{"", now, 200, "5 0 10 10"},
		{"", now, 302, "refused"},
		{"", now + ";Cache-Control: max-age=60", 302, "60 0 10 10"},
		{"", now + ";Cache-Control: max-age=60", 206, "refused"},
		{"", now + ";Cache-Control: max-age=60", 304, "refused"},
		{"", now + ";Cache-Control: max-age=60", 100, "refused"},
		{"", now, 404, "5 0 10 10"},
		{"", now, 500, "refused"},
		{"", now + ";Cache-Control: public", 500, "5 0 10 10 open"},
		{"", now + ";Cache-Control: max-age=60", 500, "60 0 10 10"},
		{"", now + ";Cache-Control: max-age=60, must-understand", 299, "refused"},
		{"", now + ";Cache-Control: no-store, max-age=60", 200, "refused"},
		{"", now + ";cache-control: max-age=60, PRIVATE", 200, "refused"},
		{"", now + `;Cache-Control: max-age=60, private="set-cookie"`, 200, "refused"},
		{"", now + ";Cache-Control: max-age=60;Set-Cookie: a=b", 200, "refused"},
		{"Cache-Control: no-store", now + ";Cache-Control: max-age=60", 200, "refused"},
		{"", now + ";Cache-Control: max-age=60, s-maxage=7", 200, "7 0 0 0 must open"},
		{"", now + ";Cache-Control: s-maxage=7;Expires: Wed, 01 Jul 2026 13:00:00 GMT", 200, "7 0 0 0 must open"},
		{"", now + ";Cache-Control: max-age=3;Expires: Wed, 01 Jul 2026 13:00:00 GMT", 200, "3 0 10 10"},
		{"", now + ";Expires: Wed, 01 Jul 2026 12:00:09 GMT", 200, "9 0 10 10"},
		{"", now + ";Expires: Wednesday, 01-Jul-26 12:00:09 GMT", 200, "9 0 10 10"},
		{"", now + ";Expires: Wed Jul  1 12:00:09 2026", 200, "9 0 10 10"},
		{"", "Expires: Wed, 01 Jul 2026 12:00:09 GMT", 200, "9 0 10 10"},
		{"", now + ";Expires: 0", 200, "0 0 0 10"},
		{"", now + ";Expires: Wed, 01 Jul 2026 11:59:59 GMT;Cache-Control: stale-while-revalidate=1", 200, "0 0 1 10"},
		{"", now + ";Cache-Control: max-age=60, max-age=7", 200, "7 0 10 10"},
		{"", now + ";Cache-Control: max-age=60;Cache-Control: max-age=7", 200, "7 0 10 10"},
		{"", now + ";Cache-Control: max-age=\"60\"", 200, "60 0 10 10"},
		{"", now + ";Cache-Control: max-age=x", 200, "0 0 0 10"},
		{"", now + ";Cache-Control: max-age=-1", 200, "0 0 0 10"},
		{"", now + `;Cache-Control: ext="max-age=3,\", no-store", max-age=60`, 200, "60 0 10 10"},
		{"", now + `;Cache-Control: ext="x", no-store, max-age=60`, 200, "refused"},
		{"", now + `;Cache-Control: ext="xy\\", no-store, max-age=60`, 200, "refused"},
		{"", now + ";Cache-Control: max-age=99999999999999999999", 200, "2147483647 0 10 10"},
		{"", now + ";Cache-Control: max-age=60;Age: 7", 200, "51 9 10 10"}, // with the two seconds of the round trip
		{"", now + ";Cache-Control: max-age=60;Age: 7, 9", 200, "51 9 10 10"},
		{"", now + ";Cache-Control: max-age=60;Age: -7", 200, "60 0 10 10"},
		{"", earlier + ";Cache-Control: max-age=60", 200, "50 10 10 10"},
		{"", earlier + ";Cache-Control: max-age=60;Age: 20", 200, "38 22 10 10"},
		{"", earlier, 200, "5 10 10 10"}, // of the configuration: from now on
		{"", now + ";Cache-Control: max-age=0", 200, "0 0 0 10"},
		{"", now + ";Cache-Control: max-age=0, stale-while-revalidate=20", 200, "0 0 20 10"},
		{"", now + ";Cache-Control: no-cache", 200, "refused"}, // nothing could validate it
		{"", now + ";Cache-Control: no-cache;ETag: \"a\"", 200, "0 0 0 0 must tag"},
		{"", now + ";Cache-Control: no-cache=\"a\", max-age=60;Last-Modified: x", 200, "0 0 0 0 must date"},
		{"", now + ";Cache-Control: max-age=60, must-revalidate", 200, "60 0 0 0 must open"},
		{"", now + ";Cache-Control: max-age=60, proxy-revalidate, stale-if-error=9", 200, "60 0 0 0 must"},
		{"", now + ";Cache-Control: max-age=60, stale-while-revalidate=20, stale-if-error=30", 200, "60 0 20 30"},
		{"", now + ";Cache-Control: max-age=60, stale-while-revalidate=x, stale-if-error=0", 200, "60 0 10 0"},
		{"Authorization: a", now + ";Cache-Control: max-age=60", 200, "refused"},
		{"Cookie: a", now + ";Cache-Control: max-age=60", 200, "refused"},
		{"Authorization: a", now + ";Cache-Control: max-age=60, public", 200, "60 0 10 10 open"},
		{"Authorization: a", now + ";Cache-Control: max-age=60, proxy-revalidate", 200, "refused"},
		{"Authorization: a", now + ";Cache-Control: max-age=60, must-revalidate", 200, "60 0 0 0 must open"},
		{"Authorization: a", now + ";Cache-Control: s-maxage=60", 200, "60 0 0 0 must open"},
		{"Authorization: a", now + ";Vary: Authorization", 200, "refused"},
		{"Proxy-Authorization: a", now + ";Vary: Proxy-Authorization", 200, "refused"},
		{"X-Api-Key: a", now, 200, "refused"},
		{"X-Api-Key: a", now + ";Vary: Accept", 200, "refused"},
		{"X-Api-Key: a", now + ";Vary: Accept, x-api-key", 200, "5 0 10 10"},
		{"X-Api-Key: a;X-Remote-User: b", now + ";Vary: X-Api-Key", 200, "refused"},
		{"X-Api-Key: a", now + ";Cache-Control: s-maxage=60", 200, "60 0 0 0 must open"},
		{"", now + ";Cache-Control: max-age=60", 401, "refused"},
		{"", now + ";Cache-Control: max-age=60", 403, "refused"},
		{"", now + ";Cache-Control: max-age=60", 407, "refused"},
		{"", now + ";Cache-Control: max-age=60, public", 403, "60 0 10 10 open"},
		{"", now + ";Cache-Control: max-age=60", 429, "60 0 10 10"},
	} {
		a, _ := ask(nil, strings.Split(c.request, ";")...)
		p := Policy{TTL: 5 * time.Second, Stale: 10 * time.Second}
		response := headers(strings.Split(c.response, ";")...)
		f := ReadFields(response)
		names, _ := AppendNames(nil, response)
		const at = time.Hour
		shares := NewReader(nil, nil).Shares(&a, names, headers(strings.Split(c.request, ";")...))
		m, ok := p.Judge(c.status, &f, &a, shares, Received{Asked: at - 2*time.Second, Now: at, Wall: wall})
		got := "refused"
		if ok {
			got = fmt.Sprint(max(0, int((m.Fresh-at).Seconds())), " ", (at - m.Born).Seconds(), " ", m.While.Seconds(), " ", m.IfError.Seconds())
			for _, flag := range []struct {
				bit  uint32
				name string
			}{{FlagMustRevalidate, " must"}, {FlagOpen, " open"}, {FlagTag, " tag"}, {FlagDate, " date"}} {
				if m.Flags&flag.bit != 0 {
					got += flag.name
				}
			}
		}
		if got != c.want {
			t.Errorf("%q to %q, %d: %s, want %s", c.response, c.request, c.status, got, c.want)
		}
	}
	f, a := ReadFields(headers(now, "ETag: a")), Ask{}
	if _, ok := (&Policy{Stale: time.Second}).Judge(200, &f, &a, true, Received{Wall: wall}); ok {
		t.Error("stored without a lifetime")
	}
}

// TestUse: how a response that was fresh for 60 seconds is used at an age (RFC 9111 sections 4.2.4
// and 5.2.1, RFC 5861).
func TestUse(t *testing.T) {
	for _, c := range []struct {
		request string
		age     int
		flags   uint32
		want    Use
	}{
		{"", 59, 0, Fresh},
		{"", 60, 0, Refresh},
		{"", 69, 0, Refresh},
		{"", 70, 0, Validate},
		{"", 60, FlagMustRevalidate, Validate},
		{"Cache-Control: no-cache", 1, 0, Validate},
		{"Pragma: no-cache", 1, 0, Validate},
		{"Pragma: no-cache;Cache-Control: max-age=60", 1, 0, Fresh},
		{"Cache-Control: max-age=30", 30, 0, Fresh},
		{"Cache-Control: max-age=30", 31, 0, Validate},
		{"Cache-Control: max-age=x", 1, 0, Validate},
		{"Cache-Control: max-age=100", 60, 0, Refresh},
		{"Cache-Control: min-fresh=10", 50, 0, Fresh},
		{"Cache-Control: min-fresh=10", 51, 0, Validate},
		{"Cache-Control: min-fresh=0", 65, 0, Validate},
		{"Cache-Control: max-stale=100", 160, 0, Stale},
		{"Cache-Control: max-stale=99", 160, 0, Validate},
		{"Cache-Control: max-stale", 5000, 0, Stale},
		{"Cache-Control: max-stale", 61, FlagMustRevalidate, Validate},
		{"Cache-Control: max-stale=x", 160, 0, Validate},
		{"Cache-Control: max-stale=100, max-age=10", 11, 0, Validate},
	} {
		a, _ := ask(nil, strings.Split(c.request, ";")...)
		m := store.Meta{Fresh: 60 * time.Second, While: 10 * time.Second, Flags: c.flags}
		if got := a.Use(time.Duration(c.age)*time.Second, &m); got != c.want {
			t.Errorf("%q at %d, flags %d: %d, want %d", c.request, c.age, c.flags, got, c.want)
		}
	}
	if IfError(0, &store.Meta{Fresh: 60}) {
		t.Error("it is used although nothing allows it")
	}
	m := store.Meta{Fresh: 60, IfError: 5}
	for at, want := range map[time.Duration]bool{60: true, 64: true, 65: false} {
		if IfError(at, &m) != want {
			t.Errorf("if error at %d: %t", at, !want)
		}
	}
	if !IfError(60, &store.Meta{Fresh: 60, IfError: 1}) {
		t.Error("it is not used for the shortest time")
	}
}

// TestReader: keys differ where responses may, and a request's own wishes are noted.
func TestReader(t *testing.T) {
	base, key := ask([]string{"X-Tier"})
	if base.Pass || base.Credentials || base.Conditional || key != "host\n/p?q\n@host:80" || base.Target != len("host\n/p?q") {
		t.Errorf("%+v %q", base, key)
	}
	seen := map[string]string{}
	for _, lines := range []string{
		"X-Other: a", "x-tier: a", "x-tier: b", "X-Tier: ", "x-forwarded-proto: https", "x-tier: a;x-tier: b",
	} {
		_, key := ask([]string{"X-Tier"}, strings.Split(lines, ";")...)
		if before, ok := seen[key]; ok {
			t.Errorf("%q has the key of %q", lines, before)
		}
		seen[key] = lines
	}
	plain := func(line string) string {
		req := &protocol.Request{Method: []byte("GET"), Authority: []byte("host"), Path: []byte("/p?q"), Headers: headers(line)}
		return string(NewReader(nil, nil).Read(req, &Ask{}, nil))
	}
	for line, same := range map[string]bool{
		"X-Forwarded-Proto: http": true, "X-Forwarded-Proto: httpx": true, "X-Forwarded-Abcde: https": true,
		"X-Forwarded-Proto: https": false, "x-forwarded-proto: HTTPS": false,
	} {
		if got := plain(line) == plain("a: b"); got != same {
			t.Errorf("%q has the key of a request without: %t", line, got)
		}
	}
	for _, line := range []string{"Range: bytes=0-1", "If-Match: a", "If-Range: a", "If-Unmodified-Since: a",
		"X-HTTP-Method-Override: DELETE", "x-http-method: PUT", "X-Method-Override: POST", "X-Original-URL: /a", "x-rewrite-url: /a"} {
		if a, _ := ask(nil, line); !a.Pass {
			t.Errorf("%q does not pass", line)
		}
	}
	for _, line := range []string{"Cookie: a", "authorization: a", "Proxy-Authorization: a", "X-Api-Key: a"} {
		a, _ := ask(nil, line)
		keyed, _ := ask([]string{"Cookie", "Authorization", "Proxy-Authorization", "X-API-Key"}, line)
		if !a.Credentials && !a.Claims || keyed.Credentials || keyed.Claims {
			t.Errorf("%q: credentials %t, claims %t; as a part of the key %t, %t", line, a.Credentials, a.Claims, keyed.Credentials, keyed.Claims)
		}
	}
	if a, _ := ask(nil, `If-None-Match: "a"`); a.Pass {
		t.Error("one list of tags passes")
	}
	for _, more := range []string{`If-None-Match: "b"`, "Range: bytes=0-1"} {
		for _, lines := range [][]string{{`If-None-Match: "a"`, more}, {more, `If-None-Match: "a"`}} {
			if a, _ := ask(nil, lines...); !a.Pass {
				t.Errorf("%q do not pass", lines)
			}
		}
	}
	if a, _ := ask(nil, "Cache-Control: a, only-if-cached,no-store"); !a.OnlyCached || !a.NoStore {
		t.Error("directives are missed")
	}
}

// TestIdentity: requests are the same only if nothing that a response may depend on differs.
func TestIdentity(t *testing.T) {
	d := NewIdentity([]string{"X-Tier"}, []string{"X-Session-Id"})
	of := func(method, host, path string, lines ...string) string {
		return string(d.Append(nil, &protocol.Request{Method: []byte(method), Authority: []byte(host), Path: []byte(path), Headers: headers(lines...)}))
	}
	if of("GET", "A", "/", "x-b: 1", "x-session-id: a") != of("GET", "a", "/", "x-b: 2", "x-session-id: b") {
		t.Error("they differ without a reason")
	}
	seen := map[string]int{}
	for i, key := range []string{
		of("GET", "a", "/"), of("HEAD", "a", "/"), of("GET", "b", "/"), of("GET", "a", "/?"), of("GET", "a", "/", "x-tier: a"),
		of("GET", "a", "/", "Range: a"), of("GET", "a", "/", "If-Range: a"), of("GET", "a", "/", "If-Match: a"), of("GET", "a", "/", "if-none-match: a"),
		of("GET", "a", "/", "If-Modified-Since: a"), of("GET", "a", "/", "If-Unmodified-Since: a"), of("GET", "a", "/", "Authorization: a"),
		of("GET", "a", "/", "Cookie: a"), of("GET", "a", "/", "Cookie: b"), of("GET", "a", "/", "Content-Type: a"), of("GET", "a", "/", "Content-Encoding: a"),
		of("GET", "a", "/", "X-Forwarded-Proto: a"), of("GET", "a", "/", "Cookie: a", "Range: a"),
		of("GET", "a", "/", "X-Api-Key: a"), of("GET", "a", "/", "X-Api-Key: b"), of("GET", "a", "/", "X-Api_Key: a"),
		of("GET", "a", "/", "X-HTTP-Method-Override: DELETE"), of("GET", "a", "/", "X-Method-Override: DELETE"), of("GET", "a", "/", "X-Original-URL: /b"),
		of("GET", "a", "/", "X-Api-Key: a", "X-Auth: a"), of("GET", "a", "/", "Idempotency-Key: a"), of("GET", "a", "/", "Dubbo-Attachments: a"),
	} {
		if j, ok := seen[key]; ok {
			t.Errorf("%d is the same as %d", i, j)
		}
		seen[key] = i
	}
}

// TestForOthers: which responses may go to other clients with the same request, and which end what was stored.
func TestForOthers(t *testing.T) {
	for _, c := range []struct {
		status           int
		lines            string
		others, replaces bool
	}{
		{200, "a: b", true, true},
		{200, "Set-Cookie: a=b", false, true},
		{200, "Cache-Control: private", false, true},
		{200, "Cache-Control: no-store", false, true},
		{302, "a: b", true, true},
		{399, "a: b", true, true},
		{400, "a: b", false, false},
		{401, "a: b", false, false},
		{404, "a: b", true, true},
		{404, "Cache-Control: private", false, true},
		{410, "a: b", true, true},
		{429, "a: b", false, false},
		{499, "a: b", false, false},
		{500, "a: b", true, false},
		{501, "a: b", true, true},
		{503, "a: b", true, false},
	} {
		f := ReadFields(headers(c.lines))
		if got := f.ForOthers(c.status); got != c.others {
			t.Errorf("%d with %s: for others %t", c.status, c.lines, got)
		}
		if got := Replaces(c.status); got != c.replaces {
			t.Errorf("%d: replaces %t", c.status, got)
		}
	}
}

// TestHash: a change of any byte changes the hash, as does the seed.
func TestHash(t *testing.T) {
	seen := map[uint64]bool{}
	for n := range 70 {
		b := make([]byte, n)
		for i := -1; i < n; i++ {
			if i >= 0 {
				b[i] = 1
			}
			for seed := range uint64(2) {
				if h := Hash(seed, b); seen[h] {
					t.Fatalf("%d bytes, %d set: twice", n, i)
				} else {
					seen[h] = true
				}
			}
			if i >= 0 {
				b[i] = 0
			}
		}
	}
}

// TestNotModified checks conditions (RFC 9110 section 13.1).
func TestNotModified(t *testing.T) {
	const date = "Wed, 01 Jul 2026 12:00:00 GMT"
	for _, c := range []struct {
		request, tag, modified string
		want                   bool
	}{
		{`If-None-Match: "a"`, `"a"`, "", true},
		{`If-None-Match: W/"a"`, `"a"`, "", true},
		{`If-None-Match: "a"`, `W/"a"`, "", true},
		{`If-None-Match: "b"`, `"a"`, "", false},
		{`If-None-Match: "b", "x,y" ,W/"a"`, `"a"`, "", true},
		{`If-None-Match: "b,a", c`, `"a"`, "", false},
		{`If-None-Match: a`, `a`, "", true},
		{`If-None-Match: "a`, `"a"`, "", false},
		{`If-None-Match: "", "a"`, `"a"`, "", true},
		{`If-None-Match: "a", ""`, `""`, "", true},
		{`If-None-Match: ""`, `"a"`, "", false},
		{`If-None-Match: b, a`, `a`, "", true},
		{`If-None-Match: ,, a`, `a`, "", true},
		{`If-None-Match: b,a,c`, `a`, "", true},
		{`If-None-Match: *`, "", "", true},
		{`If-None-Match: "b";If-Modified-Since: ` + date, `"a"`, date, false},
		{"If-Modified-Since: " + date, "", date, true},
		{"If-Modified-Since: Wed, 01 Jul 2026 12:00:01 GMT", "", date, true},
		{"If-Modified-Since: Wed, 01 Jul 2026 11:59:59 GMT", "", date, false},
		{"If-Modified-Since: Wednesday, 01-Jul-26 12:00:00 GMT", "", date, true},
		{"If-Modified-Since: x", "", date, false},
		{"If-Modified-Since: " + date, "", "", false},
	} {
		a, _ := ask(nil, strings.Split(c.request, ";")...)
		value := func(text string) []byte {
			if text == "" {
				return nil
			}
			return []byte(text)
		}
		if got := a.NotModified(value(c.tag), value(c.modified)); got != c.want || !a.Conditional {
			t.Errorf("%q of %s, %s: %t", c.request, c.tag, c.modified, got)
		}
		// The conditions are those that AppendConditions adds to another request.
		again, _ := ask(nil, textOf(a.AppendConditions(nil))...)
		if got := again.NotModified(value(c.tag), value(c.modified)); got != c.want {
			t.Errorf("%q of %s, %s, appended: %t", c.request, c.tag, c.modified, got)
		}
	}
}

// textOf returns headers as "name: value".
func textOf(hs []protocol.Header) (lines []string) {
	for _, h := range hs {
		lines = append(lines, string(h.Name)+": "+string(h.Value))
	}
	return lines
}

// TestVariant: requests that differ in a header of Vary have different variants.
func TestVariant(t *testing.T) {
	names, any := AppendNames(nil, headers("Vary: Accept , x-a", "vary: X-B"))
	if string(names) != "accept,x-a,x-b," || any {
		t.Errorf("%q %t", names, any)
	}
	if _, any := AppendNames(nil, headers("Vary: a, *")); !any {
		t.Error("* is missed")
	}
	all := [][]protocol.Header{
		headers(), headers("accept: 1"), headers("X-A: 1"), headers("x-b: 1"), headers("accept: 1", "accept: 2"), headers("accept: 1", "x-a: 2"),
	}
	for i, a := range all {
		for j, b := range all {
			same := string(AppendVariant(nil, names, a)) == string(AppendVariant(nil, names, b))
			if same != (i == j) {
				t.Errorf("%q and %q: same %t", a, b, same)
			}
		}
	}
}

// TestDate checks dates against the standard library.
func TestDate(t *testing.T) {
	for at := time.Date(1999, 12, 30, 23, 59, 58, 0, time.UTC); at.Year() < 2030; at = at.Add(1234567 * time.Second) {
		text := at.Format("Mon, 02 Jan 2006 15:04:05 GMT")
		if unix, ok := Date([]byte(text)); !ok || unix != at.Unix() {
			t.Fatalf("%s is %d, %t", text, unix, ok)
		}
	}
	for _, text := range []string{
		"", "0", "Wed, 01 Jul 2026 12:00:00 UTC", "Wed, 32 Jul 2026 12:00:00 GMT", "Wed, 01 Jux 2026 12:00:00 GMT", "Wed, 01 anF 2026 12:00:00 GMT",
		"Wed, 01 Jul 2026 24:00:00 GMT", "Wed, 01 Jul 2026 1x:00:00 GMT", "Wed  01 Jul 2026 12:00:00 GMT", "Wed, 01-Jul 2026 12:00:00 GMT",
	} {
		if unix, ok := Date([]byte(text)); ok || unix != 0 {
			t.Errorf("%q is a date: %d", text, unix)
		}
	}
	if n := testing.AllocsPerRun(10, func() { Date([]byte("Wed, 01 Jul 2026 12:00:00 GMT")) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzControl: any value of Cache-Control is read to its end, and a list of well-formed directives
// says the same behind it, unless a quote is open.
func FuzzControl(f *testing.F) {
	f.Add("max-age=60, public")
	f.Add(`private="a, \"b", =, no-cache`)
	f.Fuzz(func(t *testing.T, value string) {
		rest, n := []byte(value), 0
		for {
			before := len(rest)
			name, arg, more := nextDirective(rest)
			if rest = more; len(name) == 0 && len(rest) == 0 {
				break
			}
			if n++; len(rest) >= before || len(name)+len(arg) > before {
				t.Fatalf("%q: no progress at %d", value, before)
			}
		}
		a, _ := ask(nil, "Cache-Control: "+value)
		a.Use(0, &store.Meta{})
		if !strings.ContainsAny(value, `"`) {
			fields := ReadFields(headers("Cache-Control: " + value + ", no-store"))
			if !fields.noStore {
				t.Fatalf("%q hides no-store", value)
			}
		}
		for _, d := range []time.Duration{a.maxAge, a.minFresh, a.maxStale} {
			if d < unset || d > longest {
				t.Fatalf("%q: %d", value, d)
			}
		}
	})
}

// FuzzMatch: no list of tags and no date of a client ends in a panic.
func FuzzMatch(f *testing.F) {
	f.Add(`W/"a", "b"`, `"a"`, "Wed, 01 Jul 2026 12:00:00 GMT")
	f.Fuzz(func(t *testing.T, list, tag, date string) {
		a := Ask{ifNoneMatch: []byte(list)}
		a.NotModified([]byte(tag), nil)
		a = Ask{ifModifiedSince: []byte(date)}
		a.NotModified(nil, []byte(date+" "))
		if unix, ok := fixdate([]byte(date)); ok {
			if again, _ := Date([]byte(time.Unix(unix, 0).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"))); again != unix {
				t.Fatalf("%q", date)
			}
		}
	})
}
