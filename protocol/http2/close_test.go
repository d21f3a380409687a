package http2

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	xhttp2 "golang.org/x/net/http2"

	"github.com/remora-proxy/remora/protocol"
)

// TestGracefulGoAway lets requests pass that are under way, and drops those that come later.
func TestGracefulGoAway(t *testing.T) {
	p := newPair(t, Options{}, Options{})
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	first := p.client.c.Request(typical(), "http", nil).ID()
	p.server.c.Drain() // the client does not know yet
	late := p.client.c.Request(typical(), "http", nil).ID()
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(p.client.goAway, ", "); got != "2147483647 0, 3 0" || p.client.c.MayOpen() != 0 {
		t.Errorf("GOAWAY %s, may open %d", got, p.client.c.MayOpen())
	}
	if p.client.c.Request(typical(), "http", nil) != nil {
		t.Error("a request after GOAWAY")
	}
	for _, id := range []uint32{first, late} {
		p.server.c.Respond(p.server.c.streams.get(id), typicalResponse(), nil)
	}
	if err := p.run(); err != nil || !p.client.got[first].over || !p.client.got[late].over {
		t.Errorf("%v", err)
	}
}

// TestResponseRefused: a response that nobody takes ends its stream, and no other.
func TestResponseRefused(t *testing.T) {
	p := newPair(t, Options{}, Options{})
	p.server.onRequest = func(st *Stream, _ bool) {
		p.server.c.ResponseHead(st, typicalResponse())
	}
	p.client.refuse = true
	st := p.client.c.Request(typical(), "http", nil)
	id := st.ID()
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	if m := p.server.got[id]; st.ID() != 0 || m.reset == nil || *m.reset != Cancel || p.client.c.StreamCount() != 0 || p.server.c.StreamCount() != 0 {
		t.Errorf("stream %d, %+v", st.ID(), m)
	}
	p.client.refuse = false
	next := p.client.c.Request(typical(), "http", nil).ID()
	if err := p.run(); err != nil || !p.client.got[next].head {
		t.Errorf("the next: %v", err)
	}
}

