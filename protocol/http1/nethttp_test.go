package http1

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// The differential targets compare the decoder with net/http, which is more lenient.
// Net/http must accept all input that the decoder accepts, with the same result up to the
// same byte. Known harmless differences have a comment where they are allowed.

// FuzzRequestVsNetHTTP compares requests.
func FuzzRequestVsNetHTTP(f *testing.F) {
	seedRequests(f, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, in []byte) { compareRequest(t, in) })
}

// compareRequest reports whether in was accepted and compared.
func compareRequest(t *testing.T, in []byte) bool {
	o := (feeder{lim: testLimits}).feed(t, in, nil)
	if o.err != nil {
		return false
	}
	req, h := decodeRequest(t, in, testLimits)
	// net/http does not skip an empty line before the request; RFC 9112
	// section 2.2 says a server should.
	br := bufio.NewReaderSize(bytes.NewReader(bytes.TrimPrefix(in, []byte("\r\n"))), 1<<16)
	r, err := http.ReadRequest(br)
	if err != nil {
		if !targetRefused(req, in) && !trailerRefused(req.Headers) {
			t.Fatalf("net/http refuses %q: %v", in, err)
		}
		return true
	}
	if want := originForm(r.RequestURI, req); want != string(req.Path) {
		t.Fatalf("target of %q: %q, net/http %q", in, req.Path, r.RequestURI)
	}
	// net/http decodes percent-escapes in the host of an absolute-form.
	if r.Host != string(req.Authority) && !strings.Contains(string(req.Authority), "%") {
		t.Fatalf("host of %q: %q, net/http %q", in, req.Authority, r.Host)
	}
	if r.Method != string(req.Method) || r.ProtoMinor != h.Minor || r.Close == h.KeepAlive {
		t.Fatalf("%q: %+v, net/http %+v", in, h, r)
	}
	compareHeaders(t, in, req.Headers, r.Header, true)
	compareBody(t, in, o, r.Body, br)
	compareTrailers(t, in, req.Trailers, r.Trailer)
	return true
}

// originForm returns the origin-form of the target that net/http decoded.
func originForm(target string, req *protocol.Request) string {
	switch {
	case string(req.Method) == "CONNECT":
		return ""
	case target[0] == '/' || target == "*":
		return target
	}
	_, rest, _ := strings.Cut(target, "://")
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		return "/" + strings.TrimPrefix(rest[i:], "/")
	}
	if string(req.Method) == "OPTIONS" {
		return "*"
	}
	return "/"
}

// targetRefused reports whether net/http refuses the target. It parses the target as
// a URL, so it refuses some that are forwarded unparsed, such as "/%zz". The end of
// a target does not depend on that.
func targetRefused(req *protocol.Request, in []byte) bool {
	line, _, _ := bytes.Cut(bytes.TrimPrefix(in, []byte("\r\n")), []byte("\r\n"))
	target := strings.Split(string(line), " ")[1]
	if string(req.Method) == "CONNECT" {
		target = "http://" + target
	}
	_, err := url.ParseRequestURI(target)
	return err != nil
}

// trailerRefused reports whether hs has a Trailer field. net/http refuses one that
// announces framing fields; for the decoder it is only a hint.
func trailerRefused(hs []protocol.Header) bool {
	return slices.ContainsFunc(hs, func(h protocol.Header) bool { return protocol.EqualFold(h.Name, "trailer") })
}

// FuzzResponseVsNetHTTP compares responses.
func FuzzResponseVsNetHTTP(f *testing.F) {
	seedResponses(f, func(b []byte, toHead bool) { f.Add(b, toHead) })
	f.Fuzz(func(t *testing.T, in []byte, toHead bool) { compareResponse(t, in, toHead) })
}

