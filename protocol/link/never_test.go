package link

import (
	"bytes"
	"slices"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// neverIndexed returns headers of which those at some indices are never indexed.
func neverIndexed(hs []protocol.Header, at ...int) []protocol.Header {
	for _, i := range at {
		hs[i].NeverIndexed = true
	}
	return hs
}

// TestNeverIndexed: which fields no table may take arrives with each kind of message, also with the first that comes behind others.
func TestNeverIndexed(t *testing.T) {
	trace := vectorRequest().Headers[1:]
	some := func() []protocol.Header { return headers("a", "1", "b", "2", "accept", "3") }
	for name, c := range map[string]struct {
		target            bool
		headers, trailers []protocol.Header
	}{
		"none":             {false, some(), some()},
		"target":           {true, some(), nil},
		"target of all":    {true, nil, nil},
		"first header":     {false, neverIndexed(some(), 0), nil},
		"last header":      {false, neverIndexed(some(), 2), some()},
		"all headers":      {false, neverIndexed(some(), 0, 1, 2), nil},
		"trace":            {true, neverIndexed(slices.Concat(trace, some()), 0, 2), nil},
		"first trailer":    {false, some(), neverIndexed(some(), 0)},
		"trailers alone":   {false, nil, neverIndexed(some(), 1, 2)},
		"all":              {true, neverIndexed(some(), 0, 1, 2), neverIndexed(some(), 0, 1, 2)},
		"more than 1 byte": {false, neverIndexed(slices.Repeat(headers("a", "1"), 128), 100, 126, 127), neverIndexed(some(), 0, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			d, a := newLink(t, Settings{}, ReaderLimits{})
			same := func(got, want []protocol.Header) bool {
				return slices.EqualFunc(got, want, func(g, w protocol.Header) bool { return g.NeverIndexed == w.NeverIndexed && g.String() == w.String() })
			}
			for id := range uint64(3) {
				d.w.Request(id+1, &protocol.Request{Method: []byte("GET"), Path: []byte("/"), NeverIndexed: c.target, Headers: c.headers,
					Trailers: c.trailers}, 0, nil)
				a.w.Response(id+1, &protocol.Response{Status: 200, DeclaredLength: -1, Headers: c.headers, Trailers: c.trailers}, 0, nil)
				exchange(t, d, a)
				if req := a.h.requests[id+1]; req == nil || req.NeverIndexed != c.target || req.Hold != 0 || !same(req.Headers, c.headers) || !same(req.Trailers, c.trailers) {
					t.Errorf("request %+v", req)
				}
				if resp := d.h.responses[id+1]; resp == nil || !same(resp.Headers, c.headers) || !same(resp.Trailers, c.trailers) {
					t.Errorf("response %+v", resp)
				}
			}
		})
	}
}

// TestNeverIndexedInterim is TestNeverIndexed for interim responses.
func TestNeverIndexedInterim(t *testing.T) {
	w := NewWriter()
	w.Preface(Acceptor, Settings{})
	w.Open(1, Settings{})
	w.Interim(1, &protocol.Response{Status: 103, Headers: neverIndexed(headers("link", "</a>", "b", "c"), 1)})
	h := &interims{recorder: newRecorder()}
	if err := readerOf(Dialer, Settings{}, ReaderLimits{}, h).Feed(w.Append(nil, 1<<20)); err != nil || len(h.headers) != 2 || h.headers[0].NeverIndexed || !h.headers[1].NeverIndexed {
		t.Errorf("%v: %+v", err, h.headers)
	}
}

// interims keeps the headers of the last interim response.
type interims struct {
	*recorder
	headers []protocol.Header
}

func (h *interims) OnInterim(_ uint64, resp *protocol.Response) {
	h.headers = slices.Clone(resp.Headers)
}

// TestNeverIndexedLiteral: the text of a field that is never indexed enters no table of the link.
func TestNeverIndexedLiteral(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	for id := range uint64(5) {
		d.w.Request(id+1, &protocol.Request{Method: []byte("SECRETMETHOD"), Path: []byte("/"), Authority: []byte("secret.host"), NeverIndexed: true,
			Headers: neverIndexed(headers("accept", "secret/value"), 0)}, 0, nil)
		b := d.w.Append(nil, 1<<20)
		if n := bytes.Count(b, []byte("secret")) + bytes.Count(b, []byte("SECRET")); n != 3 {
			t.Errorf("request %d: %q", id+1, b)
		}
		feed(t, a, b)
	}
	for _, e := range a.r.names.entries {
		if bytes.Contains(bytes.ToLower(e.text), []byte("secret")) {
			t.Errorf("%q is in the table", e.text)
		}
	}
}

// TestNeverIndexedErrors: which lists end a link.
func TestNeverIndexedErrors(t *testing.T) {
	request := []byte{0, 0, 0, 0, 0, 2, 'G', 2, '/', 0, 1, 2, 'a', 2, 'b', 0} // with one header and no hold
	response := []byte{0, 0, 0xc8, 1, 1, 2, 'a', 2, 'b'}
	for name, c := range map[string]struct {
		role Role
		head []byte
		list []byte
		want error
	}{
		"empty":                  {Acceptor, request, []byte{0}, nil},
		"target":                 {Acceptor, request, []byte{1, 0}, nil},
		"header":                 {Acceptor, request, []byte{1, 1}, nil},
		"both":                   {Acceptor, request, []byte{2, 0, 1}, nil},
		"bytes behind":           {Acceptor, request, []byte{1, 1, 9, 9}, nil},
		"too high":               {Acceptor, request, []byte{1, 2}, ErrHead},
		"far too high":           {Acceptor, request, []byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, ErrHead},
		"twice":                  {Acceptor, request, []byte{2, 1, 1}, ErrHead},
		"target twice":           {Acceptor, request, []byte{2, 0, 0}, ErrHead},
		"falling":                {Acceptor, request, []byte{2, 1, 0}, ErrHead},
		"cut":                    {Acceptor, request, []byte{1}, ErrHead},
		"cut behind the first":   {Acceptor, request, []byte{2, 0}, ErrHead},
		"count without end":      {Acceptor, request, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, ErrHead},
		"response":               {Dialer, response, []byte{1, 1}, nil},
		"response, too high":     {Dialer, response, []byte{1, 2}, ErrHead},
		"response with a target": {Dialer, response, []byte{1, 0}, ErrHead},
	} {
		t.Run(name, func(t *testing.T) {
			d, a := newLink(t, Settings{}, ReaderLimits{})
			side, typ := a, frameRequest
			if c.role == Dialer {
				side, typ = d, frameResponse
			}
			head := slices.Concat(c.head, c.list)
			b := append(appendHeader(nil, uint8(typ), 1, len(head)+1), byte(len(head)))
			if err := side.r.Feed(append(b, head...)); err != c.want {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}