// TestDrainTwice: a second Drain says nothing, and neither does one after the end.
func TestDrainTwice(t *testing.T) {
	p := newServer(t, Options{})
	p.c.Output(1 << 20)
	p.c.Drain()
	if n := len(p.c.Output(1 << 20)); n != frameHead+8+frameHead+8 {
		t.Errorf("%d bytes, want a GOAWAY and a PING", n)
	}
	if p.c.Drain(); p.c.Ready() {
		t.Error("says it again")
	}
	for _, c := range []struct {
		name  string
		c     *Conn
		data  uint64
		final bool
	}{
		{"another PONG", p.c, 1, false}, {"the PONG of no Drain", newServer(t, Options{}).c, drainPing, false}, {"the PONG", p.c, drainPing, true},
	} {
		if !c.c.usable() || c.c.state == connPreface {
			if err := c.c.Feed(append([]byte(Preface), appendFrame(nil, 0, frameSettings, 0, 0)...)); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.c.Feed(appendPing(nil, flagAck, c.data)); err != nil || c.c.Final() != c.final {
			t.Errorf("%s: final %t, %v", c.name, c.c.Final(), err)
		}
	}
	failed := newServer(t, Options{})
	_ = failed.c.Feed([]byte("GET"))
	failed.c.Output(1 << 20)
	if failed.c.Drain(); failed.c.Ready() {
		t.Error("says it after the end")
	}
}

// TestDrainPong: the PONG of a drain is no useless work, but a second one is.
func TestDrainPong(t *testing.T) {
	p := newServer(t, Options{Floods: Floods{Others: 1}}) // the empty SETTINGS are the one
	if err := p.c.Feed(append([]byte(Preface), appendFrame(nil, 0, frameSettings, 0, 0)...)); err != nil {
		t.Fatal(err)
	}
	p.c.Drain()
	if err := p.c.Feed(appendPing(nil, flagAck, drainPing)); err != nil || !p.c.Final() {
		t.Errorf("the PONG: %v, final %t", err, p.c.Final())
	}
	if err := p.c.Feed(appendPing(nil, flagAck, drainPing)); err != error(ErrOthers) {
		t.Errorf("the PONG again: %v, want %v", err, ErrOthers)
	}
}

// TestUnprocessed checks which requests a GOAWAY rules out.
func TestUnprocessed(t *testing.T) {
	p := newPair(t, Options{}, Options{})
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	a := p.client.c.Request(typical(), "http", nil).ID()
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	p.server.c.GoAway(InternalError)
	o := &owner{t: t}
	req := typical()
	req.Body = pattern(100_000)
	b := p.client.c.Request(req, "http", o).ID()
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	if m := p.client.got[b]; m == nil || m.why != ErrUnprocessed || o.released != 1 {
		t.Errorf("%+v, released %d", m, o.released)
	}
	if p.client.got[a].reset != nil || p.server.got[b] != nil {
		t.Error("the wrong stream ended")
	}
}

// resetter resets another stream when it hears of the end of one.
type resetter struct {
	*peer
	other *Stream
}

func (r *resetter) OnReset(st *Stream, code Code, why *Error) {
	r.peer.OnReset(st, code, why)
	if other := r.other; other != nil {
		r.other = nil
		r.c.Reset(other, Cancel)
	}
}

// TestUnprocessedReset checks that a handler may end other streams while it hears which were not processed.
func TestUnprocessedReset(t *testing.T) {
	p := newClient(t, Options{})
	r := &resetter{peer: p}
	p.c.handler, p.c.responses = r, r
	for range 2 {
		p.c.Request(typical(), "http", nil)
	}
	r.other = p.c.streams.get(3)
	wire := appendGoAway(appendFrame(nil, 0, frameSettings, 0, 0), 0, NoError)
	if err := p.c.Feed(wire); err != nil || p.c.StreamCount() != 0 || p.got[1] == nil || p.got[1].why != ErrUnprocessed || p.got[3] != nil {
		t.Errorf("%v, %d streams", err, p.c.StreamCount())
	}
}

// TestFramesBehindGoAway: what still comes of a stream that began behind the last one is dropped, and counts.
func TestFramesBehindGoAway(t *testing.T) {
	p, l := newServer(t, Options{Floods: Floods{Others: 20}}), newLibrary()
	l.out.WriteString(Preface)
	l.WriteSettings()
	l.headers(1, false, strings.Split(requestLines, "|")...)
	if err := l.feed(p); err != nil {
		t.Fatal(err)
	}
	p.c.GoAway(NoError)
	l.headers(3, false, strings.Split(requestLines, "|")...)
	for range 4 {
		l.WriteData(3, false, []byte("dropped"))
	}
	l.headers(3, true, "a: b")
	l.WriteData(1, true, []byte("taken"))
	if err := l.feed(p); err != nil || p.got[3] != nil || string(p.got[1].body) != "taken" {
		t.Fatalf("%v, %+v", err, p.got[3])
	}
	var err error
	for i := 0; err == nil && i < 100; i++ {
		l.headers(3, true, "a: b")
		err = l.feed(p)
	}
	if err != error(ErrOthers) {
		t.Errorf("then %v", err)
	}
}

// TestMemoryOfIds: of many ids the latest are remembered, and which was the highest that is forgotten.
func TestMemoryOfIds(t *testing.T) {
	const bound = 5
	var m memory
	for id := range uint32(4 * bound) {
		m.add(id+1, bound)
		for other := range uint32(4 * bound) {
			if want := other <= id && other+bound > id; m.has(other+1) != want {
				t.Errorf("after %d ids: %d is remembered: %t", id+1, other+1, !want)
			}
		}
		if want := max(0, int(id+1)-bound); int(m.evicted) != want {
			t.Errorf("after %d ids: %d is forgotten, want %d", id+1, m.evicted, want)
		}
	}
}

// TestHeadersOnForgottenStreams: HEADERS on streams that we may have reset count.
func TestHeadersOnForgottenStreams(t *testing.T) {
	p, l := newServer(t, Options{Floods: Floods{Others: 20}}), newLibrary()
	l.out.WriteString(Preface)
	l.WriteSettings()
	if err := l.feed(p); err != nil {
		t.Fatal(err)
	}
	p.c.streams.latest, p.c.streams.resets.evicted = 11, 9
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		l.headers(7, true, strings.Split(requestLines, "|")...)
		err = l.feed(p)
	}
	if err != error(ErrOthers) || n != 20 {
		t.Errorf("%v at the HEADERS number %d, want %v at 20: empty SETTINGS count, too", err, n, ErrOthers)
	}
}

