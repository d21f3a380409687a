package http2

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/net/http2/hpack"

	"github.com/remora-proxy/remora/protocol"
)

// bombs are heads whose text is much longer than their blocks, behind the pseudo-header fields.
var bombs = func() map[string]string {
	long, other := strings.Repeat("{", 3000), strings.Repeat("}", 3000)
	longer := strings.Repeat("a", 12000)
	return map[string]string{
		"a field again and again":     strings.Repeat("|a: "+long, 15),
		"short fields between":        strings.Repeat("|a: "+long+"|b: c", 10),
		"a long name":                 strings.Repeat("|"+strings.Repeat("n", 3000)+": v", 15),
		"values of a long name":       "|" + strings.Repeat("n", 3000) + ": 1|" + strings.Repeat("n", 3000) + ": 2",
		"cookies":                     strings.Repeat("|cookie: "+long, 10),
		"cookies, long and short":     strings.Repeat("|cookie: "+longer+"|cookie: c", 2),
		"literals":                    "|a: " + long + "|b: " + other + "|c: " + long + "|d: " + other,
		"Huffman codes":               "|a: " + strings.Repeat("a", 9000) + "|b: " + strings.Repeat("c", 9000),
		"literals behind one another": strings.Repeat("|a: "+long+"|b: "+other, 2),
	}
}()

var bombLimits = protocol.Limits{Header: 64 << 10, Headers: 100}

// within reports whether s is in b.
func within(b, s []byte) bool {
	from, at := uintptr(unsafe.Pointer(unsafe.SliceData(b[:cap(b)]))), uintptr(unsafe.Pointer(unsafe.SliceData(s)))
	return len(s) == 0 || at >= from && at+uintptr(len(s)) <= from+uintptr(cap(b))
}

// isStatic reports whether s is a constant that heads may refer to.
func isStatic(s []byte) bool { return len(s) < 100 }

// TestHeadMemory: all text of a head is in its one buffer, whose size the handler has allowed.
func TestHeadMemory(t *testing.T) {
	protocol.PoisonBuffers = true
	defer func() { protocol.PoisonBuffers = false }()
	for name, bomb := range bombs {
		p, l := newServer(t, Options{Limits: bombLimits, Buffers: &protocol.Buffers{Most: 1 << 20}}), newLibrary()
		l.out.WriteString(Preface)
		l.WriteSettings()
		for id := uint32(1); id < 7; id += 2 {
			p.asked = nil
			l.headers(id, true, strings.Split(requestLines+bomb, "|")...)
			if err := l.feed(p); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			m := p.got[id]
			if !m.head {
				t.Fatalf("%s: refused", name)
			}
			checkHead(t, name, m, bomb)
			if len(p.asked) == 0 || max(slices.Max(p.asked), doubledHead) < protocol.Held(&m.buf) { // a small one may have some room left
				t.Errorf("%s: asked for %v bytes, and took %d", name, p.asked, protocol.Held(&m.buf))
			}
			if cookies := len(protocol.Find(m.req.Headers, "cookie")); slices.Max(p.asked) < 2*cookies { // in their pieces, and as one
				t.Errorf("%s: asked for %v bytes, with %d of cookies", name, p.asked, cookies)
			}
		}
	}
}

// checkHead compares the head of m with the fields of bomb.
func checkHead(t *testing.T, name string, m *message, bomb string) {
	t.Helper()
	want := strings.Split(bomb[1:], "|")
	if strings.HasPrefix(name, "cookies") {
		want = []string{want[0] + strings.ReplaceAll(strings.Join(append([]string{""}, want[1:]...), "|"), "|cookie: ", "; ")}
	}
	if got := lines(m.req.Headers); !slices.Equal(got, want) {
		t.Errorf("%s: other fields, %d of %d", name, len(got), len(want))
	}
	if string(m.req.Method) != "GET" || string(m.req.Path) != "/p" || string(m.req.Authority) != "host" {
		t.Errorf("%s: %s %s %s", name, m.req.Method, m.req.Path, m.req.Authority)
	}
	for _, h := range m.req.Headers {
		for _, s := range [][]byte{h.Name, h.Value} {
			if !within(m.buf.B, s) && !isStatic(s) {
				t.Errorf("%s: %.10q is in other memory", name, s)
			}
		}
	}
}

