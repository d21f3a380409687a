package http2

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/remora-proxy/remora/protocol"
)

// abuse is something that a client does again and again.
var abuse = []struct {
	name string
	o    Floods
	do   func(l *library, i int)
	want *Error
}{
	{"rapid reset", Floods{Resets: 20}, func(l *library, i int) {
		l.headers(uint32(2*i+1), true, ":method: GET", ":scheme: http", ":path: /", ":authority: h")
		l.WriteRSTStream(uint32(2*i+1), xhttp2.ErrCodeCancel)
	}, ErrResets},
	{"made you reset", Floods{Provoked: 20}, func(l *library, i int) {
		l.headers(uint32(2*i+1), false, ":method: GET", ":scheme: http", ":path: /", ":authority: h")
		l.AllowIllegalWrites = true
		l.WriteWindowUpdate(uint32(2*i+1), 0)
	}, ErrProvoked},
	{"rapid reset behind DATA", Floods{Resets: 20}, func(l *library, i int) {
		l.headers(uint32(2*i+1), false, ":method: POST", ":scheme: http", ":path: /", ":authority: h")
		l.WriteData(uint32(2*i+1), false, []byte("x"))
		l.WriteRSTStream(uint32(2*i+1), xhttp2.ErrCodeCancel)
	}, ErrResets},
	{"made you reset by DATA", Floods{Provoked: 20}, func(l *library, i int) {
		l.headers(uint32(2*i+1), false, ":method: POST", ":scheme: http", ":path: /", ":authority: h", "content-length: 1")
		l.WriteData(uint32(2*i+1), true, []byte("xx"))
	}, ErrProvoked},
	{"malformed requests", Floods{Provoked: 20}, func(l *library, i int) {
		l.headers(uint32(2*i+1), true, ":method: GET", "a: b")
	}, ErrProvoked},
	{"PING", Floods{Pings: 20}, func(l *library, _ int) { l.WritePing(false, [8]byte{1}) }, ErrPings},
	{"SETTINGS", Floods{Settings: 20}, func(l *library, _ int) {
		l.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingHeaderTableSize, Val: 0})
	}, ErrSettingsFlood},
	{"empty SETTINGS", Floods{Others: 20}, func(l *library, _ int) { l.WriteSettings() }, ErrOthers},
	{"SETTINGS ACK of nothing", Floods{Settings: 20}, func(l *library, _ int) { l.WriteSettingsAck() }, ErrSettingsFlood},
	{"empty DATA", Floods{EmptyData: 20}, func(l *library, i int) {
		if i == 0 {
			l.headers(1, false, ":method: POST", ":scheme: http", ":path: /", ":authority: h")
		}
		l.WriteData(1, false, nil)
	}, ErrEmptyData},
	{"padding without data", Floods{EmptyData: 20}, func(l *library, i int) {
		if i == 0 {
			l.headers(1, false, ":method: POST", ":scheme: http", ":path: /", ":authority: h")
		}
		l.WriteDataPadded(1, false, nil, make([]byte, 9))
	}, ErrEmptyData},
	{"WINDOW_UPDATE", Floods{Others: 20}, func(l *library, _ int) { l.WriteWindowUpdate(0, 1) }, ErrOthers},
	{"PRIORITY", Floods{Others: 20}, func(l *library, i int) {
		l.WritePriority(uint32(2*i+1), xhttp2.PriorityParam{StreamDep: 0})
	}, ErrOthers},
	{"RST_STREAM of a stream that is over", Floods{Others: 20}, func(l *library, i int) {
		if i == 0 {
			l.headers(1, true, ":method: GET", ":scheme: http", ":path: /", ":authority: h")
		}
		l.WriteRSTStream(1, xhttp2.ErrCodeCancel)
	}, ErrOthers},
	{"PONG of nothing", Floods{Others: 20}, func(l *library, _ int) { l.WritePing(true, [8]byte{1}) }, ErrOthers},
	{"DATA of a stream that we have reset", Floods{Others: 20}, func(l *library, i int) {
		if i == 0 {
			l.headers(1, false, ":method: GET", ":scheme: http", ":path: /", ":authority: h")
			l.AllowIllegalWrites = true
			l.WriteWindowUpdate(1, 0)
		}
		l.WriteData(1, false, []byte("x"))
	}, ErrOthers},
	{"GOAWAY", Floods{Others: 20}, func(l *library, _ int) { l.WriteGoAway(0, xhttp2.ErrCodeNo, nil) }, ErrOthers},
	{"unknown frames", Floods{Others: 20}, func(l *library, _ int) { l.WriteRawFrame(77, 0, 0, []byte("x")) }, ErrOthers},
	{"CONTINUATION", Floods{Continuations: 20}, func(l *library, i int) {
		if i == 0 {
			l.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
		}
		l.WriteContinuation(1, false, nil)
	}, ErrContinuations},
	{"a long header block", Floods{}, func(l *library, i int) {
		if i == 0 {
			l.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
		}
		l.WriteContinuation(1, false, make([]byte, 1940))
	}, ErrContinuations},
}