// TestForgottenResets checks frames on streams that we have reset so long ago that we have forgotten it.
func TestForgottenResets(t *testing.T) {
	p, l := newServer(t, Options{Streams: 1000}), newLibrary()
	p.refuse = true
	l.out.WriteString(Preface)
	l.WriteSettings()
	for i := range uint32(resetMemory + 1) {
		l.headers(2*i+1, false, strings.Split(requestLines, "|")...)
	}
	for _, id := range []uint32{1, 3, 2*resetMemory + 1} {
		l.WriteData(id, false, []byte("late"))
		l.headers(id, true, strings.Split(requestLines, "|")...)
	}
	if err := l.feed(p); err != nil || p.c.streams.resets.evicted != 1 {
		t.Errorf("%v, up to stream %d is forgotten", err, p.c.streams.resets.evicted)
	}
}

// TestReset checks that both sides go on after resets, and that owners are released.
func TestReset(t *testing.T) {
	p := newPair(t, Options{}, Options{})
	o, so := &owner{t: t}, &owner{t: t}
	req := typical()
	req.Body = pattern(1 << 20)
	st := p.client.c.Request(req, "http", o)
	id := st.ID()
	if err := p.server.c.Feed(p.client.c.Output(20_000)); err != nil {
		t.Fatal(err)
	}
	res := typicalResponse()
	res.Body = pattern(1 << 20)
	p.server.c.Respond(p.server.c.streams.get(id), res, so)
	p.client.c.Reset(st, Cancel)
	p.client.c.Reset(st, Cancel)
	if o.released != 1 || st.ID() != 0 || p.client.c.Send(st, []byte("x")) != 0 {
		t.Errorf("released %d", o.released)
	}
	p.client.c.Barrier()
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	if m := p.server.got[id]; m.reset == nil || *m.reset != Cancel || m.why != nil || so.released != 1 || p.client.barriers != 1 {
		t.Errorf("%+v, released %d, barriers %d", m.reset, so.released, p.client.barriers)
	}
	p.server.onRequest = func(st *Stream, _ bool) { p.server.c.Respond(st, typicalResponse(), nil) }
	again := p.client.c.Request(typical(), "http", nil).ID()
	if err := p.run(); err != nil || !p.client.got[again].over {
		t.Errorf("%v", err)
	}
}

// TestRefused checks a stream that the handler refuses, and one over the limit.
func TestRefused(t *testing.T) {
	p := newPair(t, Options{}, Options{Streams: 1})
	a, b := p.client.c.Request(typical(), "http", nil).ID(), p.client.c.Request(typical(), "http", nil).ID()
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	if m := p.client.got[b]; m == nil || *m.reset != RefusedStream || p.client.got[a].reset != nil {
		t.Errorf("%v", m.reset)
	}
	if p.client.c.MayOpen() != 0 {
		t.Errorf("may open %d", p.client.c.MayOpen())
	}
	p.server.c.Respond(p.server.c.streams.get(a), typicalResponse(), nil)
	p.server.refuse = true
	if err := p.run(); err != nil || p.client.c.MayOpen() != 1 {
		t.Fatal(err, p.client.c.MayOpen())
	}
	c := p.client.c.Request(typical(), "http", nil).ID()
	if err := p.run(); err != nil || *p.client.got[c].reset != RefusedStream {
		t.Error(err)
	}
}