// compareResponse reports whether in was accepted and compared.
func compareResponse(t *testing.T, in []byte, toHead bool) bool {
	o := (feeder{response: true, toHead: toHead, eof: true, lim: testLimits}).feed(t, in, nil)
	if o.err != nil {
		return false
	}
	var resp protocol.Response
	var h Head
	n, err := DecodeResponse(in, toHead, &resp, &h, testLimits)
	if err != nil {
		t.Fatal(err)
	}
	_, resp.Trailers = decodeBody(t, in[n:], &h, testLimits)
	method := "GET"
	if toHead {
		method = "HEAD"
	}
	br := bufio.NewReaderSize(bytes.NewReader(in), 1<<16)
	r, err := http.ReadResponse(br, &http.Request{Method: method})
	if err != nil {
		if !trailerRefused(resp.Headers) {
			t.Fatalf("net/http refuses %q: %v", in, err)
		}
		return true
	}
	_, reason, _ := strings.Cut(r.Status, " ")
	if r.StatusCode != resp.Status || strings.TrimSpace(reason) != strings.TrimSpace(string(resp.Reason)) || r.ProtoMinor != h.Minor {
		t.Fatalf("%q: %d %q, net/http %q", in, resp.Status, resp.Reason, r.Status)
	}
	// The opposite is allowed: the decoder closes after a 204 that declares a body.
	if h.KeepAlive && r.Close {
		t.Fatalf("%q: kept alive, net/http closes", in)
	}
	compareHeaders(t, in, resp.Headers, r.Header, false)
	compareBody(t, in, o, r.Body, br)
	compareTrailers(t, in, resp.Trailers, r.Trailer)
	return true
}

// compareHeaders checks that both have the same values in the same order per name.
func compareHeaders(t *testing.T, in []byte, ours []protocol.Header, theirs http.Header, request bool) {
	byName := http.Header{}
	for _, h := range ours {
		name := textproto.CanonicalMIMEHeaderKey(string(h.Name))
		byName[name] = append(byName[name], string(h.Value))
	}
	for name, values := range byName {
		if name == "Trailer" && theirs[name] == nil {
			continue // net/http removes it if the coding is chunked
		}
		if name == "Host" && request {
			t.Fatalf("%q: Host among the headers", in)
		}
		if !slices.Equal(values, theirs[name]) {
			t.Fatalf("%q: %s: %q, net/http %q", in, name, values, theirs[name])
		}
	}
	for name := range maps.Keys(theirs) {
		k := kindOf([]byte(name))
		switch {
		case byName[name] != nil:
		case k != endToEnd && (request || k != fieldHost && k != fieldExpect):
		case name == "Cache-Control" && byName["Pragma"] != nil: // net/http derives it from Pragma
		case nominatedIn(in, name) && !protected([]byte(name)):
		default:
			t.Fatalf("%q: %s is missing", in, name)
		}
	}
}

// nominatedIn reports whether in nominates name. It reads the input itself, because
// net/http deletes Connection from a response that has "close" in it.
func nominatedIn(in []byte, name string) bool {
	for _, m := range connectionLine.FindAllSubmatch(in, -1) {
		for option := range strings.SplitSeq(string(m[1]), ",") {
			if strings.EqualFold(strings.Trim(option, " \t"), name) {
				return true
			}
		}
	}
	return false
}

var connectionLine = regexp.MustCompile(`(?im)^connection:([^\r\n]*)`)

var blankBeforeExtension = regexp.MustCompile("[0-9A-Fa-f][ \t]+;")

// compareBody checks that both have the same body, and the same bytes after it.
func compareBody(t *testing.T, in []byte, o outcome, body io.ReadCloser, br *bufio.Reader) {
	b, err := io.ReadAll(body)
	if err != nil {
		// net/http does not accept white space between a chunk size and an
		// extension, as RFC 9112 section 7.1.1 demands of recipients.
		if blankBeforeExtension.Match(in) {
			return
		}
		t.Fatalf("net/http refuses the body of %q: %v", in, err)
	}
	left, err := io.ReadAll(br)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != o.body || string(left) != string(in[o.used:]) {
		t.Fatalf("%q: body %q left %q, net/http %q left %q", in, o.body, in[o.used:], b, left)
	}
}

// compareTrailers checks that net/http has the same trailers; it keeps others, too.
func compareTrailers(t *testing.T, in []byte, ours []protocol.Header, theirs http.Header) {
	byName := http.Header{}
	for _, h := range ours {
		name := textproto.CanonicalMIMEHeaderKey(string(h.Name))
		byName[name] = append(byName[name], string(h.Value))
	}
	for name, values := range byName {
		if !slices.Equal(values, theirs[name]) {
			t.Fatalf("%q: trailer %s: %q, net/http %q", in, name, values, theirs[name])
		}
	}
}