// attack does an abuse at most n times and returns how often it worked, with the error.
func attack(t *testing.T, i, n int, each func(p *peer, k int)) (int, error) {
	a := &abuse[i]
	p, l := newServer(t, Options{Floods: a.o, Streams: 1 << 20}), newLibrary()
	p.c.handler = &reuser{Conn: p.c}
	l.out.WriteString(Preface)
	l.WriteSettings()
	l.WriteSettingsAck()
	for k := range n {
		a.do(l, k)
		if err := l.feed(p); err != nil {
			if out := l.frames(t); out[len(out)-1] != "GOAWAY ENHANCE_YOUR_CALM" {
				t.Errorf("%s: %q", a.name, out)
			}
			return k, err
		}
		if each != nil {
			each(p, k)
		}
	}
	return n, nil
}

// TestFloods checks that each abuse ends at its limit, and goes on with useful work or in time.
func TestFloods(t *testing.T) {
	for i, a := range abuse {
		if n, err := attack(t, i, 100, nil); err != error(a.want) || n < 18 || n > 20 {
			t.Errorf("%s: %v after %d, want %v", a.name, err, n, a.want)
		}
		if a.want == ErrContinuations {
			continue // of one block
		}
		if n, err := attack(t, i, 1000, func(p *peer, _ int) { p.c.floods.requests++ }); err != nil {
			t.Errorf("%s, with useful work: %v after %d", a.name, err, n)
		}
		if n, err := attack(t, i, 1000, func(p *peer, k int) { p.c.Advance(time.Duration(k) * time.Second / 2) }); err != nil {
			t.Errorf("%s, in time: %v after %d", a.name, err, n)
		}
		if n, err := attack(t, i, 1000, func(p *peer, k int) { p.c.Advance(time.Duration(k) * 10 * time.Millisecond) }); err == nil || n > 26 {
			t.Errorf("%s, 100 each second: %v after %d", a.name, err, n)
		}
	}
}

// TestStreamsWithoutAcknowledgement checks that a peer that never acknowledges SETTINGS can't ignore
// the limit of streams for ever.
func TestStreamsWithoutAcknowledgement(t *testing.T) {
	p, l := newServer(t, Options{Streams: 1, Floods: Floods{Resets: 20}}), newLibrary()
	l.out.WriteString(Preface)
	l.WriteSettings()
	for i := range 100 {
		l.headers(uint32(2*i+1), false, ":method: POST", ":scheme: http", ":path: /", ":authority: h")
	}
	if err := p.c.Feed(l.out.Bytes()); err != error(ErrResets) {
		t.Errorf("got %v", err)
	}
}