// TestBarriers checks the order and the bound of barriers, and pings.
func TestBarriers(t *testing.T) {
	one := newClient(t, Options{})
	one.c.Barrier()
	wire := appendFrame(nil, 0, frameSettings, 0, 0)
	for acks, want := range []int{0, 0, 1} { // the first acknowledgement is that of our SETTINGS
		if err := one.c.Feed(wire); err != nil || one.barriers != want {
			t.Errorf("%d barriers after %d acknowledgements, want %d, %v", one.barriers, acks, want, err)
		}
		wire = appendFrame(nil, 0, frameSettings, flagAck, 0)
	}
	p := newPair(t, Options{}, Options{})
	n := 0
	for p.client.c.Barrier() {
		n++
	}
	p.client.c.Ping(42)
	if err := p.server.c.Feed(p.client.c.Output(1 << 20)); err != nil {
		t.Fatal(err)
	}
	said := p.server.c.Output(1 << 20)
	if err := p.client.c.Feed(said); err != nil || n != maxBarriers-1 || p.client.barriers != n || !bytes.HasSuffix(said, appendPing(nil, flagAck, 42)) {
		t.Errorf("%v: %d barriers of %d, the end is %x", err, p.client.barriers, n, said[len(said)-17:])
	}
}

// TestWindowChange lets the peer take windows back below 0, and give them again.
func TestWindowChange(t *testing.T) {
	p, l := newClient(t, Options{}), newLibrary()
	req := typical()
	req.Body = pattern(100_000)
	p.c.Request(req, "http", nil)
	if n := len(p.c.Output(1 << 20)); n < 65535 {
		t.Fatalf("%d bytes", n)
	}
	for _, c := range []struct{ window, more, want int }{{0, 0, 0}, {100, 65435, 0}, {101, 65435, 1}, {65535, 1 << 20, 34464}} {
		l.out.Write([]byte{0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, byte(c.window >> 16), byte(c.window >> 8), byte(c.window)})
		if c.more > 0 {
			l.WriteWindowUpdate(0, 1<<20)
		}
		if c.want > 1 || c.window == 100 {
			l.WriteWindowUpdate(1, uint32(c.more))
		}
		before := p.c.w.held
		if err := l.feed(p); err != nil {
			t.Fatal(err)
		}
		if got := before - p.c.w.held; got != c.want {
			t.Errorf("window %d: %d bytes, want %d", c.window, got, c.want)
		}
	}
}

// TestBatch checks that batch messages give way, whichever way they are sent.
func TestBatch(t *testing.T) {
	for name, send := range map[string]func(p *pair, i int, batch bool) (*Conn, uint32){
		"request": func(p *pair, _ int, batch bool) (*Conn, uint32) {
			req := typical()
			req.Body, req.Batch = pattern(200_000), batch
			return p.client.c, p.client.c.Request(req, "http", nil).ID()
		},
		"request in pieces": func(p *pair, _ int, batch bool) (*Conn, uint32) {
			req := typical()
			req.Batch = batch
			st := p.client.c.RequestHead(req, "http", -1, false)
			p.client.c.Send(st, pattern(200_000))
			return p.client.c, st.ID()
		},
		"response": func(p *pair, i int, batch bool) (*Conn, uint32) {
			res := typicalResponse()
			res.Body, res.Batch = pattern(200_000), batch
			st := p.server.c.streams.get(uint32(2*i + 1))
			p.server.c.Respond(st, res, nil)
			return p.server.c, st.ID()
		},
		"response in pieces": func(p *pair, i int, batch bool) (*Conn, uint32) {
			res := typicalResponse()
			res.Batch = batch
			st := p.server.c.streams.get(uint32(2*i + 1))
			p.server.c.ResponseHead(st, res)
			p.server.c.Send(st, pattern(200_000))
			return p.server.c, st.ID()
		},
	} {
		p := newPair(t, Options{Window: 1 << 20}, Options{Window: 1 << 20})
		if strings.HasPrefix(name, "response") {
			for range 2 {
				p.client.c.Request(typical(), "http", nil)
			}
		}
		if err := p.run(); err != nil {
			t.Fatal(err)
		}
		c, batch := send(p, 0, true)
		c.Output(0) // what pieces have sent while they were alone
		_, other := send(p, 1, false)
		sent := map[uint32]int{}
		for out := c.Output(50_000); len(out) > 0; out = out[frameHead+parseFrame(out).length:] {
			if f := parseFrame(out); f.typ == frameData {
				sent[f.id] += f.length
			}
		}
		if sent[other] < 3*sent[batch] || sent[other] < 3*maxFrame {
			t.Errorf("%s: batch %d, other %d", name, sent[batch], sent[other])
		}
	}
}

