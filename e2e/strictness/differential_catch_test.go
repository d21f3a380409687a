package strictness

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/corpus"
	"github.com/remora-proxy/remora/internal/eventually"
)

// wrongServer reads requests in one wrong way.
type wrongServer struct {
	readsBody bool                                            // otherwise a body is the next request
	sees      func(method, target, body string) (m, b string) // what the echo says
}

// serve responds to all requests on a connection.
func (w *wrongServer) serve(nc net.Conn) {
	for r := textproto.NewReader(bufio.NewReader(nc)); w.respond(nc, r) == nil; {
	}
}

func (w *wrongServer) respond(nc net.Conn, r *textproto.Reader) error {
	line, err := r.ReadLine()
	if err != nil {
		return err
	}
	headers, err := r.ReadMIMEHeader()
	if err != nil {
		return err
	}
	words := strings.Fields(line)
	if len(words) != 3 {
		return errors.New(line)
	}
	var body []byte
	if size, _ := strconv.Atoi(headers.Get("Content-Length")); w.readsBody && size > 0 {
		body = make([]byte, size)
		if _, err := io.ReadFull(r.R, body); err != nil {
			return err
		}
	}
	method, seen := w.sees(words[0], words[1], string(body))
	echo := formEcho(method, words[1], []byte(seen), "header", map[string][]string(headers))
	_, err = fmt.Fprintf(nc, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(echo), echo)
	return err
}

// TestDifferentialCatches sends cases to servers that read them wrongly. The suite must
// say so.
func TestDifferentialCatches(t *testing.T) {
	right := func(method, _, body string) (m, b string) { return method, body }
	const name = "0.CL: a length of a GET"
	for what, c := range map[string]struct {
		server  wrongServer
		verdict string
		err     string
	}{
		"nothing":                {wrongServer{true, right}, "", ""},
		"a body as a request":    {wrongServer{false, right}, "", "surplus"},
		"another method":         {wrongServer{true, func(_, _, body string) (m, b string) { return "DELETE", body }}, "another method", "another answer"},
		"a body without its end": {wrongServer{true, func(method, _, body string) (m, b string) { return method, body[:len(body)/2] }}, "another body", ""},
	} {
		t.Run(what, func(t *testing.T) {
			tap, err := startTap(harness.ServeTCP(t, c.server.serve))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(tap.close)
			addr := strictSidecars(t, tap.addr())["one hop"]
			r := differentialRun{tap: tap}
			found := map[string]bool{}
			for _, known := range differentialCases(t) {
				if known.Name == name {
					r.catch(t, addr, &known, found, c.err)
				}
			}
			if c.err == "" && (len(found) > 0 != (c.verdict != "") || c.verdict != "" && !found[c.verdict]) {
				t.Errorf("verdicts %v, want %q", found, c.verdict)
			}
		})
	}
}

// catch sends a case until the error contains want: what the server sends too much may
// arrive later. Without want, there must be none.
func (r *differentialRun) catch(t *testing.T, addr string, c *corpus.Case, found map[string]bool, want string) {
	if want == "" {
		if err := r.tell(addr, c, found); err != nil {
			t.Error(err)
		}
		return
	}
	eventually.Nil(t, "the case to be caught", func() error {
		if err := r.tell(addr, c, found); err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("%w instead of %q", err, want)
		}
		return nil
	})
}

func TestCheckFacts(t *testing.T) {
	got := []corpus.Message{{Fields: []corpus.Field{{Name: "A", Value: "b"}}}}
	for _, c := range []struct {
		part corpus.Part
		ok   bool
	}{
		{corpus.Part{Has: []corpus.Field{{Name: "a", Value: "b"}}, Lacks: []string{"B"}}, true},
		{corpus.Part{Has: []corpus.Field{{Name: "A", Value: "c"}}}, false},
		{corpus.Part{Has: []corpus.Field{{Name: "B", Value: ""}}}, false},
		{corpus.Part{Lacks: []string{"a"}}, false},
	} {
		if err := checkFacts(&corpus.Case{Parts: []corpus.Part{c.part}}, got); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.part, err)
		}
	}
}