// TestStreamsOverLimit checks that a peer that knows the limit of streams is at fault if it opens more.
func TestStreamsOverLimit(t *testing.T) {
	p, l := newServer(t, Options{Streams: 1, Floods: Floods{Provoked: 20}}), newLibrary()
	l.out.WriteString(Preface)
	l.WriteSettings()
	l.WriteSettingsAck()
	n := 0
	for err := error(nil); err == nil && n < 100; n++ {
		l.headers(uint32(2*n+1), false, ":method: POST", ":scheme: http", ":path: /", ":authority: h")
		if err = l.feed(p); err != nil && err != error(ErrProvoked) {
			t.Fatal(err)
		}
	}
	if n != 1+20+1 {
		t.Errorf("the connection ends at stream %d, want the last of one that is taken, 20 that are refused and another", n)
	}
}

// TestWindowsInSmallSteps checks that a client may open windows often while it gets much DATA: the
// one of Go sends two WINDOW_UPDATE for each read of 4 KiB.
func TestWindowsInSmallSteps(t *testing.T) {
	p, l := newServer(t, Options{Floods: Floods{Others: 1000}}), newLibrary()
	body := make([]byte, 8<<20)
	p.onRequest = func(st *Stream, _ bool) {
		p.c.Respond(st, &protocol.Response{Status: 200, DeclaredLength: -1, Body: body}, nil)
	}
	l.out.WriteString(Preface)
	l.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 1 << 20})
	l.WriteSettingsAck()
	l.WriteWindowUpdate(0, 1<<20)
	l.headers(1, true, ":method: GET", ":scheme: http", ":path: /", ":authority: h")
	for sent := 0; sent < len(body); {
		if err := l.feed(p); err != nil {
			t.Fatalf("%v after %d bytes", err, sent)
		}
		n := l.in.Len()
		l.in.Reset()
		if sent += n; n == 0 {
			t.Fatalf("nothing more after %d bytes", sent)
		}
		for ; n > 0; n -= 4 << 10 {
			l.WriteWindowUpdate(0, 4<<10)
			l.WriteWindowUpdate(1, 4<<10)
		}
	}
}

// TestWindowsOfLateReader checks that a client that reads DATA late may then open its windows in small
// steps, and that DATA pays for no more of them than maxUnspent.
func TestWindowsOfLateReader(t *testing.T) {
	const limit = 1000
	p, l := newServer(t, Options{Floods: Floods{Others: limit}}), newLibrary()
	l.out.WriteString(Preface)
	l.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingHeaderTableSize, Val: 0})
	p.c.floods.sent = 2 * maxUnspent * usefulBytes // TestWindowsInSmallSteps has real DATA
	steps, err := 0, l.feed(p)
	for ; err == nil && steps < 2*maxUnspent; steps++ {
		l.WriteWindowUpdate(0, 1)
		err = l.feed(p)
	}
	if want := maxUnspent + limit + 1; err != error(ErrOthers) || steps != want {
		t.Errorf("%v after %d steps, want %v after %d", err, steps, ErrOthers, want)
	}
}

// TestWindowsByMessage checks that a client may open two windows for each short DATA frame, as HAProxy does.
func TestWindowsByMessage(t *testing.T) {
	p, l := newServer(t, Options{Floods: Floods{Others: 20}}), newLibrary()
	var st *Stream
	p.onRequest = func(s *Stream, _ bool) {
		st = s
		p.c.ResponseHead(s, &protocol.Response{Status: 200, DeclaredLength: -1})
	}
	l.out.WriteString(Preface)
	l.WriteSettings()
	l.headers(1, true, ":method: GET", ":scheme: http", ":path: /", ":authority: h")
	if err := l.feed(p); err != nil || st == nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		p.c.Send(st, []byte("message"))
		p.c.Output(1 << 10)
		l.WriteWindowUpdate(0, 7)
		l.WriteWindowUpdate(1, 7)
		if err := l.feed(p); err != nil {
			t.Fatalf("%v after %d messages", err, i)
		}
	}
}

