package http2

import (
	"bytes"
	_ "embed" // of frameFile
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

//go:embed testdata/frames.txt
var frameFile string

// FuzzFrames checks that any input causes no panic and bounded memory, and has the same outcome
// whole and byte by byte, on both sides.
func FuzzFrames(f *testing.F) {
	var wire []byte
	for line := range strings.SplitSeq(frameFile, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.HasPrefix(line, "case") {
			wire = nil
		} else if b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(line), " ", "")); err == nil {
			wire = append(wire, b...)
		} else {
			f.Add(false, wire)
			f.Add(true, wire)
		}
	}
	f.Fuzz(func(t *testing.T, client bool, wire []byte) {
		o := Options{Streams: 3, Limits: protocol.Limits{Header: 1000, Headers: 10}}
		if !client {
			wire = append([]byte(Preface), wire...)
		}
		run := func(n int) (*outcomes, error) {
			h := &outcomes{}
			h.reply = typicalResponse()
			h.Conn = newConn(client, &o, h)
			for range 3 {
				if client {
					h.Request(typical(), "http", nil)
				}
			}
			for piece := range slices.Chunk(wire, n) {
				if err := h.Feed(piece); err != nil {
					return h, err
				}
				if b := h.Buffered(); b > 2*maxFrame+controlBound+len(wire)*100 {
					t.Fatalf("%d bytes buffered", b)
				}
				if h.StreamCount() > 3 || h.bodies.given >= h.opts.connWindow()/4 {
					t.Fatalf("%d open, %d bytes not given back", h.StreamCount(), h.bodies.given)
				}
			}
			return h, nil
		}
		whole, err := run(len(wire) + 1)
		bytewise, errb := run(1)
		if err != errb || !slices.Equal(whole.all, bytewise.all) {
			t.Fatalf("whole: %v %q\nbyte by byte: %v %q", err, whole.all, errb, bytewise.all)
		}
		if a, b := whole.Output(1<<30), bytewise.Output(1<<30); !bytes.Equal(a, b) {
			t.Fatalf("whole: %x\nbyte by byte: %x", a, b)
		}
		for _, h := range []*outcomes{whole, bytewise} {
			h.Close()
			if h.StreamCount() != 0 || h.Buffered() != 0 {
				t.Fatalf("closed with %d streams and %d bytes", h.StreamCount(), h.Buffered())
			}
		}
	})
}

// session is a client and a server that a script drives.
type session struct {
	*pair
	t      *testing.T
	script []byte
	owners []*owner
	ways   [2][]byte // on the way to the server, and to the client
}

// next returns the next byte of the script, and 0 behind its end.
func (s *session) next() int {
	if len(s.script) == 0 {
		return 0
	}
	b := s.script[0]
	s.script = s.script[1:]
	return int(b)
}

func (s *session) owner() *owner {
	o := &owner{t: s.t}
	s.owners = append(s.owners, o)
	return o
}

// pattern is a body whose bytes tell their place.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

