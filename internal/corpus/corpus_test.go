package corpus

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// readText reads a file of requests or responses with this text.
func readText(t *testing.T, kind, text string) ([]Case, error) {
	t.Helper()
	dir := t.TempDir()
	must.WriteFile(t, filepath.Join(dir, kind+"-a.txt"), text)
	if kind == "requests" {
		return Requests(os.DirFS(dir))
	}
	return Responses(os.DirFS(dir))
}

func TestRequests(t *testing.T) {
	got, err := readText(t, "requests", `# A comment.
case two
clause 9112 9.3
each a \x00\s
> GET /{} HTTP/1.1
>
= GET /{} - last "x{}\\"
+ \{2*ab\r}\n
! 400 bad-request-line
`)
	want := []Case{
		{Name: "two a", Where: "requests-a.txt:2", Clause: "9112 9.3", Method: "GET", Parts: []Part{
			{Bytes: []byte("GET /a HTTP/1.1\r\n\r\n"), Verdict: Accepted, Method: "GET", Target: "/a", Last: true, Body: `xa\`},
			{Bytes: []byte("ab\rab\r\n"), Verdict: Refused, Status: 400, Code: "bad-request-line", Failure: "bad-request-line"},
		}},
		{Name: `two \x00\s`, Where: "requests-a.txt:2", Clause: "9112 9.3", Method: "GET", Parts: []Part{
			{Bytes: []byte("GET /\x00  HTTP/1.1\r\n\r\n"), Verdict: Accepted, Method: "GET", Target: "/\x00 ", Last: true, Body: "x\x00 \\"},
			{Bytes: []byte("ab\rab\r\n"), Verdict: Refused, Status: 400, Code: "bad-request-line", Failure: "bad-request-line"},
		}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v\ngot  %+v\nwant %+v", err, got, want)
	}
	if got[0].Open() || len(got[0].Of(Refused)) != 1 || string(got[0].Bytes()) != "GET /a HTTP/1.1\r\n\r\nab\rab\r\n" {
		t.Errorf("%+v", got[0])
	}
}

func TestResponses(t *testing.T) {
	got, err := readText(t, "responses", `case a
clause 9112 6.3
to HEAD
closes
> HTTP/1.1 200 OK
>
= 200
+ x
-
case b
clause 9112 6.3
+ y
! 502 upstream-malformed bad-status-line
`)
	want := []Case{
		{Name: "a", Where: "responses-a.txt:1", Clause: "9112 6.3", Method: "HEAD", Closes: true, Parts: []Part{
			{Bytes: []byte("HTTP/1.1 200 OK\r\n\r\n"), Verdict: Accepted, Status: 200},
			{Bytes: []byte("x"), Verdict: Ignored},
		}},
		{Name: "b", Where: "responses-a.txt:10", Clause: "9112 6.3", Method: "GET", Parts: []Part{
			{Bytes: []byte("y"), Verdict: Refused, Status: 502, Code: "bad-status-line", Failure: "upstream-malformed"},
		}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v\ngot  %+v\nwant %+v", err, got, want)
	}
}

// TestMistakes checks that incomplete cases, and cases with invisible characters, are
// refused.
func TestMistakes(t *testing.T) {
	for what, text := range map[string]string{
		"not in a case":          "> GET\n",
		"blanks that can't":      "case a\nclause 9112 3\n> GET \n?\n",
		"no clause":              "case a\n> GET\n?\n",
		"number of an RFC":       "case a\nclause three\n> GET\n?\n",
		"without a verdict":      "case a\nclause 9112 3\n> GET\n",
		"second case":            "case a\nclause 9112 3\n> GET\n?\ncase a\nclause 9112 3\n> GET\n?\n",
		"unknown line":           "case a\nclause 9112 3\n> GET\nrefused\n",
		"unknown escape":         "case a\nclause 9112 3\n> \\q\n?\n",
		"a status and codes":     "case a\nclause 9112 3\n> GET\n! 400\n",
		"method, target and hos": "case a\nclause 9112 3\n> GET\n= GET /\n",
	} {
		if _, err := readText(t, "requests", text); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%q: %v, want %q", text, err, what)
		}
	}
}
