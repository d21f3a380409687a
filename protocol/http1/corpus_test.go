package http1

import (
	"bytes"
	"embed"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/corpus"
	"github.com/remora-proxy/remora/protocol"
)

var corpusLimits = &protocol.Limits{Header: corpus.HeaderLimit, Headers: corpus.HeadersLimit, Message: corpus.MessageLimit}

// corpusFiles has the corpus in the program, which may run without the repository to fuzz.
//
//go:embed testdata/*.txt
var corpusFiles embed.FS

func corpusFolder(tb testing.TB) fs.FS {
	tb.Helper()
	dir, err := fs.Sub(corpusFiles, "testdata")
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

func corpusRequests(tb testing.TB) []corpus.Case {
	tb.Helper()
	cases, err := corpus.Requests(corpusFolder(tb))
	if err != nil || len(cases) < 300 {
		tb.Fatalf("%d requests, %v", len(cases), err)
	}
	return cases
}

func corpusResponses(tb testing.TB) []corpus.Case {
	tb.Helper()
	cases, err := corpus.Responses(corpusFolder(tb))
	if err != nil || len(cases) < 100 {
		tb.Fatalf("%d responses, %v", len(cases), err)
	}
	return cases
}

// TestCorpusRequests checks that the decoder treats each request of the corpus as
// the corpus demands, to the byte, however the input is split.
func TestCorpusRequests(t *testing.T) {
	for i, c := range corpusRequests(t) {
		t.Run(c.Name, func(t *testing.T) {
			in := c.Bytes()
			for _, p := range c.Parts {
				if p.Verdict == corpus.Ignored {
					return
				}
				o := (feeder{lim: corpusLimits}).feedAll(t, followed(in, p.Verdict, rest), uint64(i))
				checkVerdict(t, &c, &p, o)
				if line := p.Method + "|" + p.Target + "|" + p.Host + "|"; p.Verdict == corpus.Accepted && !strings.HasPrefix(o.head, line) {
					t.Errorf("%s: decoded %q, want %q", c.Where, o.head, line)
				}
				if keeps := slices.Contains(strings.Fields(o.flags), "keep"); p.Verdict == corpus.Accepted && p.Method != "CONNECT" && keeps == p.Last {
					t.Errorf("%s: the connection persists: %v", c.Where, keeps)
				}
				in = in[len(p.Bytes):]
			}
		})
	}
}

// TestCorpusResponses does the same for responses.
func TestCorpusResponses(t *testing.T) {
	for i, c := range corpusResponses(t) {
		t.Run(c.Name, func(t *testing.T) {
			in := c.Bytes()
			for _, p := range c.Parts {
				if p.Verdict == corpus.Ignored {
					return
				}
				f := feeder{response: true, toHead: c.Method == "HEAD", eof: c.Closes, lim: corpusLimits}
				said := in
				if !c.Closes {
					said = followed(in, p.Verdict, nextResponse)
				}
				o := f.feedAll(t, said, uint64(i))
				checkVerdict(t, &c, &p, o)
				if status := strconv.Itoa(p.Status) + " "; p.Verdict == corpus.Accepted && !strings.HasPrefix(o.head, status) {
					t.Errorf("%s: decoded %q, want %s", c.Where, o.head, status)
				}
				in = in[len(p.Bytes):]
			}
		})
	}
}

// followed returns in, with next appended if in is a complete message. The decoder
// must not touch next.
func followed(in []byte, v corpus.Verdict, next string) []byte {
	if v != corpus.Accepted {
		return in
	}
	return append(bytes.Clone(in), next...)
}

// checkVerdict compares the decoder's result for a part with the verdict of the part.
func checkVerdict(t *testing.T, c *corpus.Case, p *corpus.Part, o outcome) {
	t.Helper()
	var refused *Error
	switch {
	case p.Verdict == corpus.Accepted:
		if o.err != nil || o.used != len(p.Bytes) || o.body != p.Body {
			t.Errorf("%s: %v, %d bytes used of %d, body %q\n%q", c.Where, o.err, o.used, len(p.Bytes), o.body, p.Bytes)
		}
	case p.Verdict == corpus.Incomplete:
		if o.err != ErrIncomplete {
			t.Errorf("%s: %v, want ErrIncomplete\n%q", c.Where, o.err, p.Bytes)
		}
	case p.Code == "-": // refused by the session, not by the decoder
		if o.err != nil {
			t.Errorf("%s: %v\n%q", c.Where, o.err, p.Bytes)
		}
	case p.Code == ErrTruncated.Code && o.err == ErrIncomplete: // the head is not complete
	case !errors.As(o.err, &refused) || refused.Code != p.Code || p.Failure == p.Code && refused.Status != p.Status:
		t.Errorf("%s: %v, want %d %s\n%q", c.Where, o.err, p.Status, p.Code, p.Bytes)
	}
}
