package link

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

var testToken = Token{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, '\r', '\n', 13, 14, 0xff}

func TestStreamTransfer(t *testing.T) {
	const longest = (1<<63 - 1) / 1000 * 1000
	for name, c := range map[string]struct{ sent, want Stream }{
		"http":        {Stream{Kind: StreamHTTP}, Stream{Kind: StreamHTTP}},
		"opaque":      {Stream{Kind: StreamOpaque, TimeLeft: time.Second}, Stream{Kind: StreamOpaque, TimeLeft: time.Second}},
		"answer":      {Stream{StreamAnswer, 1500, testToken}, Stream{StreamAnswer, 2 * time.Microsecond, testToken}},
		"no token":    {Stream{StreamHTTP, 0, testToken}, Stream{Kind: StreamHTTP}},
		"too late":    {Stream{Kind: StreamHTTP, TimeLeft: -time.Second}, Stream{Kind: StreamHTTP, TimeLeft: time.Microsecond}},
		"no hurry":    {Stream{StreamAnswer, 1<<63 - 1, testToken}, Stream{StreamAnswer, longest, testToken}},
		"empty token": {Stream{Kind: StreamAnswer}, Stream{Kind: StreamAnswer}},
	} {
		t.Run(name, func(t *testing.T) {
			const rest = "GET / HTTP/1.1\r\n"
			sent := AppendStream(nil, &c.sent)
			splits(t, append(sent[:len(sent):len(sent)], rest...), func(t *testing.T, parts [][]byte) {
				h := newRecorder()
				r := readerOf(Acceptor, Settings{}, ReaderLimits{}, h)
				fed := 0
				for _, p := range parts {
					if err := r.Feed(p); err != nil {
						t.Fatal(err)
					}
					before := fed
					if fed += len(p); before < len(sent) && fed >= len(sent) {
						want := fmt.Sprintf("stream %+v %q", c.want, rest[:fed-len(sent)])
						if len(h.events) != 1 || h.events[0] != want {
							t.Fatalf("got %q, want %q", h.events, want)
						}
					}
				}
				if len(h.events) != 1 || r.Buffered() != 0 || r.Midway() {
					t.Errorf("%q, %d bytes buffered", h.events, r.Buffered())
				}
			})
		})
	}
}

// streamPreface returns a preface with any versions and contents.
func streamPreface(v versions, contents ...byte) []byte {
	b := append([]byte(magic), byte(streamRole), v.min, v.max, byte(len(contents)))
	return append(b, contents...)
}

func TestStreamPrefaces(t *testing.T) {
	v1 := versions{1, 1}
	answer := append([]byte{3, 0}, testToken[:]...)
	latest := binary.AppendUvarint([]byte{1}, 1<<64-1)
	for name, c := range map[string]struct {
		b      []byte
		want   error
		events []string
	}{
		"later dialer":         {streamPreface(versions{1, 2}, 1, 0), nil, []string{`stream {Kind:1 TimeLeft:0s Token:` + fmt.Sprint(Token{}) + `} ""`}},
		"longest time":         {streamPreface(v1, latest...), nil, []string{`stream {Kind:1 TimeLeft:2562047h47m16.854775s Token:` + fmt.Sprint(Token{}) + `} ""`}},
		"fields of the future": {streamPreface(v1, append(answer, 7, 7)...), nil, []string{`stream {Kind:3 TimeLeft:0s Token:` + fmt.Sprint(testToken) + `} ""`}},
		"much later dialer":    {streamPreface(versions{2, 3}, 1, 0), ErrVersion, nil},
		"version 0":            {streamPreface(versions{0, 0}, 1, 0), ErrVersion, nil},
		"nonsense":             {streamPreface(versions{2, 1}, 1, 0), ErrVersion, nil},
		"nothing":              {streamPreface(v1), ErrSettings, nil},
		"no time":              {streamPreface(v1, 1), ErrSettings, nil},
		"half a time":          {streamPreface(v1, 1, 0x80), ErrSettings, nil},
		"long form of a time":  {streamPreface(v1, 1, 0x80, 0), ErrSettings, nil},
		"no token":             {streamPreface(v1, 3, 0), ErrSettings, nil},
		"short token":          {streamPreface(v1, answer[:len(answer)-1]...), ErrSettings, nil},
		"too long":             {append(streamPreface(v1)[:7], 0x80), ErrSettings, nil},
		"kind 0":               {streamPreface(v1, 0, 0), ErrStreamKind, nil},
		"kind of the future":   {streamPreface(v1, 4, 0), ErrStreamKind, nil},
	} {
		t.Run(name, func(t *testing.T) {
			splits(t, c.b, func(t *testing.T, parts [][]byte) {
				h := newRecorder()
				r := readerOf(Acceptor, Settings{}, ReaderLimits{}, h)
				var err error
				for _, p := range parts {
					err = r.Feed(p)
				}
				if err != c.want || fmt.Sprint(h.events) != fmt.Sprint(c.events) || r.Buffered() != 0 && err == nil {
					t.Errorf("got %v, %q", err, h.events)
				}
				if again := r.Feed([]byte{0}); again != err || len(h.events) != len(c.events) {
					t.Errorf("then %v, %q", again, h.events)
				}
			})
		})
	}
}