// TestBatchAlone: batch messages alone go out as others do, and do not wait for others that have gone.
func TestBatchAlone(t *testing.T) {
	p := newPair(t, Options{}, Options{})
	sizes := []int{200_000, 100_000}
	for i, size := range sizes {
		req := typical()
		req.Body, req.Batch = pattern(size), i == 0
		p.client.c.Request(req, "http", nil)
	}
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	for i, size := range sizes {
		if m := p.server.got[uint32(2*i+1)]; !m.end || !bytes.Equal(m.body, pattern(size)) {
			t.Errorf("%d bytes of %d, end %t", len(m.body), size, m.end)
		}
	}
}

// TestHead checks responses without content.
func TestHead(t *testing.T) {
	p := newPair(t, Options{}, Options{})
	p.server.onRequest = func(st *Stream, _ bool) {
		p.server.c.Respond(st, &protocol.Response{Status: 200, Body: []byte("hello"), DeclaredLength: -1}, nil)
	}
	id := p.client.c.Request(&protocol.Request{Method: []byte("HEAD"), Path: []byte("/"), Authority: []byte("h")}, "http", nil).ID()
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	if m := p.client.got[id]; !m.over || m.why != nil || m.res.DeclaredLength != 5 || len(m.body) != 0 {
		t.Errorf("%v, length %d, body %q", m.why, m.res.DeclaredLength, m.body)
	}
}

// TestLongHead sends a head that needs CONTINUATION.
func TestLongHead(t *testing.T) {
	o := Options{Limits: protocol.Limits{Header: 100_000, Headers: 10}}
	p := newPair(t, o, o)
	req := typical()
	req.Headers = fields("a: "+strings.Repeat("x", 50_000), "B: "+strings.Repeat("y", 30_000))
	id := p.client.c.Request(req, "http", nil).ID()
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	if m := p.server.got[id]; len(m.req.Headers) != 2 || len(m.req.Headers[1].Value) != 30_000 || !bytes.Equal(m.body, req.Body) {
		t.Errorf("%d headers", len(m.req.Headers))
	}
}

// TestHeadOfOneFrame: a head that fills the longest frame arrives, and so do a head that is a byte shorter and a head that is a byte longer.
func TestHeadOfOneFrame(t *testing.T) {
	o := Options{Limits: protocol.Limits{Header: 100_000, Headers: 10}}
	send := func(n int) (length int) { // of the first frame
		p := newPair(t, o, o)
		req := typical()
		req.Headers = fields("a: " + strings.Repeat("x", n))
		before := len(p.client.c.w.out)
		id := p.client.c.Request(req, "http", nil).ID()
		length = parseFrame(p.client.c.w.out[before:]).length
		if err := p.run(); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if m := p.server.got[id]; m == nil || len(m.req.Headers) != 1 || len(m.req.Headers[0].Value) != n || !bytes.Equal(m.body, req.Body) {
			t.Fatalf("%d bytes: the server has %+v", n, m)
		}
		return length
	}
	const probe = maxFrame - 300
	full := probe + maxFrame - send(probe)
	for n, want := range map[int]int{full - 1: maxFrame - 1, full: maxFrame, full + 1: maxFrame} {
		if got := send(n); got != want {
			t.Errorf("%d bytes: a frame of %d, want %d", n, got, want)
		}
	}
}

