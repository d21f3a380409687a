package link

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// TestInterimDropped: a Writer drops an interim response that does not fit into a frame, and a Reader one
// that must not be passed on. The link goes on.
func TestInterimDropped(t *testing.T) {
	long := func(n int) []protocol.Header { return headers("x", strings.Repeat("y", n)) }
	for _, c := range []struct {
		name string
		resp protocol.Response
		want string // the event
	}{
		{"fits", protocol.Response{Status: 103, Headers: long(maxWhole - headerRoom - 7)}, "interim 1 codec=0 status=103"},
		{"does not fit", protocol.Response{Status: 103, Headers: long(maxWhole - headerRoom - 6)}, ""},
		{"least", protocol.Response{Status: 100}, "interim 1 codec=0 status=100"},
		{"most", protocol.Response{Status: 199}, "interim 1 codec=0 status=199"},
		{"final status", protocol.Response{Status: 200}, ""},
		{"switch", protocol.Response{Status: 101}, ""},
		{"below", protocol.Response{Status: 99}, ""},
		{"no token", protocol.Response{Status: 103, Headers: headers("a b", "c")}, ""},
		{"line break", protocol.Response{Status: 103, Headers: headers("a", "b\nc")}, ""},
		{"headers", protocol.Response{Status: 103, Headers: slices.Repeat(headers("a", "b"), 129)}, ""},
		{"traceparent", protocol.Response{Status: 103, Headers: vectorRequest().Headers[1:]}, "interim 1 codec=0 status=103"},
	} {
		w, h := NewWriter(), newRecorder()
		r := readerOf(Dialer, Settings{}, ReaderLimits{}, h)
		w.Preface(Acceptor, Settings{})
		w.Open(1, Settings{})
		w.Interim(1, &c.resp)
		w.Response(2, &protocol.Response{Status: 200, DeclaredLength: -1}, protocol.CodecHTTP, nil)
		if err := r.Feed(w.Append(nil, 1<<20)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		got, _, next := strings.Cut(strings.Join(h.events[1:], ";"), "response 2")
		if !next || !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %.80s, want %s", c.name, got, c.want)
		}
	}
}

// TestInterimErrors: which interim responses end a link.
func TestInterimErrors(t *testing.T) {
	head := func(b ...byte) []byte { return append(appendHeader(nil, uint8(frameInterim), 1, len(b)), b...) }
	for _, c := range []struct {
		name  string
		role  Role
		frame []byte
		want  *Error
	}{
		{"from the dialer", Acceptor, head(103, 0), ErrRole},
		{"without a request", Dialer, appendHeader(nil, uint8(frameInterim), 0, 0), ErrStreamID},
		{"within its response", Dialer, append([]byte{byte(frameResponse) | flagMore, 1, 4, 100, 2, 0, 0}, head(103, 0)...), ErrStreamID},
		{"cut off", Dialer, head(103), ErrHead},
		{"a name that was never defined", Dialer, head(103, 1, 5, 0), ErrIndex},
	} {
		other := map[Role]Role{Dialer: Acceptor, Acceptor: Dialer}[c.role]
		r := readerOf(c.role, Settings{}, ReaderLimits{}, newRecorder())
		preface := appendPreface(nil, other, versions{1, 1}, Settings{}.withDefaults())
		if err := r.Feed(bytes.Join([][]byte{preface, c.frame}, nil)); err != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// TestInterimOrder: an interim response leaves ahead of its response, and is dropped with it or alone.
func TestInterimOrder(t *testing.T) {
	w, h := NewWriter(), newRecorder()
	r := readerOf(Dialer, Settings{}, ReaderLimits{}, h)
	w.Preface(Acceptor, Settings{})
	w.Open(1, Settings{})
	for id := range uint64(3) {
		w.Interim(id+1, &protocol.Response{Status: 103})
		w.Response(id+1, &protocol.Response{Status: 200, Body: make([]byte, 1000*id), DeclaredLength: -1}, protocol.CodecHTTP, nil)
	}
	w.Drop(2)
	if err := r.Feed(w.Append(nil, 1<<20)); err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, e := range h.events[1:] {
		order = append(order, fmt.Sprint(strings.Fields(e)[:2]))
	}
	if got, want := strings.Join(order, " "), "[interim 1] [response 1] [interim 2] [interim 3] [response 3]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestReaderReleasesMessages: a Reader keeps no memory of a message that it has passed on or refused.
func TestReaderReleasesMessages(t *testing.T) {
	trace := vectorRequest().Headers[1:]
	d, a := newLink(t, Settings{}, ReaderLimits{})
	for _, c := range []struct {
		want string // the event
		to   *side
		send func()
	}{
		{"request 1", a, func() {
			d.w.Request(1, &protocol.Request{Method: []byte("GET"), Path: []byte("/"), Headers: trace}, 0, nil)
		}},
		{"reject 2", a, func() {
			d.w.Request(2, &protocol.Request{Method: []byte("G T"), Path: []byte("/"), Headers: trace}, 0, nil)
		}},
		{"interim 1", d, func() { a.w.Interim(1, &protocol.Response{Status: 103, Headers: trace}) }},
		{"response 1", d, func() { a.w.Response(1, &protocol.Response{Status: 200, DeclaredLength: -1, Headers: trace}, 0, nil) }},
	} {
		c.send()
		exchange(t, d, a)
		if got := strings.Join(c.to.h.events, ";"); !strings.HasPrefix(got, c.want+" ") {
			t.Errorf("%q, want %s", got, c.want)
		}
		if cursor := &c.to.r.cursor; cursor.b != nil || cursor.trace != nil {
			t.Errorf("%s: the Reader keeps %q and %q", c.want, cursor.b, cursor.trace)
		}
		c.to.h.events = nil
	}
}