// stream returns an open stream of a side, or nil.
func (s *session) stream(c *Conn) *Stream {
	var ids []uint32
	for _, st := range c.streams.slots {
		if st != nil {
			ids = append(ids, st.id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	return c.streams.get(ids[s.next()%len(ids)])
}

func (s *session) step() {
	size := 1 << (s.next() % 18)
	switch s.next() % 12 {
	case 0, 1:
		req := typical()
		req.Body, req.Batch = pattern(size-1), size%3 == 0
		o := s.owner()
		if st := s.client.c.Request(req, "http", o); st == nil {
			o.Release()
		}
	case 2:
		s.client.c.RequestHead(typical(), "https", -1, false)
	case 3:
		if st := s.stream(s.client.c); st != nil {
			s.piece(s.client.c, st, size)
		}
	case 4:
		if st := s.stream(s.server.c); st != nil {
			s.piece(s.server.c, st, size)
		}
	case 5:
		if st := s.stream(s.client.c); st != nil {
			s.client.c.Finish(st, fields("a: b")[:s.next()%2])
		}
	case 6:
		if st := s.stream(s.server.c); st != nil {
			s.server.c.Finish(st, fields("a: b")[:s.next()%2])
		}
	case 7:
		if st := s.stream(s.server.c); st != nil && s.server.got[st.id] != nil && s.server.got[st.id].head {
			res := typicalResponse()
			res.Body, res.Batch = pattern(size-1), size%3 == 0
			s.server.c.Respond(st, res, s.owner())
		}
	case 8:
		if st := s.stream(s.server.c); st != nil {
			res := typicalResponse()
			s.server.c.ResponseHead(st, res)
		}
	case 9:
		side := []*peer{s.client, s.server}[s.next()%2]
		if st := s.stream(side.c); st != nil {
			if m := side.got[st.id]; m != nil {
				m.over = true
			}
			side.c.Reset(st, Cancel)
		}
	case 10:
		side := []*peer{s.client, s.server}[s.next()%2]
		switch s.next() % 8 {
		case 0:
			side.c.Drain()
		case 1, 2:
			side.c.Ping(7)
		case 3, 4:
			side.c.Barrier()
		case 5:
			side.refuse = !side.refuse
		case 6:
			side.c.GoAway(NoError)
		}
	case 11:
		for range 1 + s.next()%4 {
			s.move(s.next()%2, size)
		}
	}
}

// piece sends a piece that goes on where what was sent ends, as far as the test can know.
func (s *session) piece(c *Conn, st *Stream, size int) {
	b := bytes.Repeat([]byte{byte(st.id)}, size)
	if n := c.Send(st, b); n < 0 || n > len(b) {
		s.t.Fatalf("%d of %d taken", n, len(b))
	}
	if len(st.data) > sendBound && st.owner == nil && st.buf != nil {
		s.t.Fatalf("%d bytes held", len(st.data))
	}
}

// move takes output of one side, and gives the other at most n bytes of what is on the way.
func (s *session) move(way, n int) {
	from, to := s.client, s.server
	if way == 1 {
		from, to = to, from
	}
	s.ways[way] = append(s.ways[way], from.c.Output(n)...)
	n = min(n, len(s.ways[way]))
	if err := to.c.Feed(s.ways[way][:n]); err != nil {
		s.t.Fatalf("way %d: %v", way, err)
	}
	s.ways[way] = s.ways[way][n:]
	for _, p := range []*peer{from, to} {
		if p.c.w.window < 0 || p.c.w.held < 0 || p.c.bodies.given >= p.c.opts.connWindow()/4 {
			s.t.Fatalf("window %d, given %d, held %d", p.c.w.window, p.c.bodies.given, p.c.w.held)
		}
		for _, st := range p.c.streams.slots {
			// A window falls below 0 only if SETTINGS have lowered it.
			if st != nil && (st.recv < p.c.opts.window()-defaultWindow && st.recv < 0 || st.window < -defaultWindow) {
				s.t.Fatalf("stream %d: windows %d %d, given %d", st.id, st.recv, st.window, st.given)
			}
		}
	}
}

// FuzzSession drives a client and a server with a script, with all splits. They never refuse
// each other, no window is below 0, each owner is released once, and whole bodies arrive whole.
func FuzzSession(f *testing.F) {
	f.Add([]byte("\x09\x00\x05\x0b\x03\x00\x01\x00\x01\x09\x07\x00\x05\x0b\x03\x01\x00\x01\x00"))
	f.Add([]byte{5, 2, 9, 3, 0, 17, 11, 2, 0, 1, 0, 5, 4, 0, 3, 5, 0, 1, 17, 11, 3, 0, 1, 0, 1})
	f.Add(bytes.Repeat([]byte{17, 0, 17, 11, 3, 0, 1, 0, 1, 16, 7, 0, 4, 9, 1, 0}, 9))
	f.Add([]byte("020X00#101")) // a window falls below 0 while its stream has a turn
	f.Add(bytes.Repeat([]byte{10, 1, 12, 11, 1, 0, 1, 3, 10, 0, 3, 4, 10, 1, 5}, 9))
	f.Add(bytes.Repeat([]byte{0, 10, 0, 1}, 4000))                     // the client pings
	f.Add(bytes.Repeat([]byte{17, 0, 17, 11, 0, 0, 0, 9, 0, 0}, 3000)) // requests that the client resets
	f.Fuzz(func(t *testing.T, script []byte) {
		// A longer script can make a side respond to more PING than controlBound, before the other side reads.
		s := &session{t: t, script: script[:min(len(script), 8<<10)]}
		limits := protocol.Limits{Header: 16 << 10, Headers: 100}
		// A long script asks for more PING and RST_STREAM than a peer may send. The other floods
		// keep their bounds: a connection that causes them by itself has a defect.
		floods := Floods{Pings: math.MaxInt, Resets: math.MaxInt}
		s.pair = newPair(t, Options{Window: 1 << (10 + s.next()%10), Limits: limits, Floods: floods},
			Options{Window: 1 << (10 + s.next()%10), Limits: limits, Floods: floods, Streams: 1 + s.next()%20})
		for len(s.script) > 0 {
			s.step()
		}
		for range 1000 { // until nothing moves
			if !s.client.c.Ready() && !s.server.c.Ready() && len(s.ways[0])+len(s.ways[1]) == 0 {
				break
			}
			s.move(0, 1<<20)
			s.move(1, 1<<20)
		}
		for id, m := range s.server.got {
			if m.end && m.reset == nil && len(m.body) > 0 && m.body[0] == 0 && !bytes.Equal(m.body, pattern(len(m.body))) {
				t.Fatalf("stream %d: a body is damaged", id)
			}
		}
		for _, st := range s.client.c.streams.slots {
			if st != nil && len(st.data) > 0 {
				t.Fatalf("stream %d: %d bytes are stuck, windows %d, %d", st.id, len(st.data), st.window, s.client.c.w.window)
			}
		}
		s.client.c.Close()
		s.server.c.Close()
		for i, o := range s.owners {
			if o.released != 1 {
				t.Fatalf("owner %d was released %d times", i, o.released)
			}
		}
		if n := s.client.c.w.held + s.server.c.w.held + s.client.c.StreamCount() + s.server.c.StreamCount(); n != 0 {
			t.Fatalf("%d bytes or streams are left", n)
		}
	})
}