// TestSelfDependency: a request that depends on itself leaves no stream behind.
func TestSelfDependency(t *testing.T) {
	p, l := newServer(t, Options{}), newLibrary()
	l.out.WriteString(Preface)
	l.WriteSettings()
	if err := l.feed(p); err != nil {
		t.Fatal(err)
	}
	l.AllowIllegalWrites = true
	err := l.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}, EndHeaders: true, Priority: xhttp2.PriorityParam{StreamDep: 1, Weight: 7}})
	if err != nil {
		t.Fatal(err)
	}
	l.in.Reset()
	if err := l.feed(p); err != nil || p.c.StreamCount() != 0 || len(p.got) > 0 {
		t.Errorf("%v, %d streams, %v", err, p.c.StreamCount(), p.got)
	}
	if got := l.frames(t); !slices.Equal(got, []string{"RST PROTOCOL_ERROR"}) {
		t.Errorf("%q", got)
	}
}

// TestStates checks that become refuses changes that streamEdges lacks, and those of a Conn that go back.
func TestStates(t *testing.T) {
	for from := connPreface; from <= connClosed; from++ {
		for to := connPreface; to <= connClosed; to++ {
			func() {
				defer func() {
					if (recover() == nil) != (to > from) {
						t.Errorf("a Conn from %d to %d", from, to)
					}
				}()
				(&Conn{state: from}).become(to)
			}()
		}
	}
	for from := range streamStates {
		for to := range streamStates {
			func() {
				defer func() {
					if (recover() == nil) != streamEdges[from][to] {
						t.Errorf("from %d to %d", from, to)
					}
				}()
				(&Stream{state: from}).become(to)
			}()
		}
	}
}

// TestStreamTable compares the table of streams with a map.
func TestStreamTable(t *testing.T) {
	var table streams
	all := map[uint32]*Stream{}
	id, x := uint32(1), uint32(1)
	for range 20_000 {
		x = x*1664525 + 1013904223
		if x>>30 != 0 && len(all) < 300 {
			all[id] = table.begin(id)
			id += 2 + 2*(x>>20&31)
			continue
		}
		for id, s := range all { // any
			table.remove(s)
			delete(all, id)
			break
		}
		for id, s := range all {
			if table.get(id) != s || table.get(id+1) != nil {
				t.Fatalf("stream %d", id)
			}
		}
		if table.n != len(all) {
			t.Fatalf("%d of %d", table.n, len(all))
		}
	}
}

// TestGoAwayOnLongConnection checks that the cost of a GOAWAY depends on the streams that are open, and
// not on those that the connection has had.
func TestGoAwayOnLongConnection(t *testing.T) {
	p := newPair(t, Options{}, Options{})
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	first := p.client.c.Request(typical(), "http", nil)
	p.client.c.streams.latest = 1<<30 - 1
	last := p.client.c.Request(typical(), "http", nil).ID()
	for range 1000 {
		if err := p.client.c.Feed(appendGoAway(nil, first.ID(), NoError)); err != nil {
			t.Fatal(err)
		}
	}
	if first.ID() == 0 || p.client.got[last].why != ErrUnprocessed {
		t.Error("the wrong stream ended")
	}
}

// TestEmptyDataWithoutWindow checks that a client may end a body for which it has no window, such as
// one that it began before it knew that our windows are small.
func TestEmptyDataWithoutWindow(t *testing.T) {
	p := newPair(t, Options{}, Options{Window: 1000})
	p.server.hold = true
	st := p.client.c.RequestHead(typical(), "http", -1, false)
	id := st.ID()
	p.client.c.Send(st, pattern(2000))
	if err := p.run(); err != nil { // the SETTINGS cross the DATA
		t.Fatal(err)
	}
	p.client.c.Finish(st, nil)
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	if m := p.server.got[id]; !m.end || len(m.body) != 2000 {
		t.Errorf("end %t, %d bytes, %v", m.end, len(m.body), m.why)
	}
}

