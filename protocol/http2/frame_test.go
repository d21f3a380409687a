package http2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/remora-proxy/remora/protocol"
)

// TestFrameHeads: a header has each bit of its parts where the protocol says.
func TestFrameHeads(t *testing.T) {
	for bit := range 31 {
		for _, length := range []int{0, 1, 0xff, 0x100, 0xffff, 0x10000, 1<<24 - 1} {
			want := frame{length, frameHeaders, 0xa5, 1 << bit}
			b := appendFrame(nil, want.length, want.typ, want.flags, want.id)
			if got := binary.BigEndian.Uint64(b); got != uint64(length)<<40|uint64(want.typ)<<32|0xa5<<24|uint64(want.id)>>8 || b[8] != byte(want.id) {
				t.Errorf("%+v: % x", want, b)
			}
			if got := parseFrame(b); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			b[5] |= 0x80 // reserved
			if got := parseFrame(b); got != want {
				t.Errorf("with the reserved bit: %+v, want %+v", got, want)
			}
		}
	}
}

// TestRequestLengths: which requests say how long their content is.
func TestRequestLengths(t *testing.T) {
	for _, c := range []struct {
		method, body, trailer, contentType string
		want                               int64
	}{
		{"GET", "", "", "a/b", -1}, {"GET", "x", "", "a/b", 1}, {"POST", "", "", "a/b", 0}, {"POST", "xy", "", "a/b", 2},
		{"POST", "x", "a: b", "a/b", -1}, {"POST", "", "a: b", "a/b", -1}, {"POST", "x", "", "application/grpc", -1},
	} {
		p := newPair(t, Options{}, Options{})
		length, got := int64(-2), (*message)(nil)
		p.server.onRequest = func(st *Stream, _ bool) { length, got = st.Length(), p.server.got[st.ID()] }
		req := &protocol.Request{Method: []byte(c.method), Path: []byte("/"), Authority: []byte("h"), Headers: fields("content-type: " + c.contentType), Body: []byte(c.body)}
		if c.trailer != "" {
			req.Trailers = fields(c.trailer)
		}
		p.client.c.Request(req, "http", nil)
		if err := p.run(); err != nil || length != c.want {
			t.Errorf("%+v: length %d, %v", c, length, err)
		}
		if got == nil || string(got.body) != c.body || strings.Join(got.trailers, "|") != c.trailer {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// TestResponseLengths: which responses say how long their content is, or would be.
func TestResponseLengths(t *testing.T) {
	for _, c := range []struct {
		method   string
		status   int
		declared int64
		body     string
		want     int64
	}{
		{"GET", 200, -1, "", 0}, {"GET", 200, -1, "x", 1}, {"GET", 204, -1, "", -1}, {"GET", 204, 7, "x", -1},
		{"GET", 304, -1, "", -1}, {"GET", 304, 0, "", 0}, {"GET", 304, 7, "", 7}, {"GET", 304, -1, "x", 1},
		{"HEAD", 200, -1, "", -1}, {"HEAD", 200, 0, "", 0}, {"HEAD", 200, 7, "", 7}, {"HEAD", 200, -1, "x", 1}, {"HEAD", 200, 7, "x", 7},
	} {
		p := newPair(t, Options{}, Options{})
		p.server.onRequest = func(st *Stream, _ bool) {
			p.server.c.Respond(st, &protocol.Response{Status: c.status, DeclaredLength: c.declared, Body: []byte(c.body)}, nil)
		}
		id := p.client.c.Request(&protocol.Request{Method: []byte(c.method), Path: []byte("/"), Authority: []byte("h")}, "http", nil).ID()
		if err := p.run(); err != nil {
			t.Fatal(err)
		}
		body := c.body
		if c.method == "HEAD" || c.status != 200 {
			body = ""
		}
		if m := p.client.got[id]; !m.end || m.why != nil || m.res.DeclaredLength != c.want || string(m.body) != body {
			t.Errorf("%+v: length %d, body %q, end %t, %v", c, m.res.DeclaredLength, m.body, m.end, m.why)
		}
	}
}

// TestPiecesInTurn: a piece does not overtake the DATA of other streams, and the last piece of a message ends it.
func TestPiecesInTurn(t *testing.T) {
	p, l := newClient(t, Options{}), newLibrary()
	long := typical()
	long.Body = pattern(40_000)
	p.c.Request(long, "http", nil)
	st := p.c.RequestHead(typical(), "http", -1, false)
	p.c.Send(st, []byte("piece"))
	p.c.Finish(st, nil)
	alone := p.c.RequestHead(typical(), "http", -1, false)
	p.c.Output(1 << 20)
	p.c.Send(alone, []byte("another"))
	p.c.Finish(alone, nil)
	if err := l.feed(p); err != nil {
		t.Fatal(err)
	}
	if got := l.frames(t); !slices.Equal(got, []string{"DATA another END"}) {
		t.Errorf("a piece alone: %.100q", got)
	}

	p, l = newClient(t, Options{}), newLibrary()
	p.c.Output(1 << 20) // the preface
	p.c.Request(long, "http", nil)
	st = p.c.RequestHead(typical(), "http", -1, false)
	p.c.Send(st, []byte("piece"))
	p.c.Finish(st, nil)
	if err := l.feed(p); err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, f := range l.frames(t) {
		if strings.HasPrefix(f, "DATA ") {
			order = append(order, f[:min(len(f), 14)])
		}
	}
	if len(order) != 4 || order[0] == "DATA piece END" || !slices.Contains(order, "DATA piece END") {
		t.Errorf("beside another: %q", order)
	}
}

// TestDataCounts: DATA with content is useful work, once, in whichever direction, and no other is. What is sent pays with its bytes, too.
func TestDataCounts(t *testing.T) {
	received := func(data, padding string) func(p *peer, l *library) {
		return func(_ *peer, l *library) { l.WriteDataPadded(1, false, []byte(data), []byte(padding)) }
	}
	sent := func(n int) func(p *peer, l *library) {
		return func(p *peer, _ *library) {
			p.c.ResponseHead(p.c.streams.get(1), &protocol.Response{Status: 200, DeclaredLength: -1})
			p.c.Send(p.c.streams.get(1), pattern(n))
			for range 3 {
				p.c.Output(1 << 20)
				p.c.Ping(1)
			}
		}
	}
	const most = 10 // useless frames without useful work
	for name, c := range map[string]struct {
		do   func(p *peer, l *library)
		want int // useless frames that the peer may then send
	}{
		"nothing":               {func(*peer, *library) {}, most},
		"DATA":                  {received("x", ""), most + 2},
		"DATA with padding":     {received("x", "\x00\x00"), most + 2},
		"empty DATA":            {received("", ""), most},
		"padding alone":         {received("", "\x00\x00"), most},
		"DATA sent":             {sent(1), most + 2},
		"DATA sent, 512 bytes":  {sent(512), most + 2 + 1},
		"DATA sent, 1023 bytes": {sent(1023), most + 2 + 1},
		"DATA sent, 1024 bytes": {sent(1024), most + 2 + 2},
	} {
		p, l := newServer(t, Options{Floods: Floods{Others: most}}), newLibrary()
		p.hold = true
		l.out.WriteString(Preface)
		l.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingHeaderTableSize, Val: 4096})
		l.headers(1, false, strings.Split(requestLines, "|")...)
		useless := func(n int) {
			for range n {
				l.WriteRawFrame(77, 0, 0, nil)
			}
		}
		useless(most)
		if err := l.feed(p); err != nil {
			t.Fatal(name, err)
		}
		c.do(p, l)
		useless(c.want - most)
		if err := l.feed(p); err != nil {
			t.Errorf("%s: %v after %d frames", name, err, c.want)
		}
		useless(1)
		if err := l.feed(p); err != error(ErrOthers) {
			t.Errorf("%s: %v after %d frames, want %v", name, err, c.want+1, ErrOthers)
		}
	}
}

// TestControlCounts: each response to a frame of the peer counts with its bytes until Output, and nothing else does.
func TestControlCounts(t *testing.T) {
	var o output
	o.enc.Reset()
	for name, send := range map[string]func(){
		"acknowledgement of SETTINGS": o.ackSettings, "PONG": func() { o.pong(1) }, "RST_STREAM": func() { o.resetStream(1, Cancel) },
		"the connection's window": func() { o.reopenWindow(1) },
	} {
		before, control := len(o.out), o.control
		if send(); o.control-control != len(o.out)-before {
			t.Errorf("%s: %d bytes count as %d", name, len(o.out)-before, o.control-control)
		}
	}
	control := o.control
	o.ping(1)
	o.openWindow(1, 1)
	o.goAway(1, NoError)
	if o.control != control {
		t.Errorf("frames of our own count as %d bytes", o.control-control)
	}
}

// TestResetWithinData: the rest of a DATA frame whose stream was reset goes nowhere, not to a stream that has begun since either.
func TestResetWithinData(t *testing.T) {
	p, l := receiver(t, 1<<16, true)
	l.WriteData(1, true, []byte("first half, second half"))
	data := slices.Clone(l.out.Bytes())
	l.out.Reset()
	if err := p.c.Feed(data[:frameHead+10]); err != nil {
		t.Fatal(err)
	}
	p.c.Reset(p.c.streams.get(1), Cancel)
	p.got[1].over = true
	if err := p.c.Feed(data[frameHead+10:]); err != nil {
		t.Fatal(err)
	}
	l.headers(3, true, strings.Split(requestLines, "|")...)
	updates(t, p, l)
	if first, next := p.got[1], p.got[3]; string(first.body) != "first half" || first.end || next == nil || len(next.body) != 0 || !next.end {
		t.Errorf("%+v, then %+v", first, next)
	}
}

// TestCloseWithinFrame: a closed Conn holds nothing of a frame that has arrived in part.
func TestCloseWithinFrame(t *testing.T) {
	p, l := receiver(t, 1<<16, true)
	l.WritePing(false, [8]byte{})
	if err := p.c.Feed(l.out.Bytes()[:frameHead+3]); err != nil || p.c.Buffered() != frameHead+3 || !p.c.InHead() {
		t.Fatalf("%v, %d bytes, in a head %t", err, p.c.Buffered(), p.c.InHead())
	}
	st := p.c.streams.get(1)
	st.Owner = p
	p.c.Ping(1)
	p.c.Close()
	if p.c.Close(); p.c.Buffered() != 0 || p.c.Output(1000) != nil {
		t.Errorf("%d bytes are held", p.c.Buffered())
	}
	p.c.Ping(1)
	p.c.Drain()
	if err := p.c.Feed([]byte("anything")); err != nil || p.c.Ready() || p.c.Buffered() != 0 {
		t.Errorf("it goes on: %v, ready %t, %d bytes", err, p.c.Ready(), p.c.Buffered())
	}
	if st.ID() != 0 || st.Owner != nil {
		t.Errorf("stream %d is not over", st.ID())
	}
}

// TestCloseReleasesStreams: a closed Conn keeps no stream, whatever it was about to do with that.
func TestCloseReleasesStreams(t *testing.T) {
	for name, begin := range map[string]func(p *peer, l *library) error{
		"nothing": func(*peer, *library) error { return nil },
		"the rest of DATA": func(p *peer, l *library) error {
			l.WriteData(1, false, []byte("first half, second half"))
			return p.c.Feed(l.out.Bytes()[:frameHead+10])
		},
		"a call when the response is sent": func(p *peer, _ *library) error {
			p.c.Respond(p.c.streams.get(1), typicalResponse(), nil)
			return nil
		},
		"its turn to send": func(p *peer, _ *library) error {
			p.c.Respond(p.c.streams.get(1), &protocol.Response{Status: 200, DeclaredLength: -1, Body: pattern(1 << 20)}, nil)
			return nil
		},
	} {
		p, l := receiver(t, 1<<16, true)
		st := weak.Make(p.c.streams.get(1))
		if err := begin(p, l); err != nil || st.Value() == nil {
			t.Fatal(name, err)
		}
		p.c.Close()
		for range 10 {
			if runtime.GC(); st.Value() == nil {
				break
			}
		}
		if st.Value() != nil {
			t.Errorf("%s: the stream is still held", name)
		}
		runtime.KeepAlive(p)
	}
}

// TestContinuationFlags: of the frames of a long head, the first has the flags of the message, and only the last ends the head.
func TestContinuationFlags(t *testing.T) {
	p := newClient(t, Options{})
	p.c.Output(1 << 20)
	p.c.Request(&protocol.Request{Method: []byte("GET"), Path: []byte("/"), Headers: fields("a: " + strings.Repeat("x", 3*maxFrame))}, "http", nil)
	var got []string
	for out := p.c.Output(1 << 20); len(out) > 0; out = out[frameHead+parseFrame(out).length:] {
		f := parseFrame(out)
		got = append(got, fmt.Sprint(f.typ, f.flags, f.id))
	}
	if want := []string{"1 1 1", "9 0 1", "9 0 1", "9 4 1"}; !slices.Equal(got, want) {
		t.Errorf("type, flags and stream %q, want %q", got, want)
	}
}

// TestRequestsCount: completed requests are useful work, and no other.
func TestRequestsCount(t *testing.T) {
	p := newPair(t, Options{}, Options{})
	p.server.onRequest = func(st *Stream, _ bool) {
		if st.ID() == 1 {
			p.server.c.Reset(st, Cancel)
			p.server.got[1].over = true
			return
		}
		p.server.c.Respond(st, typicalResponse(), nil)
	}
	for range 4 {
		p.client.c.Request(typical(), "http", nil)
		if err := p.run(); err != nil {
			t.Fatal(err)
		}
	}
	if client, server := p.client.c.floods.requests, p.server.c.floods.requests; client != 3 || server != 3 {
		t.Errorf("%d and %d requests count, want 3", client, server)
	}
}

// TestIdsOfBefore: a connection knows nothing of the streams of the one before.
func TestIdsOfBefore(t *testing.T) {
	for name, end := range map[string]func(p *peer){
		"ended": func(p *peer) { p.c.Respond(p.c.streams.get(1), typicalResponse(), nil) },
		"reset": func(p *peer) { p.c.Reset(p.c.streams.get(1), Cancel) },
	} {
		p, l := newServer(t, Options{}), newLibrary()
		for range 2 {
			l.out.WriteString(Preface)
			l.WriteSettings()
			l.headers(1, true, strings.Split(requestLines, "|")...)
			if err := l.feed(p); err != nil {
				t.Fatal(err)
			}
			end(p)
			if err := l.feed(p); err != nil {
				t.Fatal(err)
			}
			opts := p.c.opts
			p.c.Close()
			p.got = map[uint32]*message{}
			p.c.InitServer(opts, p)
			l = newLibrary()
		}
		l.out.WriteString(Preface)
		l.WriteSettings()
		for _, id := range []uint32{3, 1} { // 1 was passed over
			l.headers(id, true, strings.Split(requestLines, "|")...)
		}
		if err := l.feed(p); err != error(ErrStreamID) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestControlFrames compares the frames without DATA and heads with those of the library.
func TestControlFrames(t *testing.T) {
	for name, c := range map[string]struct {
		ours   []byte
		theirs func(f *xhttp2.Framer) error
	}{
		"RST_STREAM":    {appendRSTStream(nil, 5, Cancel), func(f *xhttp2.Framer) error { return f.WriteRSTStream(5, xhttp2.ErrCodeCancel) }},
		"WINDOW_UPDATE": {appendWindowUpdate(nil, 5, 1<<20), func(f *xhttp2.Framer) error { return f.WriteWindowUpdate(5, 1<<20) }},
		"PING":          {appendPing(nil, 0, 0x0102030405060708), func(f *xhttp2.Framer) error { return f.WritePing(false, [8]byte{1, 2, 3, 4, 5, 6, 7, 8}) }},
		"PONG":          {appendPing(nil, flagAck, 1), func(f *xhttp2.Framer) error { return f.WritePing(true, [8]byte{7: 1}) }},
		"GOAWAY":        {appendGoAway(nil, 7, EnhanceYourCalm), func(f *xhttp2.Framer) error { return f.WriteGoAway(7, xhttp2.ErrCodeEnhanceYourCalm, nil) }},
	} {
		var b bytes.Buffer
		if err := c.theirs(xhttp2.NewFramer(&b, nil)); err != nil || !bytes.Equal(c.ours, b.Bytes()) {
			t.Errorf("%s: % x, want % x, %v", name, c.ours, b.Bytes(), err)
		}
	}
	var o output
	o.settings(settingValue{settingInitialWindow, 100}, settingValue{settingMaxStreams, 7})
	o.ackSettings()
	var b bytes.Buffer
	f := xhttp2.NewFramer(&b, nil)
	_ = f.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 100}, xhttp2.Setting{ID: xhttp2.SettingMaxConcurrentStreams, Val: 7})
	_ = f.WriteSettingsAck()
	if !bytes.Equal(o.out, b.Bytes()) {
		t.Errorf("SETTINGS: % x, want % x", o.out, b.Bytes())
	}
}

// TestStatuses: each status is encoded, by an index or as text.
func TestStatuses(t *testing.T) {
	var o output
	o.enc.Reset()
	d := hpack.NewDecoder(4096, nil)
	for range 3 {
		for status := 100; status < 600; status++ {
			o.out = o.enc.Begin(o.out[:0])
			o.status(status)
			if got, err := d.DecodeFull(o.out); err != nil || len(got) != 1 || got[0].Name != ":status" || got[0].Value != fmt.Sprint(status) {
				t.Fatalf("%d: %v, %v", status, got, err)
			}
		}
	}
}

// TestIsText compares the check by words with that of each byte.
func TestIsText(t *testing.T) {
	for n := 1; n <= 25; n++ {
		for at := range n {
			for c := range 256 {
				for _, fill := range []byte("aZ \xff") {
					b := bytes.Repeat([]byte{fill}, n)
					b[at] = byte(c)
					if want := c == '\t' || c >= ' ' && c != 0x7f; isText(b) != want {
						t.Fatalf("%q is text: %t", b, !want)
					}
				}
			}
		}
	}
}

// TestShortResponses: which frames a response without a body has.
func TestShortResponses(t *testing.T) {
	for trailers, want := range map[string][]string{
		"": {"HEADERS :status=200 content-length=0 END"}, "a: b": {"HEADERS :status=200", "HEADERS a=b END"}, "a: b|c: d": {"HEADERS :status=200", "HEADERS a=b c=d END"},
	} {
		p, l := newServer(t, Options{}), newLibrary()
		p.onRequest = func(st *Stream, _ bool) {
			res := &protocol.Response{Status: 200, DeclaredLength: -1}
			if trailers != "" {
				res.Trailers = fields(strings.Split(trailers, "|")...)
			}
			p.c.Respond(st, res, nil)
		}
		l.out.WriteString(Preface)
		l.WriteSettings()
		l.headers(1, true, strings.Split(requestLines, "|")...)
		if err := l.feed(p); err != nil {
			t.Fatal(err)
		}
		got := slices.DeleteFunc(l.frames(t), func(f string) bool { return !strings.HasPrefix(f, "HEADERS") && !strings.HasPrefix(f, "DATA") })
		if !slices.Equal(got, want) {
			t.Errorf("trailers %q: %q", trailers, got)
		}
	}
}

// TestOwnersReleased: an owner is released if its message can't be sent, and by Close.
func TestOwnersReleased(t *testing.T) {
	p := newPair(t, Options{}, Options{})
	var st *Stream
	p.server.onRequest = func(of *Stream, _ bool) {
		if st = of; of.ID() < 7 { // until fields are in the tables
			p.server.c.Respond(of, typicalResponse(), nil)
		}
	}
	waits := &owner{t: t, size: 123_456}
	for range 4 {
		p.client.c.Request(typical(), "http", nil)
		if err := p.run(); err != nil {
			t.Fatal(err)
		}
	}
	long := typicalResponse()
	long.Body = pattern(100_000)
	if p.server.c.Respond(st, long, waits); st.Held() != waits.size {
		t.Errorf("%d bytes are held, want those of the owner, %d", st.Held(), waits.size)
	}
	again := &owner{t: t}
	if p.server.c.Respond(st, typicalResponse(), again); again.released != 1 || waits.released != 0 {
		t.Errorf("a second response: %d and %d owners are released", again.released, waits.released)
	}
	if n := p.server.c.Interned(); n <= p.server.c.w.enc.Held() || n <= p.server.c.heads.interned() || p.server.c.w.enc.Held() == 0 {
		t.Errorf("%d bytes of tables, with %d and %d", n, p.server.c.w.enc.Held(), p.server.c.heads.interned())
	}
	if p.server.c.Close(); waits.released != 1 {
		t.Errorf("closed: %d owners are released", waits.released)
	}
	over := &owner{t: t}
	if p.server.c.Respond(st, typicalResponse(), over); over.released != 1 {
		t.Errorf("of a stream that is over: %d owners are released", over.released)
	}
}

// TestNoAuthority: a request without an authority has no field for it.
func TestNoAuthority(t *testing.T) {
	p, l := newClient(t, Options{}), newLibrary()
	l.feed(p)
	l.in.Reset()
	p.c.Request(&protocol.Request{Method: []byte("GET"), Path: []byte("/")}, "http", nil)
	if err := l.feed(p); err != nil {
		t.Fatal(err)
	}
	if got := l.frames(t); !slices.Equal(got, []string{"HEADERS :method=GET :scheme=http :path=/ END"}) {
		t.Errorf("%q", got)
	}
}

// TestConnectHead: a CONNECT has neither a scheme nor a path (RFC 9113 section 8.5).
func TestConnectHead(t *testing.T) {
	p, l := newClient(t, Options{}), newLibrary()
	l.feed(p)
	l.in.Reset()
	p.c.RequestHead(&protocol.Request{Method: []byte("CONNECT"), Path: []byte("/"), Authority: []byte("h:1")}, "http", -1, false)
	if err := l.feed(p); err != nil {
		t.Fatal(err)
	}
	if got := l.frames(t); !slices.Equal(got, []string{"HEADERS :method=CONNECT :authority=h:1"}) {
		t.Errorf("%q", got)
	}
}

// TestEarlyResponse: a response that is complete before its request leaves the rest of the request to the handler.
func TestEarlyResponse(t *testing.T) {
	p, l := receiver(t, 1<<16, true)
	st := p.c.streams.get(1)
	p.c.Respond(st, typicalResponse(), nil)
	updates(t, p, l)
	if st.ID() != 1 {
		t.Fatal("the stream is over")
	}
	l.WriteData(1, true, []byte("rest"))
	updates(t, p, l)
	if m := p.got[1]; !m.end || !m.sent || string(m.body) != "rest" || p.c.StreamCount() != 0 {
		t.Errorf("%+v, %d streams", m, p.c.StreamCount())
	}
}

// TestConsumedAtEnd: the window of a message that has ended is not given back.
func TestConsumedAtEnd(t *testing.T) {
	p, l := receiver(t, 1000, true)
	l.WriteData(1, true, make([]byte, 1000))
	updates(t, p, l)
	st := p.c.streams.get(1)
	if p.c.Consumed(st, 1000); updates(t, p, l) != 0 {
		t.Error("the client gets a window for nothing")
	}
}

// TestFinishBehindAnother: the end of a message does not go into the frame of another stream.
func TestFinishBehindAnother(t *testing.T) {
	p, l := newClient(t, Options{Buffers: &protocol.Buffers{Most: 1 << 20}}), newLibrary()
	a, b := p.c.RequestHead(typical(), "http", -1, false), p.c.RequestHead(typical(), "http", -1, false)
	p.c.Output(1 << 20)
	p.c.Send(a, []byte("a"))
	p.c.Send(b, []byte("b"))
	p.c.Finish(a, nil)
	if err := l.feed(p); err != nil {
		t.Fatal(err)
	}
	if got := l.frames(t); !slices.Equal(got, []string{"DATA a", "DATA b", "DATA  END"}) {
		t.Errorf("%q", got)
	}
	p.c.Send(b, make([]byte, defaultWindow-2))
	p.c.Send(b, make([]byte, 50_000)) // waits
	if p.c.Reset(b, Cancel); p.c.opts.Buffers.Kept() == 0 {
		t.Error("the memory of what waits is not given back")
	}
}

// TestResetInTurn: a stream that is reset when it is its turn leaves the turn to the next.
func TestResetInTurn(t *testing.T) {
	p := newClient(t, Options{})
	var all []*Stream
	for range 3 {
		req := typical()
		req.Body = pattern(40_000)
		all = append(all, p.c.Request(req, "http", nil))
	}
	p.c.Output(1)
	next := p.c.w.sending.next
	p.c.Reset(next, Cancel)
	for p.c.Ready() {
		p.c.Output(1 << 20)
	}
	for _, st := range all {
		if st != next && st.Unsent() == 40_000 {
			t.Errorf("nothing of stream %d is sent", st.ID())
		}
	}
}

// TestPeerTable: a peer that wants no table gets heads without references to a table.
func TestPeerTable(t *testing.T) {
	p := newClient(t, Options{})
	if err := p.c.Feed(appendSetting(appendFrame(nil, settingLen, frameSettings, 0, 0), settingTableSize, 0)); err != nil {
		t.Fatal(err)
	}
	p.c.Output(1 << 20)
	d := hpack.NewDecoder(4096, nil)
	d.SetAllowedMaxDynamicTableSize(0)
	for range 3 {
		p.c.Request(&protocol.Request{Method: []byte("GET"), Path: []byte("/"), Authority: []byte("h"), Headers: fields("a: b")}, "http", nil)
		out := p.c.Output(1 << 20)
		got, err := d.DecodeFull(out[frameHead : frameHead+parseFrame(out).length])
		if err != nil || len(got) != 5 || got[4].Value != "b" || p.c.w.enc.Held() != 0 {
			t.Errorf("%v, %v, a table of %d bytes", got, err, p.c.w.enc.Held())
		}
	}
}