// TestLateResets checks that callers may give up any number of requests that were open for a while.
func TestLateResets(t *testing.T) {
	const streams = 200
	p, l := newServer(t, Options{Floods: Floods{Resets: 20}, Streams: streams}), newLibrary()
	l.out.WriteString(Preface)
	l.WriteSettings()
	l.WriteSettingsAck()
	now, id := time.Duration(0), uint32(1)
	round := func(age time.Duration) error {
		for i := range uint32(streams) {
			l.headers(id+2*i, true, ":method: GET", ":scheme: http", ":path: /", ":authority: h")
		}
		if err := l.feed(p); err != nil {
			return err
		}
		now += age
		p.c.Advance(now)
		for range streams {
			l.WriteRSTStream(id, xhttp2.ErrCodeCancel)
			id += 2
		}
		return l.feed(p)
	}
	for i := range 10 {
		if err := round(rapid); err != nil {
			t.Fatalf("%v in round %d", err, i)
		}
	}
	if err := round(rapid - 1); err != error(ErrResets) {
		t.Errorf("%v for younger ones", err)
	}
}

// TestEarlyResponsesCount checks that a response that ends before its request is useful work.
func TestEarlyResponsesCount(t *testing.T) {
	p, l := newServer(t, Options{Floods: Floods{Others: 20}}), newLibrary()
	e := &early{peer: p}
	p.c.handler, p.c.requests = e, e
	l.out.WriteString(Preface)
	l.WriteSettings()
	l.WriteSettingsAck()
	for i := range uint32(1000) {
		l.headers(2*i+1, false, ":method: POST", ":scheme: http", ":path: /", ":authority: h")
		if err := l.feed(p); err != nil {
			t.Fatal(err)
		}
		l.WriteRSTStream(2*i+1, xhttp2.ErrCodeNo) // of a stream that is over
		if err := l.feed(p); err != nil {
			t.Fatalf("%v after %d responses", err, i)
		}
	}
	if e.sent != 1000 {
		t.Errorf("%d responses were sent", e.sent)
	}
}

// early responds to a request that is not complete, and ends it.
type early struct {
	*peer
	sent int
}

func (e *early) OnRequest(st *Stream, _ bool) {
	e.c.Respond(st, &protocol.Response{Status: 429}, nil)
}

func (e *early) OnSent(st *Stream) {
	e.sent++
	e.c.Reset(st, NoError)
}

// TestLongHeadInParts checks that a head of up to twice the limit does no harm to other streams.
func TestLongHeadInParts(t *testing.T) {
	p, l := newServer(t, Options{}), newLibrary()
	l.out.WriteString(Preface)
	l.WriteSettings()
	start := l.out.Len()
	l.headers(1, true, ":method: GET", ":scheme: http", ":path: /", ":authority: h", "a: "+strings.Repeat("a", 40<<10))
	block := bytes.Clone(l.block.Bytes())
	l.out.Truncate(start)
	l.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, EndStream: true})
	for part := range slices.Chunk(block, 10<<10) {
		l.WriteContinuation(1, false, part)
	}
	l.WriteContinuation(1, true, nil)
	if err := l.feed(p); err != nil {
		t.Fatal(err)
	}
	if !p.of(p.c.streams.get(1)).oversize {
		t.Error("the head is taken")
	}
}

// TestControlBound checks that a peer that does not read can't make responses pile up.
func TestControlBound(t *testing.T) {
	p, l := newServer(t, Options{Floods: Floods{Pings: 1 << 30}}), newLibrary()
	l.out.WriteString(Preface)
	l.WriteSettings()
	for range 10_000 {
		l.WritePing(false, [8]byte{1})
	}
	if err := p.c.Feed(l.out.Bytes()); err != error(ErrControl) || p.c.Buffered() > controlBound+1000 {
		t.Errorf("%v, %d bytes", err, p.c.Buffered())
	}
}

