package http2

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/protocol"
)

// outcomes is a Handler that writes down what happens.
type outcomes struct {
	reuser
	all []string
}

func (o *outcomes) note(format string, args ...any) {
	o.all = append(o.all, fmt.Sprintf(format, args...))
}

func (o *outcomes) ended(st *Stream, end bool) {
	if end {
		o.note("end %d", st.ID())
	}
}

func (o *outcomes) OnRequest(st *Stream, end bool) {
	o.note("request %d", st.ID())
	o.ended(st, end)
}

func (o *outcomes) NewResponse(st *Stream) (*protocol.Response, *bytebufferpool.ByteBuffer) {
	return o.reuser.NewResponse(st)
}

func (o *outcomes) OnResponse(st *Stream, end bool) {
	o.note("response %d", st.ID())
	o.ended(st, end)
}
func (o *outcomes) OnOversize(st *Stream)                      { o.note("oversize %d", st.ID()) }
func (o *outcomes) OnData(st *Stream, _ []byte, end bool)      { o.ended(st, end) }
func (o *outcomes) OnTrailers(st *Stream, _ []protocol.Header) { o.ended(st, true) }
func (o *outcomes) OnReset(st *Stream, code Code, why *Error) {
	if why == nil {
		o.note("reset %d", st.ID())
	} else {
		o.note("reset %d %s", st.ID(), why.Reason)
	}
}

// serve feeds wire to a server, or to a client with a GET and a HEAD, in pieces of n bytes. It returns what happens.
func serve(o Options, client bool, wire []byte, n int) []string {
	h := &outcomes{}
	h.Conn = newConn(client, &o, h)
	if client {
		for _, method := range []string{"GET", "HEAD"} {
			h.Request(&protocol.Request{Method: []byte(method), Path: []byte("/"), Authority: []byte("h")}, "http", nil)
		}
	} else {
		wire = append([]byte(Preface), wire...)
	}
	h.Output(1 << 20)
	for piece := range slices.Chunk(wire, n) {
		if err := h.Feed(piece); err != nil {
			h.note("conn %s", err.(*Error).Reason)
			break
		}
	}
	for out := h.Output(1 << 20); len(out) >= frameHead; {
		f := parseFrame(out)
		if f.typ == framePing && f.has(flagAck) {
			h.note("pong")
		}
		if f.typ == frameRSTStream && !client && !strings.Contains(strings.Join(h.all, ","), fmt.Sprint("request ", f.id)) {
			h.note("refused %d %d", f.id, out[frameHead+3])
		}
		out = out[frameHead+f.length:]
	}
	return h.all
}

// TestFrames runs the vectors, whole, by bytes and by other pieces.
func TestFrames(t *testing.T) {
	text := must.ReadFile(t, "testdata/frames.txt")
	name, client, cases := "", false, 0
	var wire []byte
	for line := range strings.SplitSeq(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		key, rest, _ := strings.Cut(line, " ")
		switch key {
		case "":
		case "case":
			name, client, wire = rest, false, nil
		case "client":
			client = true
		case "want":
			cases++
			for _, n := range []int{1 << 20, 1, 7, 30} {
				got := serve(Options{Streams: 2, Limits: protocol.Limits{Header: 1000, Headers: 10}}, client, wire, n)
				if s := strings.Join(got, ", "); s != strings.TrimSpace(rest) {
					t.Errorf("%s, by %d: %s, want %s", name, n, s, rest)
				}
			}
		default:
			b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(line), " ", ""))
			if err != nil {
				t.Fatal(name, err)
			}
			wire = append(wire, b...)
		}
	}
	if cases < 90 {
		t.Errorf("%d cases", cases)
	}
}

// TestPrefaceRefused: a server refuses a client at the first byte that is not of the preface.
func TestPrefaceRefused(t *testing.T) {
	for at := range len(Preface) {
		wire := []byte(Preface)
		wire[at] ^= 1
		for n := 1; n <= len(wire); n++ {
			p := newServer(t, Options{})
			var err error
			for piece := range slices.Chunk(wire, n) {
				if err = p.c.Feed(piece); err != nil {
					break
				}
			}
			if err != error(ErrPreface) {
				t.Errorf("byte %d, by %d: %v", at, n, err)
			}
		}
		p := newServer(t, Options{})
		if err := p.c.Feed(wire[:at]); err != nil || p.c.Feed(wire[at:at+1]) == nil {
			t.Errorf("byte %d: %v before it", at, err)
		}
	}
}
