package http2

import (
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// receiver returns a server with the head of a request, whose handler gives back no window, and the client of it.
// acknowledged says whether the client has acknowledged SETTINGS.
func receiver(t *testing.T, window int, acknowledged bool) (*peer, *library) {
	t.Helper()
	p, l := newServer(t, Options{Window: window}), newLibrary()
	p.hold = true
	l.out.WriteString(Preface)
	l.WriteSettings()
	if acknowledged {
		l.WriteSettingsAck()
	}
	l.headers(1, false, strings.Split(requestLines, "|")...)
	updates(t, p, l)
	return p, l
}

// updates feeds what l has written to p, and returns how many WINDOW_UPDATE come back.
func updates(t *testing.T, p *peer, l *library) (n int) {
	t.Helper()
	if err := l.feed(p); err != nil {
		t.Fatal(err)
	}
	for _, f := range l.frames(t) {
		if f == "WINDOW_UPDATE" {
			n++
		}
	}
	return n
}

// data writes n bytes of DATA on stream 1.
func (l *library) data(n int) {
	for ; n > 0; n -= maxFrame {
		l.WriteData(1, false, make([]byte, min(n, maxFrame)))
	}
}

// TestStreamWindow: a stream may have so many bytes, and no more. Before the client knows our window, it may have as many as the
// protocol says.
func TestStreamWindow(t *testing.T) {
	for _, c := range []struct {
		window       int
		acknowledged bool
		want         int
	}{{1000, true, 1000}, {1000, false, defaultWindow}, {100_000, true, 100_000}, {100_000, false, 100_000}} {
		p, l := receiver(t, c.window, c.acknowledged)
		l.data(c.want)
		updates(t, p, l)
		if m := p.got[1]; m.why != nil || len(m.body) != c.want {
			t.Errorf("%+v: %d bytes, %v", c, len(m.body), m.why)
		}
		l.data(1)
		updates(t, p, l)
		if m := p.got[1]; m.why != ErrStreamFlow {
			t.Errorf("%+v: a byte more: %v", c, m.why)
		}
	}
}

// TestWindowOfBefore: a stream that began before the client knew our window has no more than that once the client knows.
func TestWindowOfBefore(t *testing.T) {
	for _, window := range []int{1000, defaultWindow - 1} {
		p, l := receiver(t, window, false)
		l.WriteSettingsAck()
		l.data(window)
		updates(t, p, l)
		if m := p.got[1]; m.why != nil || len(m.body) != window {
			t.Errorf("%d bytes of %d, %v", len(m.body), window, m.why)
		}
		l.data(1)
		updates(t, p, l)
		if m := p.got[1]; m.why != ErrStreamFlow {
			t.Errorf("a byte more than %d: %v", window, m.why)
		}
	}
}

// TestSmallestWindow: also of the smallest window, nothing is given back before the handler has taken it.
func TestSmallestWindow(t *testing.T) {
	p, l := receiver(t, 3, true)
	if l.data(2); updates(t, p, l) != 0 {
		t.Error("the window is given back at once")
	}
	if p.c.Consumed(p.c.streams.get(1), 2); updates(t, p, l) != 1 {
		t.Error("the window is not given back")
	}
}

// TestPaddingAtEnd: padding of the last DATA gives no window back, as the client needs none.
func TestPaddingAtEnd(t *testing.T) {
	for _, end := range []bool{false, true} {
		p, l := receiver(t, 1000, true)
		l.WriteDataPadded(1, end, []byte("x"), make([]byte, 255))
		if n := updates(t, p, l); n > 0 == end {
			t.Errorf("end %t: the client gets %d windows", end, n)
		}
	}
}

// TestWindowTakenBack: a peer that takes back just what a stream has left gets no DATA, nor an empty frame, until it gives more.
func TestWindowTakenBack(t *testing.T) {
	for _, left := range []int{-1, 0, 1} {
		p := newClient(t, Options{})
		req := typical()
		req.Body = pattern(60_000)
		over := p.c.Request(typical(), "http", nil)
		st := p.c.Request(req, "http", nil)
		p.c.Reset(over, Cancel)
		p.c.Output(20_000)
		sent := 60_000 - st.Unsent()
		if err := p.c.Feed(appendSetting(appendFrame(nil, settingLen, frameSettings, 0, 0), settingInitialWindow, sent+left)); err != nil {
			t.Fatal(err)
		}
		data := 0
		for out := p.c.Output(1 << 20); len(out) > 0; out = out[frameHead+parseFrame(out).length:] {
			if f := parseFrame(out); f.typ == frameData {
				if data += f.length; f.length == 0 {
					t.Errorf("%d bytes left: an empty frame", left)
				}
			}
		}
		if data != max(left, 0) {
			t.Errorf("%d bytes left: %d bytes are sent", left, data)
		}
		if err := p.c.Feed(appendWindowUpdate(nil, st.ID(), 10)); err != nil {
			t.Fatal(err)
		}
		p.c.Output(1 << 20)
		if n := 60_000 - st.Unsent(); n != sent+left+10 {
			t.Errorf("%d bytes left, and 10 more: %d bytes are sent, want %d", left, n, sent+left+10)
		}
	}
}

// fillOutput sends DATA on a new stream of p until total bytes wait for Output, with others that do.
func fillOutput(p *peer, others, total int) *Stream {
	st := p.c.RequestHead(typical(), "http", -1, false)
	left := total - others
	frames := (left + maxFrame + frameHead - 1) / (maxFrame + frameHead)
	p.c.Send(st, pattern(left-frames*frameHead))
	return st
}

// dataOf returns how many bytes of DATA out has, and whether the last frame of it ends its stream.
func dataOf(out []byte) (n int, end bool) {
	for ; len(out) > 0; out = out[frameHead+parseFrame(out).length:] {
		if f := parseFrame(out); f.typ == frameData {
			n, end = n+f.length, f.has(flagEndStream)
		}
	}
	return n, end
}

// TestDirectOutput: pieces go out at once until enough bytes wait for Output. Then they wait with their stream.
func TestDirectOutput(t *testing.T) {
	twin := newClient(t, Options{})
	twin.c.RequestHead(typical(), "http", -1, false)
	head := len(twin.c.Output(1 << 20))
	for _, c := range []struct{ missing, unsent int }{{1, 0}, {0, 1}} {
		p := newClient(t, Options{})
		st := fillOutput(p, head, directOutput-c.missing)
		if st.Unsent() != 0 {
			t.Fatalf("%d bytes before the bound: %d bytes are unsent", c.missing, st.Unsent())
		}
		if p.c.Send(st, []byte("x")); st.Unsent() != c.unsent {
			t.Errorf("%d bytes before the bound: %d bytes are unsent, want %d", c.missing, st.Unsent(), c.unsent)
		}
		p.c.Finish(st, nil)
		all := slices.Clone(p.c.Output(1 << 20)[len(Preface):])
		all = append(all, p.c.Output(1<<20)...)
		frames := (directOutput + maxFrame + frameHead - 1) / (maxFrame + frameHead)
		if n, end := dataOf(all); n != directOutput-c.missing-head-frames*frameHead+1 || !end {
			t.Errorf("%d bytes before the bound: %d bytes are sent, end %t", c.missing, n, end)
		}
	}
}

// TestWholeBehindOutput: a message goes out at once until enough bytes wait for Output with its head. Then its body waits.
func TestWholeBehindOutput(t *testing.T) {
	short := &protocol.Request{Method: []byte("PUT"), Path: []byte("/"), Authority: []byte("h"), Body: []byte("x")}
	begin := func() *peer {
		p := newClient(t, Options{})
		for range 4 { // until all fields are in the table
			p.c.Request(short, "http", nil)
		}
		p.c.Output(1 << 20)
		return p
	}
	twin := begin()
	twin.c.RequestHead(typical(), "http", -1, false)
	twin.c.Request(short, "http", nil)
	heads := len(twin.c.Output(1<<20)) - frameHead - len(short.Body)
	for _, missing := range []int{0, 1} {
		p, o := begin(), &owner{t: t}
		fillOutput(p, heads, directOutput-missing)
		if st := p.c.Request(short, "http", o); o.released != missing || st.Unsent() != 1-missing {
			t.Errorf("%d bytes before the bound: %d owners are released, %d bytes are unsent", missing, o.released, st.Unsent())
		}
	}
}

// TestFirstWindow: the connection's window is opened at once, to that of four streams, and at least to 1 MiB.
func TestFirstWindow(t *testing.T) {
	for window, want := range map[int]int{0: 1 << 20, 1 << 20: 4 << 20} {
		for _, client := range []bool{false, true} {
			out := newPeer(t, client, Options{Window: window}).c.Output(1 << 20)
			if update := appendWindowUpdate(nil, 0, want-defaultWindow); !strings.HasSuffix(string(out), string(update)) {
				t.Errorf("client %t, window %d: % x, want % x at its end", client, window, out, update)
			}
		}
	}
}

// TestPieceInTurn: a piece that waits for its turn is sent once, with no empty frames, and leaves the turn to others.
func TestPieceInTurn(t *testing.T) {
	p := newClient(t, Options{})
	long := typical()
	long.Body = pattern(40_000)
	p.c.Request(long, "http", nil)
	st := p.c.RequestHead(typical(), "http", -1, false)
	p.c.Send(st, []byte("piece"))
	frames, sent := 0, 0
	for out := p.c.Output(1 << 20)[len(Preface):]; len(out) > 0; out = out[frameHead+parseFrame(out).length:] {
		if f := parseFrame(out); f.typ == frameData {
			frames, sent = frames+1, sent+f.length
		}
	}
	if frames != 4 || sent != 40_005 || st.Unsent() != 0 {
		t.Errorf("%d frames with %d bytes", frames, sent)
	}
}

// TestBatchTurns: of DATA of a message and a batch message that both wait, each eighth frame is of the batch message.
func TestBatchTurns(t *testing.T) {
	p := newPair(t, Options{Window: 1 << 20}, Options{Window: 1 << 20})
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	for _, batch := range []bool{true, false} {
		req := typical()
		req.Body, req.Batch = pattern(24*maxFrame), batch
		p.client.c.Request(req, "http", nil)
	}
	var order []uint32
	for out := p.client.c.Output(24 * maxFrame); len(out) > 0; out = out[frameHead+parseFrame(out).length:] {
		if f := parseFrame(out); f.typ == frameData {
			order = append(order, f.id)
		}
	}
	if len(order) < 17 {
		t.Fatalf("%d frames", len(order))
	}
	for i, id := range order {
		want := uint32(3)
		if i%batchFrames == batchFrames-1 {
			want = 1
		}
		if id != want {
			t.Errorf("frame %d is of stream %d, want %d", i, id, want)
		}
	}
}

// TestWindowsGivenBack: a window is given back once a quarter of it was received, or taken.
func TestWindowsGivenBack(t *testing.T) {
	const window = 1 << 20 // a quarter of the connection's
	p, l := receiver(t, window, true)
	if l.data(window - 1); updates(t, p, l) != 0 {
		t.Error("the connection's is given back too early")
	}
	if l.data(1); updates(t, p, l) != 1 {
		t.Error("the connection's is not given back")
	}
	st := p.c.streams.get(1)
	if p.c.Consumed(st, window/4-1); updates(t, p, l) != 0 {
		t.Error("the stream's is given back too early")
	}
	if p.c.Consumed(st, 1); updates(t, p, l) != 1 {
		t.Error("the stream's is not given back")
	}
	if p.c.Consumed(st, 1); updates(t, p, l) != 0 || st.recv != window/4 || st.given != 1 {
		t.Errorf("then the client may send %d bytes, and %d were taken", st.recv, st.given)
	}
	l.data(window / 4)
	updates(t, p, l)
	if m := p.got[1]; m.why != nil || len(m.body) != window+window/4 {
		t.Errorf("%d bytes, %v", len(m.body), m.why)
	}
}

// TestConnectionWindow: each quarter of the connection's window is given back at once.
func TestConnectionWindow(t *testing.T) {
	p, l := receiver(t, 1<<16, true)
	quarter := leastConnWin / 4
	for round := range 3 {
		if p.c.bodies.giveBack(quarter - 1); updates(t, p, l) != 0 {
			t.Errorf("round %d: too early", round)
		}
		if p.c.bodies.giveBack(1); updates(t, p, l) != 1 {
			t.Errorf("round %d: not given back", round)
		}
	}
}

// TestPaddingGivenBack: padding takes no window for long, since no handler takes it.
func TestPaddingGivenBack(t *testing.T) {
	for _, c := range []struct{ frames, content, padding int }{{10, 10, 200}, {600, 1, 0}} {
		p, l := receiver(t, 1000, true)
		for range c.frames {
			l.WriteDataPadded(1, false, make([]byte, c.content), make([]byte, c.padding))
		}
		updates(t, p, l)
		if m := p.got[1]; m.why != nil || len(m.body) != c.frames*c.content {
			t.Errorf("%+v: %d bytes, %v", c, len(m.body), m.why)
		}
	}
}

// TestIdsUsedUp: a client opens no stream beyond the last id.
func TestIdsUsedUp(t *testing.T) {
	for latest, want := range map[uint32]int{0: 100, maxID - 4: 2, maxID - 2: 1, maxID: 0} {
		p := newClient(t, Options{})
		p.c.streams.latest = latest
		if n := p.c.MayOpen(); n != want {
			t.Errorf("behind stream %d: %d more", latest, n)
		}
		if want > 0 && want < 100 {
			if id := p.c.Request(typical(), "http", nil).ID(); id != latest+2 {
				t.Errorf("behind stream %d: %d", latest, id)
			}
		}
	}
}

// TestRememberedStreams: the ids that were added last are known, and the highest that was forgotten.
func TestRememberedStreams(t *testing.T) {
	var m memory
	for id := uint32(1); id <= 11; id += 2 {
		m.add(id, 4)
	}
	for id, want := range map[uint32]bool{1: false, 3: false, 5: true, 7: true, 9: true, 11: true} {
		if m.has(id) != want {
			t.Errorf("stream %d is known: %t", id, !want)
		}
	}
	if m.evicted != 3 {
		t.Errorf("the highest that was forgotten: %d", m.evicted)
	}
}

// TestNotReady: DATA that waits for the connection's window is nothing to send, although its stream has a window.
func TestNotReady(t *testing.T) {
	p := newClient(t, Options{})
	for range 2 {
		req := typical()
		req.Body = pattern(40_000)
		p.c.Request(req, "http", nil)
	}
	sent := 0
	for i := 0; p.c.Ready(); i++ {
		if sent += len(p.c.Output(1 << 20)); i > 10 {
			t.Fatal("still ready")
		}
	}
	if sent > defaultWindow+1000 { // with heads
		t.Errorf("%d bytes are sent, many of them frames without DATA", sent)
	}
	if w := &p.c.w; w.window != 0 || w.held != 80_000-defaultWindow {
		t.Errorf("%d bytes wait for a window of %d", w.held, w.window)
	}
}

// TestWritable: who could not send all hears of it once, when half of what is held has left. Nobody else hears of it.
func TestWritable(t *testing.T) {
	p, l := newClient(t, Options{}), newLibrary()
	l.WriteSettings()
	st := p.c.RequestHead(typical(), "http", -1, false)
	grant := func(n int) int {
		t.Helper()
		l.WriteWindowUpdate(0, uint32(n))
		l.WriteWindowUpdate(st.ID(), uint32(n))
		if err := l.feed(p); err != nil {
			t.Fatal(err)
		}
		return p.of(st).writable
	}
	send := func(n, want int) {
		t.Helper()
		if got := p.c.Send(st, make([]byte, n)); got != want {
			t.Errorf("%d of %d bytes are taken, want %d", got, n, want)
		}
	}
	send(defaultWindow, defaultWindow)
	send(1, 1)
	if grant(1); p.c.w.held != 0 || st.Held() != 0 {
		t.Errorf("a byte is not sent: %d, %d", p.c.w.held, st.Held())
	}
	send(99, 99)
	if n := grant(99); n != 0 || st.Held() != 0 {
		t.Errorf("%d calls, although all was taken; %d bytes are held", n, st.Held())
	}
	send(sendBound+1, sendBound)
	send(1, 0)
	if n := grant(sendBound/2 - 1); n != 0 {
		t.Errorf("%d calls while more than half is held", n)
	}
	if n := grant(1); n != 1 {
		t.Errorf("%d calls for the half, want 1", n)
	}
	if n := grant(100); n != 1 {
		t.Errorf("%d calls, want no other", n)
	}
	for _, st := range p.c.w.events[:cap(p.c.w.events)] {
		if st != nil {
			t.Error("a stream is kept for its event")
		}
	}
}

// TestWholeAtOnce: a message goes out at once, and its owner is released, if it fits a frame and the windows and no other waits, or
// if it is short and not batch.
func TestWholeAtOnce(t *testing.T) {
	for _, c := range []struct {
		name         string
		queued       int // bytes of messages before, each of which goes out at once
		beside       bool
		size         int
		batch, wants bool
	}{
		{"a frame", 0, false, maxFrame, false, true},
		{"more than a frame", 0, false, maxFrame + 1, false, false},
		{"the window", 3 * maxFrame, false, defaultWindow - 3*maxFrame, false, true},
		{"more than the window", 3 * maxFrame, false, defaultWindow - 3*maxFrame + 1, false, false},
		{"short, beside another", 0, true, smallBody, false, true},
		{"longer, beside another", 0, true, smallBody + 1, false, false},
		{"short batch, beside another", 0, true, 1, true, false},
		{"batch alone", 0, false, maxFrame, true, true},
	} {
		p := newClient(t, Options{})
		send := func(size int, batch bool) *owner {
			req := typical()
			req.Body, req.Batch = pattern(size), batch
			o := &owner{t: t}
			p.c.Request(req, "http", o)
			return o
		}
		for range c.queued / maxFrame {
			if send(maxFrame, false).released != 1 {
				t.Errorf("%s: a message before waits", c.name)
			}
		}
		if c.beside {
			send(2*maxFrame, false)
		}
		if got := send(c.size, c.batch).released == 1; got != c.wants {
			t.Errorf("%s: goes out at once: %t", c.name, got)
		}
	}
}

// TestSentMemory: what was sent of the pieces of a long body does not stay in memory.
func TestSentMemory(t *testing.T) {
	p, l := newClient(t, Options{}), newLibrary()
	l.WriteSettings()
	st := p.c.RequestHead(typical(), "http", -1, false)
	p.c.Send(st, make([]byte, defaultWindow))
	for range 100 {
		p.c.Send(st, make([]byte, sendBound))
		l.WriteWindowUpdate(0, sendBound/2)
		l.WriteWindowUpdate(st.ID(), sendBound/2)
		if err := l.feed(p); err != nil {
			t.Fatal(err)
		}
		if n := cap(st.buf.B); n > 4*sendBound {
			t.Fatalf("%d bytes of memory for %d", n, len(st.data))
		}
	}
}

// TestInitialWindow: DATA goes as far as the initial window of its stream, and not in empty frames.
func TestInitialWindow(t *testing.T) {
	for _, window := range []int{0, 1, 100, maxFrame, maxFrame + 1} {
		p := newClient(t, Options{})
		if err := p.c.Feed(appendSetting(appendFrame(nil, settingLen, frameSettings, 0, 0), settingInitialWindow, window)); err != nil {
			t.Fatal(err)
		}
		req := typical()
		req.Body = pattern(maxFrame + 2)
		p.c.Request(req, "http", nil)
		out := p.c.Output(1 << 20)[len(Preface):]
		sent := 0
		for ; len(out) > 0; out = out[frameHead+parseFrame(out).length:] {
			f := parseFrame(out)
			if f.typ != frameData {
				continue
			}
			if sent += f.length; f.length == 0 {
				t.Errorf("window %d: an empty frame", window)
			}
		}
		if sent != window {
			t.Errorf("window %d: %d bytes are sent", window, sent)
		}
	}
}

// TestReadyWithBoth: a message and a batch message that wait make a Conn ready.
func TestReadyWithBoth(t *testing.T) {
	p := newClient(t, Options{})
	for _, batch := range []bool{false, true} {
		req := typical()
		req.Body, req.Batch = pattern(30_000), batch
		p.c.Request(req, "http", nil)
	}
	if p.c.Output(1); !p.c.Ready() {
		t.Error("not ready")
	}
	if out := p.c.Output(0); out != nil {
		t.Errorf("%d bytes, although none are wanted", len(out))
	}
}