// TestServerRefuses checks that an overloaded server may refuse any number of requests: each RST_STREAM
// costs a request of ours.
func TestServerRefuses(t *testing.T) {
	p := newPair(t, Options{}, Options{})
	p.server.onRequest = func(st *Stream, _ bool) { p.server.c.Reset(st, RefusedStream) }
	for i := range 3000 {
		p.client.c.Request(typical(), "http", nil)
		if err := p.run(); err != nil {
			t.Fatalf("%v after %d requests", err, i)
		}
	}
}

// TestFloodLimits checks the defaults, and that a limit is exact.
func TestFloodLimits(t *testing.T) {
	for k, want := range map[flood]int{floodResets: 1000, floodProvoked: 200, floodPings: 200, floodSettings: 1000, floodEmptyData: 200, floodOthers: 10_000} {
		f := newFloods(Floods{})
		n := 0
		for f.add(k) == nil {
			n++
		}
		if n != want {
			t.Errorf("kind %d: %d pass, want %d", k, n, want)
		}
	}
	if f := newFloods(Floods{}); f.excludes(32) || !f.excludes(33) {
		t.Error("another default of Continuations than 32")
	}
}

// TestFloodsForgiven checks how many of each kind may follow at the limit, after what is useful or some time.
func TestFloodsForgiven(t *testing.T) {
	const limit = 10
	all := Floods{Resets: limit, Provoked: limit, Pings: limit, Settings: limit, EmptyData: limit, Others: limit}
	for _, c := range []struct {
		name                    string
		do                      func(*floods)
		completed, data, others int // that may follow: of Resets and Provoked, of Pings, Settings and EmptyData, of Others
	}{
		{"nothing", func(*floods) {}, 0, 0, 0},
		{"a request", func(f *floods) { f.onRequest() }, 1, 1, 1},
		{"a DATA frame", func(f *floods) { f.onData(1, 0) }, 0, 1, 2},
		{"three DATA frames", func(f *floods) { f.onData(2, 0); f.onData(1, 0) }, 0, 3, 6},
		{"too few bytes", func(f *floods) { f.onData(0, usefulBytes-1) }, 0, 0, 0},
		{"bytes for one", func(f *floods) { f.onData(0, usefulBytes) }, 0, 0, 1},
		{"just not a second", func(f *floods) { f.advance(time.Second - 1) }, 0, 0, 0},
		{"a second", func(f *floods) { f.advance(time.Second) }, 1, 1, 1},
		{"nearly three seconds", func(f *floods) { f.advance(3*time.Second - 1) }, 2, 2, 2},
		{"a day", func(f *floods) { f.advance(24 * time.Hour) }, limit, limit, limit},
		{"time that goes back", func(f *floods) { f.advance(time.Second); f.advance(0) }, 1, 1, 1},
	} {
		for k, want := range map[flood]int{
			floodResets: c.completed, floodProvoked: c.completed, floodPings: c.data, floodSettings: c.data, floodEmptyData: c.data, floodOthers: c.others,
		} {
			f := newFloods(all)
			for range limit {
				if f.add(k) != nil {
					t.Fatalf("kind %d: ends before its limit", k)
				}
			}
			c.do(&f)
			n := 0
			for f.add(k) == nil {
				n++
			}
			if n != want {
				t.Errorf("kind %d, after %s: %d more pass, want %d", k, c.name, n, want)
			}
		}
	}
}

// TestLeastFlood: the smallest limit lets one pass, and another ten seconds later.
func TestLeastFlood(t *testing.T) {
	for at, want := range map[time.Duration]*Error{0: ErrPings, 10*time.Second - 1: ErrPings, 10 * time.Second: nil} {
		f := newFloods(Floods{Pings: 1})
		if err := f.add(floodPings); err != nil {
			t.Errorf("the first: %v", err)
		}
		f.advance(at)
		if got := f.add(floodPings); got != want {
			t.Errorf("another at %s: %v, want %v", at, got, want)
		}
	}
}