// Only an acceptor accepts streams.
func TestStreamToDialer(t *testing.T) {
	h := newRecorder()
	r := readerOf(Dialer, Settings{Features: FeatureStreams}, ReaderLimits{}, h)
	if err := r.Feed(AppendStream(nil, &Stream{Kind: StreamHTTP})); err != ErrRole || len(h.events) != 0 {
		t.Errorf("%v, %q", err, h.events)
	}
}

// newStreamLink returns both ends of a link whose dialer has features.
func newStreamLink(t testing.TB, features uint64) (d, a *side) {
	t.Helper()
	d, a = newSide(Dialer, Settings{Features: features}, ReaderLimits{}), newSide(Acceptor, Settings{}, ReaderLimits{})
	feed(t, a, d.w.Append(nil, 0))
	feed(t, d, a.w.Append(nil, 0))
	d.h.events = nil
	return d, a
}

func streamed(declared int64) *protocol.Response {
	return &protocol.Response{Status: 200, Reason: []byte("OK"), Headers: headers("content-type", "text/plain"),
		DeclaredLength: declared, StreamToken: testToken[:]}
}

// Every token arrives unchanged, is not interned, and aliases the buffer of the
// response.
func TestTokenTransfer(t *testing.T) {
	d, a := newStreamLink(t, FeatureStreams)
	var o owners
	for id := range uint64(4) {
		resp := streamed(int64(id) - 1)
		a.w.Response(id+1, resp, protocol.CodecHTTP, o.next())
		b := a.w.Append(nil, 1<<20)
		if bytes.Count(b, testToken[:]) != 1 {
			t.Fatalf("want the token exactly once: % x", b)
		}
		feed(t, d, b)
		clear(b) // it belongs to the caller again
		got := d.h.responses[id+1]
		if got == nil || !bytes.Equal(got.StreamToken, testToken[:]) || showResponse(got, 0) != showResponse(resp, 0) {
			t.Fatalf("response %d: %+v", id+1, got)
		}
		buf := d.h.bufs[id].B
		if at := bytes.Index(buf, testToken[:]); at < 0 || &buf[at] != &got.StreamToken[0] || cap(got.StreamToken) != len(testToken) {
			t.Fatal("the token is a copy, or has spare capacity")
		}
	}
	for _, e := range d.r.names.entries {
		if bytes.Contains(e.text, testToken[:4]) {
			t.Errorf("interned: %q", e.text)
		}
	}
	if o.released != 4 {
		t.Errorf("released %d of 4", o.released)
	}
}