// TestInitAgain: a Conn that was closed within a header block begins anew.
func TestInitAgain(t *testing.T) {
	p, l := newServer(t, Options{}), newLibrary()
	l.out.WriteString(Preface)
	l.WriteSettings()
	if err := l.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}); err != nil {
		t.Fatal(err)
	}
	if err := l.feed(p); err != nil || !p.c.InHead() {
		t.Fatal(err, p.c.InHead())
	}
	if n := p.c.Buffered(); n != 1 {
		t.Errorf("%d bytes of a block of one", n)
	}
	opts := p.c.opts
	p.c.Close()
	p.c.InitServer(opts, p)
	again := &pair{newClient(t, Options{}), p}
	id := again.client.c.Request(typical(), "http", nil).ID()
	if err := again.run(); err != nil || !p.got[id].end || p.c.InHead() {
		t.Errorf("%v: %+v", err, p.got[id])
	}
}

// closer closes its Conn when it hears that a stream is over.
type closer struct {
	*peer
	resets, sent int
}

func (c *closer) OnReset(*Stream, Code, *Error) {
	if c.resets++; c.resets == 2 {
		c.c.Close()
	}
}

func (c *closer) OnSent(*Stream) {
	c.sent++
	c.c.Close()
}

// TestCloseInHandler: a handler that closes the Conn hears nothing more, and what the peer did too often is no error any more.
func TestCloseInHandler(t *testing.T) {
	p, l := newServer(t, Options{Floods: Floods{Resets: 1}}), newLibrary()
	h := &closer{peer: p}
	p.c.handler, p.c.requests = h, h
	l.out.WriteString(Preface)
	l.WriteSettings()
	for id := uint32(1); id < 7; id += 2 {
		l.headers(id, true, strings.Split(requestLines, "|")...)
	}
	for id := uint32(1); id < 7; id += 2 {
		l.WriteRSTStream(id, xhttp2.ErrCodeCancel)
	}
	if err := l.feed(p); err != nil || h.resets != 2 || p.c.StreamCount() != 0 {
		t.Errorf("%v, %d calls, %d streams", err, h.resets, p.c.StreamCount())
	}
	p.c.Close()

	c := newClient(t, Options{})
	h = &closer{peer: c}
	c.c.handler, c.c.responses = h, h
	for range 2 {
		c.c.Request(typical(), "http", nil)
	}
	if out := c.c.Output(1 << 20); out != nil || h.sent != 1 || c.c.Ready() {
		t.Errorf("%d bytes, %d calls, ready %t", len(out), h.sent, c.c.Ready())
	}
}

// again resets a stream when it hears that the stream is over, and sends another request.
type again struct{ *peer }

func (a *again) OnReset(st *Stream, code Code, why *Error) {
	a.peer.OnReset(st, code, why)
	a.c.Reset(st, Cancel)
	if len(a.got) < 4 {
		a.c.Request(typical(), "http", nil)
	}
}

// TestResetInReset: a handler that hears that a stream is over may reset it, and begin another.
func TestResetInReset(t *testing.T) {
	p := newClient(t, Options{})
	h := &again{p}
	p.c.handler, p.c.responses = h, h
	p.c.Request(typical(), "http", nil)
	wire := appendFrame(nil, 0, frameSettings, 0, 0)
	for id := uint32(1); id <= 5; id += 2 {
		wire = appendRSTStream(wire, id, RefusedStream)
	}
	if err := p.c.Feed(wire); err != nil || p.c.StreamCount() != 1 || p.c.streams.get(7) == nil {
		t.Errorf("%v, %d streams", err, p.c.StreamCount())
	}
	for id := uint32(1); id <= 5; id += 2 {
		if m := p.got[id]; m == nil || *m.reset != RefusedStream {
			t.Errorf("stream %d: %+v", id, m)
		}
	}
}