// TestHeadNoRoom: a head for which there is no memory is refused alone. The table stays in step.
func TestHeadNoRoom(t *testing.T) {
	protocol.PoisonBuffers = true
	defer func() { protocol.PoisonBuffers = false }()
	for name, bomb := range bombs {
		p, l := newServer(t, Options{Limits: bombLimits, Buffers: &protocol.Buffers{Most: 1 << 20}}), newLibrary()
		l.out.WriteString(Preface)
		l.WriteSettings()
		p.full = true
		l.headers(1, false, strings.Split(requestLines+bomb, "|")...)
		if err := l.feed(p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if m := p.got[1]; !m.noRoom || m.head || m.oversize || protocol.Held(&m.buf) > doubledHead {
			t.Errorf("%s: %+v", name, m)
		}
		p.full = false
		l.headers(3, true, strings.Split(requestLines+bomb, "|")...)
		if err := l.feed(p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		checkHead(t, name, p.got[3], bomb)
	}
}

// TestRefusedHeadMemory: what the text of a refused head took for the table is given back.
func TestRefusedHeadMemory(t *testing.T) {
	buffers := &protocol.Buffers{Most: 1 << 20}
	p, l := newServer(t, Options{Limits: bombLimits, Buffers: buffers}), newLibrary()
	p.full = true
	l.out.WriteString(Preface)
	l.WriteSettings()
	l.headers(1, true, strings.Split(requestLines+"|a: "+strings.Repeat("a", 9000), "|")...) // a short Huffman code
	if err := l.feed(p); err != nil || !p.got[1].noRoom || buffers.Kept() != protocol.RoomOf(9000) {
		t.Errorf("%v, %d bytes are given back", err, buffers.Kept())
	}
}

// TestUnwantedText: the rest of a refused head does not copy the text of the table that it refers to.
func TestUnwantedText(t *testing.T) {
	buffers := &protocol.Buffers{Most: 1 << 20}
	p, l := newServer(t, Options{Limits: bombLimits, Buffers: buffers}), newLibrary()
	p.full = true
	l.out.WriteString(Preface)
	l.WriteSettings()
	long := "|a: " + strings.Repeat("{", 3000)
	literal := "|b: " + strings.Repeat("a", 9000) // gets memory that has room for more
	l.headers(1, true, strings.Split(requestLines+long+literal+strings.Repeat(long, 3), "|")...)
	if err := l.feed(p); err != nil || !p.got[1].noRoom {
		t.Fatal(err, p.got[1])
	}
	b := buffers.Get(9000)
	if memory := string(b.B[:cap(b.B)]); !strings.Contains(memory, "aaaa") || strings.Contains(memory, "{{{{") {
		t.Errorf("%d bytes of the literal are there, %d bytes of the table", strings.Count(memory, "a"), strings.Count(memory, "{"))
	}
}

// TestHeadNoMoreRoom: a head whose memory was granted for a while is refused like one that has never had any.
func TestHeadNoMoreRoom(t *testing.T) {
	protocol.PoisonBuffers = true
	defer func() { protocol.PoisonBuffers = false }()
	for name, bomb := range bombs {
		for agreed, all := 1, 2; agreed < all; agreed++ {
			p, l := newServer(t, Options{Limits: bombLimits, Buffers: &protocol.Buffers{Most: 1 << 20}}), newLibrary()
			l.out.WriteString(Preface)
			l.WriteSettings()
			p.full, p.agreed = true, agreed
			l.headers(1, false, strings.Split(requestLines+bomb, "|")...)
			if err := l.feed(p); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if m := p.got[1]; m.noRoom == m.head || m.oversize || m.head && len(p.asked) > agreed {
				t.Errorf("%s, %d times agreed of %d: %+v", name, agreed, len(p.asked), m)
			}
			p.full, p.asked = false, nil
			l.headers(3, true, strings.Split(requestLines+bomb, "|")...)
			if err := l.feed(p); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			checkHead(t, name, p.got[3], bomb)
			all = len(p.asked)
		}
	}
}

// TestResponseNoRoom: a response for which there is no memory is given up. It is no fault of the peer.
func TestResponseNoRoom(t *testing.T) {
	for name, bomb := range bombs {
		p := newPair(t, Options{Limits: bombLimits, Floods: Floods{Provoked: 1}}, Options{Limits: bombLimits})
		res := &protocol.Response{Status: 200, Headers: fields(strings.Split(bomb[1:], "|")...), DeclaredLength: -1}
		p.server.onRequest = func(st *Stream, _ bool) { p.server.c.Respond(st, res, nil) }
		p.client.full = true
		for range 5 {
			p.client.c.Request(&protocol.Request{Method: []byte("GET"), Path: []byte("/"), Authority: []byte("a")}, "http", nil)
		}
		if err := p.run(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for id := uint32(1); id < 11; id += 2 {
			if m := p.client.got[id]; m == nil || m.why != ErrNoRoom || *m.reset != Cancel {
				t.Errorf("%s: %+v", name, m)
			}
		}
	}
}

// TestRoomOfHead: a head that fits its buffer needs no leave for more memory. It has nothing of the message before.
func TestRoomOfHead(t *testing.T) {
	const room = 1000
	stale := func() []protocol.Header { return fields("stale: header") }
	for _, client := range []bool{false, true} {
		p, l := newPeer(t, client, Options{}), newLibrary()
		m := &message{}
		m.buf.B = make([]byte, 0, room)
		m.req = protocol.Request{Method: []byte("PUT"), Headers: stale(), Trailers: stale(), Body: []byte("stale"), Service: []byte("stale"), Batch: true}
		m.res = protocol.Response{Status: 500, Headers: stale(), Trailers: stale(), Body: []byte("stale"), Reason: []byte("stale"), Batch: true}
		p.got[1] = m
		lines := responseLines
		if client {
			p.c.Request(typical(), "http", nil)
		} else {
			l.out.WriteString(Preface)
			lines = requestLines
		}
		l.WriteSettings()
		l.headers(1, true, strings.Split(lines+"|a: b|x-long: "+strings.Repeat("x", 500), "|")...)
		if err := l.feed(p); err != nil {
			t.Fatal(err)
		}
		hs := m.req.Headers
		if client {
			hs = m.res.Headers
			if m.res.Status != 200 || len(m.res.Trailers) > 0 || m.res.Body != nil || m.res.Reason != nil || m.res.Batch {
				t.Errorf("response %+v", m.res)
			}
		} else if string(m.req.Method) != "GET" || len(m.req.Trailers) > 0 || m.req.Body != nil || m.req.Service != nil || m.req.Batch {
			t.Errorf("request %+v", m.req)
		}
		if len(hs) != 2 || hs[0].String() != "a: b" || !within(m.buf.B, hs[1].Value) || cap(m.buf.B) != room || len(p.asked) > 0 {
			t.Errorf("client %t: %d fields, in memory of %d; asked for %v", client, len(hs), cap(m.buf.B), p.asked)
		}
	}
}

// TestHuffmanHead: a head has the memory of its text, also if the Huffman code makes it longer. A shorter code
// passes no more than the limit.
func TestHuffmanHead(t *testing.T) {
	limits := protocol.Limits{Header: 32 << 10, Headers: 100}
	for name, c := range map[string]struct {
		text   string
		n      int
		passes bool
	}{
		"long codes":            {"\xff", 20 << 10, true}, // 26 bits
		"short codes":           {"a", 32000, true},       // 5 bits
		"short codes, too many": {"a", 33000, false},
		"a bomb":                {"a", 80 << 10, false},
	} {
		p, l := newServer(t, Options{Limits: limits, Buffers: &protocol.Buffers{Most: 1 << 20}}), newLibrary()
		value := strings.Repeat(c.text, c.n)
		l.headers(1, false, strings.Split(requestLines, "|")...)
		block := append(bytes.Clone(l.block.Bytes()), 0, 1, 'x', 0xff)
		code := hpack.AppendHuffmanString(nil, value)
		block = append(appendInteger(block, len(code)-0x7f), code...)
		l.out.Reset()
		l.out.WriteString(Preface)
		l.WriteSettings()
		l.blocks(1, block)
		if err := l.feed(p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m := p.got[1]
		if m.head != c.passes || m.oversize == c.passes {
			t.Errorf("%s: head %t, oversize %t", name, m.head, m.oversize)
		}
		if c.passes && string(protocol.Find(m.req.Headers, "x")) != value {
			t.Errorf("%s: another value", name)
		}
		if held, most := protocol.Held(&m.buf), protocol.RoomOf(2*limits.Header); held > most {
			t.Errorf("%s: %d bytes are held, want at most %d", name, held, most)
		}
		if most := slices.Max(append(p.asked, 0)); most > protocol.RoomOf(len(value)+200) || most > protocol.RoomOf(2*limits.Header) {
			t.Errorf("%s: asked for %d bytes", name, most)
		}
	}
}

// appendInteger appends what exceeds a full prefix of an integer of HPACK.
func appendInteger(b []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// TestTrailersWait: trailers that wait for a window count, until they are sent or the stream is over.
func TestTrailersWait(t *testing.T) {
	for name, end := range map[string]func(p *pair, id uint32){
		"sent":  func(p *pair, id uint32) { p.client.c.Consumed(p.client.c.streams.get(id), 1<<20) },
		"reset": func(p *pair, id uint32) { p.client.c.Reset(p.client.c.streams.get(id), Cancel) },
	} {
		p := newPair(t, Options{Window: 1000}, Options{})
		p.client.hold = true
		long := fields("a: " + strings.Repeat("x", 5000))
		p.server.onRequest = func(st *Stream, _ bool) {
			c := p.server.c
			c.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: -1})
			c.Send(st, make([]byte, 2000))
			c.Finish(st, long)
			if held := st.Held(); held < 6000 {
				t.Errorf("%s: the stream holds %d bytes", name, held)
			}
		}
		st := p.client.c.Request(&protocol.Request{Method: []byte("GET"), Path: []byte("/"), Authority: []byte("a")}, "http", nil)
		if err := p.run(); err != nil {
			t.Fatal(err)
		}
		if held := p.server.c.Encoded(); held < 6000 {
			t.Errorf("%s: %d bytes while the window is closed", name, held)
		}
		end(p, st.ID())
		if err := p.run(); err != nil {
			t.Fatal(err)
		}
		if c := p.server.c; c.Buffered() != 0 || c.Encoded() != 0 {
			t.Errorf("%s: %d and %d bytes at the end", name, c.Buffered(), c.Encoded())
		}
	}
}

// TestHeadGoes: whatever a head was, an idle Conn keeps nothing of it, and room for a few trailers only.
func TestHeadGoes(t *testing.T) {
	many := strings.Repeat("|a: b", bombLimits.Headers)
	for name, blocks := range map[string][]string{
		"request":      {requestLines + many},
		"trailers":     {requestLines, many[1:]},
		"few trailers": {requestLines, "a: b"},
		"bad trailers": {requestLines, "a: b|:path: /"},
		"too many":     {requestLines + many + "|c: d"},
		"bad field":    {requestLines + "|a: b|connection: close"},
		"nobody's":     {requestLines + many, many[1:], many[1:]},
		"other host":   {requestLines + "|host: other"},
	} {
		p, l := newServer(t, Options{Limits: bombLimits, Buffers: &protocol.Buffers{Most: 1 << 20}}), newLibrary()
		l.out.WriteString(Preface)
		l.WriteSettings()
		for i, b := range blocks {
			l.headers(1, i > 0, strings.Split(b, "|")...)
		}
		_ = l.feed(p) // the third block is an error
		h := &p.c.heads.decoder.head
		if h.method != nil || h.path != nil || h.authority != nil || h.host != nil || h.headers != nil {
			t.Errorf("%s: a head is kept", name)
		}
		fields := p.c.heads.fields[:cap(p.c.heads.fields)]
		if len(fields) > keepFields || slices.ContainsFunc(fields, func(f protocol.Header) bool { return f.Name != nil }) {
			t.Errorf("%s: trailers are kept, %d of them", name, len(fields))
		}
	}
}

// TestHeadMemoryLimit: heads have all the memory that the limit of their text allows, and no more.
func TestHeadMemoryLimit(t *testing.T) {
	limits := protocol.Limits{Header: 20_000, Headers: 100}
	used := len(":methodGET:schemehttp:path/p:authorityhost") + 4*fieldFraming + 6*(fieldFraming+len("a")+3000)
	for _, over := range []int{0, 1} {
		p, l := newServer(t, Options{Limits: limits, Buffers: &protocol.Buffers{Most: 1 << 20}}), newLibrary()
		l.out.WriteString(Preface)
		l.WriteSettings()
		last := strings.Repeat("x", limits.Header-used-fieldFraming-len("b")+over)
		l.headers(1, true, strings.Split(requestLines+strings.Repeat("|a: "+strings.Repeat("{", 3000), 6)+"|b: "+last, "|")...)
		if err := l.feed(p); err != nil {
			t.Fatal(err)
		}
		if m := p.got[1]; m.head != (over == 0) || m.oversize != (over == 1) {
			t.Errorf("%d bytes over the limit: head %t, oversize %t", over, m.head, m.oversize)
		}
		if most := slices.Max(p.asked); most > protocol.RoomOf(2*limits.Header) {
			t.Errorf("asked for %d bytes", most)
		}
	}
}