// The sender refuses a response whose token the dialer would not understand.
func TestTokenRefusedBySender(t *testing.T) {
	body, trailers, short := streamed(-1), streamed(-1), streamed(-1)
	body.Body = []byte("b")
	trailers.Trailers = headers("x-sum", "1")
	short.StreamToken = testToken[:15]
	for name, c := range map[string]struct {
		features uint64
		resp     *protocol.Response
	}{
		"old dialer":      {0, streamed(-1)},
		"other feature":   {^uint64(FeatureStreams), streamed(-1)},
		"body beside it":  {FeatureStreams, body},
		"trailers beside": {FeatureStreams, trailers},
		"short":           {FeatureStreams, short},
	} {
		t.Run(name, func(t *testing.T) {
			d, a := newStreamLink(t, c.features)
			var o owners
			a.w.Response(7, c.resp, protocol.CodecHTTP, o.next())
			exchange(t, d, a)
			if len(d.h.events) != 1 || d.h.events[0] != "refused 7 response_too_large" || o.released != 1 {
				t.Errorf("got %q, released %d", d.h.events, o.released)
			}
		})
	}
}

// tokenHead returns the head of a response with a token: flags are set in addition to
// the flag of the token, and rest follows the token.
func tokenHead(status uint64, flags byte, rest ...byte) []byte {
	b := binary.AppendUvarint([]byte{0, responseStream | flags}, status)
	return append(append(b, testToken[:]...), rest...)
}

func TestTokenRejectedByReader(t *testing.T) {
	good := tokenHead(200, 0, 0)
	for name, c := range map[string]struct {
		features uint64
		head     []byte
		body     string
		err      error
		events   []string
	}{
		"not asked for":   {0, good, "", nil, []string{"reject 1 malformed"}},
		"body beside it":  {FeatureStreams, good, "b", nil, []string{"reject 1 malformed"}},
		"trailers beside": {FeatureStreams, tokenHead(200, headTrailers, 0, 0), "", nil, []string{"reject 1 malformed"}},
		"interim":         {FeatureStreams, tokenHead(199, 0, 0), "", nil, []string{"reject 1 malformed"}},
		"no content":      {FeatureStreams, tokenHead(204, 0, 0), "", nil, []string{"reject 1 malformed"}},
		"not modified":    {FeatureStreams, tokenHead(304, 0, 0), "", nil, []string{"reject 1 malformed"}},
		"short":           {FeatureStreams, good[:len(good)-2], "", ErrHead, nil},
		"nothing behind":  {FeatureStreams, good[:len(good)-1], "", ErrHead, nil},
	} {
		t.Run(name, func(t *testing.T) {
			message := append(binary.AppendUvarint(nil, uint64(len(c.head))), c.head...)
			message = append(message, c.body...)
			frame := append(appendHeader(nil, uint8(frameResponse), 1, len(message)), message...)
			splits(t, frame, func(t *testing.T, parts [][]byte) {
				d, _ := newStreamLink(t, c.features)
				var err error
				for _, p := range parts {
					err = d.r.Feed(p)
				}
				if err != c.err || fmt.Sprint(d.h.events) != fmt.Sprint(c.events) || len(d.h.responses) != 0 {
					t.Errorf("got %v, %q", err, d.h.events)
				}
			})
		})
	}
}

// A response without a token clears the token of the structure that it is decoded into.
func TestTokenReset(t *testing.T) {
	d, a := newStreamLink(t, FeatureStreams)
	for id := range uint64(3) {
		resp := streamed(-1)
		if id > 0 {
			resp.StreamToken = nil
		}
		a.w.Response(id+1, resp, protocol.CodecHTTP, nil)
		exchange(t, d, a)
		d.r.limits.Scratch.Response.StreamToken = testToken[:] // as if the handler's structure had a token
	}
	for id, want := range []bool{true, false, false} {
		if got := d.h.responses[uint64(id+1)].StreamToken != nil; got != want {
			t.Errorf("response %d: token %t", id+1, got)
		}
	}
}