// TestFirstError: of two errors of one frame the first counts. The peer hears of one.
func TestFirstError(t *testing.T) {
	p, l := receiver(t, 1<<20, true)
	quarter := p.c.opts.connWindow() / 4
	p.c.bodies.giveBack(quarter - 1)
	p.c.w.control = controlBound                        // of a peer that reads nothing
	l.WriteDataPadded(9, false, []byte("x"), []byte{0}) // gives the window back, on a stream that has not begun
	err := l.feed(p)
	var goAways int
	for _, f := range l.frames(t) {
		if strings.HasPrefix(f, "GOAWAY") {
			goAways++
		}
	}
	if err != error(ErrIdle) || goAways != 1 {
		t.Errorf("%v, %d GOAWAY", err, goAways)
	}
}

// TestClientGoAway: the GOAWAY of a client names no stream, as all are its own, whether the client leaves or the server is at fault.
func TestClientGoAway(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(c *Conn) error
		code Code
	}{
		"leaves": {func(c *Conn) error { c.GoAway(NoError); return nil }, NoError},
		"fault":  {func(c *Conn) error { return c.Feed(appendFrame(nil, 0, framePushPromise, 0, 1)) }, ProtocolError},
	} {
		p := newClient(t, Options{})
		for range 2 {
			p.c.Request(typical(), "http", nil)
		}
		if err := p.c.Feed(appendFrame(nil, 0, frameSettings, 0, 0)); err != nil {
			t.Fatal(err)
		}
		p.c.Output(1 << 20)
		if err := c.end(p.c); (err != nil) != (c.code != NoError) {
			t.Errorf("%s: %v", name, err)
		}
		if got, want := p.c.Output(1<<20), appendGoAway(nil, 0, c.code); !bytes.Equal(got, want) {
			t.Errorf("%s: % x, want % x", name, got, want)
		}
	}
}

// TestSentBehindReset: a stream is reset before Output reports its message as sent. Output still reports the messages of other streams.
func TestSentBehindReset(t *testing.T) {
	p, l := newServer(t, Options{}), newLibrary()
	l.out.WriteString(Preface)
	l.WriteSettings()
	for id := uint32(1); id < 7; id += 2 {
		l.headers(id, true, strings.Split(requestLines, "|")...)
	}
	if err := p.c.Feed(l.out.Bytes()); err != nil {
		t.Fatal(err)
	}
	for id := uint32(1); id < 7; id += 2 {
		p.c.Respond(p.c.streams.get(id), typicalResponse(), nil)
	}
	p.c.Reset(p.c.streams.get(3), Cancel)
	p.c.Output(1 << 20)
	for id, want := range map[uint32]bool{1: true, 3: false, 5: true} {
		if p.got[id].sent != want {
			t.Errorf("stream %d was sent: %t", id, !want)
		}
	}
	if p.c.StreamCount() != 0 || p.c.Ready() {
		t.Errorf("%d streams, ready %t", p.c.StreamCount(), p.c.Ready())
	}
}

// TestGoAwayOnce: the last stream is named once. What comes behind it does not change that.
func TestGoAwayOnce(t *testing.T) {
	p, l := receiver(t, 1<<16, true)
	p.c.GoAway(NoError)
	l.headers(3, true, strings.Split(requestLines, "|")...)
	if err := l.feed(p); err != nil {
		t.Fatal(err)
	}
	l.in.Reset()
	if p.c.GoAway(InternalError); p.c.Ready() || p.c.goodbye.last != 1 {
		t.Errorf("says it again, ready %t, last %d", p.c.Ready(), p.c.goodbye.last)
	}
	if p.c.Drain(); p.c.Ready() {
		t.Error("drains after the last stream was named")
	}
	err := p.c.Feed(appendFrame(nil, 0, framePushPromise, 0, 1))
	if got, want := p.c.Output(1<<20), appendGoAway(nil, 1, ProtocolError); err != error(ErrPush) || !bytes.Equal(got, want) {
		t.Errorf("then %v: % x, want % x", err, got, want)
	}
}
