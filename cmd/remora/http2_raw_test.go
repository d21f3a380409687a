package main

import (
	encoding "encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2Frame is a frame as it is sent, whether it follows the rules or not.
func h2Frame(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), byte(kind), byte(flags)}
	return append(encoding.BigEndian.AppendUint32(b, stream), payload...)
}

const (
	endHeaders = http2.FlagHeadersEndHeaders
	endStream  = http2.FlagHeadersEndStream
)

func word(n uint32) []byte { return encoding.BigEndian.AppendUint32(nil, n) }

func h2Settings(settings ...http2.Setting) []byte {
	var payload []byte
	for _, s := range settings {
		payload = append(encoding.BigEndian.AppendUint16(payload, uint16(s.ID)), word(s.Val)...)
	}
	return h2Frame(http2.FrameSettings, 0, 0, payload)
}

func h2SettingsAck() []byte { return h2Frame(http2.FrameSettings, http2.FlagSettingsAck, 0, nil) }

func h2Reset(stream uint32, code http2.ErrCode) []byte {
	return h2Frame(http2.FrameRSTStream, 0, stream, word(uint32(code)))
}

func h2WindowUpdate(stream, n uint32) []byte {
	return h2Frame(http2.FrameWindowUpdate, 0, stream, word(n))
}

func h2GoAway(last uint32, code http2.ErrCode) []byte {
	return h2Frame(http2.FrameGoAway, 0, 0, append(word(last), word(uint32(code))...))
}

func h2Data(stream uint32, flags http2.Flags, b []byte) []byte {
	return h2Frame(http2.FrameData, flags, stream, b)
}

// h2Block is a header block of literals, without a use of the dynamic table. Names and values go
// by turns, as they are.
func h2Block(fields ...string) []byte {
	var b []byte
	text := func(s string) {
		if len(s) < 0x7f {
			b = append(b, byte(len(s)))
		} else {
			b = encoding.AppendUvarint(append(b, 0x7f), uint64(len(s)-0x7f))
		}
		b = append(b, s...)
	}
	for i := 0; i < len(fields); i += 2 {
		b = append(b, 0)
		text(fields[i])
		text(fields[i+1])
	}
	return b
}

// h2Heads is a header block in as many frames as it needs.
func h2Heads(stream uint32, flags http2.Flags, block []byte) []byte {
	const most = 16 << 10
	first, rest := block[:min(len(block), most)], block[min(len(block), most):]
	if len(rest) == 0 {
		flags |= endHeaders
	}
	b := h2Frame(http2.FrameHeaders, flags, stream, first)
	for len(rest) > 0 {
		n := min(len(rest), most)
		flags = 0
		if n == len(rest) {
			flags = endHeaders
		}
		b = append(b, h2Frame(http2.FrameContinuation, flags, stream, rest[:n])...)
		rest = rest[n:]
	}
	return b
}

// requestFields are the fields of a request, and more of them.
func requestFields(method, path string, more ...string) []string {
	return append([]string{":method", method, ":scheme", "http", ":path", path, ":authority", "a"}, more...)
}

// h2Get is a whole GET.
func h2Get(stream uint32, path string) []byte {
	return h2Heads(stream, endStream, h2Block(requestFields("GET", path)...))
}

// h2Post is the head of a POST.
func h2Post(stream uint32, path string, more ...string) []byte {
	return h2Heads(stream, 0, h2Block(requestFields("POST", path, more...)...))
}

// h2Stream is what a peer has received of one stream.
type h2Stream struct {
	fields []hpack.HeaderField // of all heads and trailers
	body   []byte
	length int // of the body; the rest of a long one is not in body
	ended  bool
	reset  bool
	code   http2.ErrCode // of the RST_STREAM
}

func (s *h2Stream) field(name string) string {
	for _, f := range slices.Backward(s.fields) {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// h2Heard is what a peer has received on a connection.
type h2Heard struct {
	streams     map[uint32]*h2Stream
	settings    map[http2.SettingID]uint32
	acks, pongs int
	pings       [][8]byte
	increments  map[uint32]int // of windows, by streams
	goingAway   bool
	code        http2.ErrCode // of the latest GOAWAY
	last        uint32        // of the latest GOAWAY
	ended       bool          // the connection
	wrong       error         // received, and not HTTP/2
	order       []uint32      // the streams that have begun
}

func (h *h2Heard) stream(id uint32) *h2Stream {
	if h.streams[id] == nil {
		h.streams[id] = &h2Stream{}
		h.order = append(h.order, id)
	}
	return h.streams[id]
}

// calmed reports whether the connection was ended by a limit of floods.
func (h *h2Heard) calmed() bool {
	return h.goingAway && h.code == http2.ErrCodeEnhanceYourCalm && h.ended
}

// h2Peer is an end of an HTTP/2 connection that sends what it is told, and keeps what it receives.
type h2Peer struct {
	nc    net.Conn
	mu    sync.Mutex
	more  *sync.Cond
	heard h2Heard
}

// newH2Peer returns a peer that hears nothing before listen. The caller closes nc.
func newH2Peer(nc net.Conn) *h2Peer {
	p := &h2Peer{nc: nc}
	p.more = sync.NewCond(&p.mu)
	p.heard.streams = map[uint32]*h2Stream{}
	p.heard.settings = map[http2.SettingID]uint32{}
	p.heard.increments = map[uint32]int{}
	return p
}

// listen reads until the end of the connection.
func (p *h2Peer) listen() {
	fr := http2.NewFramer(io.Discard, p.nc)
	fr.AllowIllegalReads = true
	dec := hpack.NewDecoder(4096, nil)
	fr.SetMaxReadFrameSize(1<<24 - 1)
	var block []byte
	for {
		f, err := fr.ReadFrame()
		p.mu.Lock()
		if err != nil {
			if p.heard.ended = true; !errors.Is(err, io.EOF) && !errors.As(err, new(net.Error)) {
				p.heard.wrong = err
			}
			p.more.Broadcast()
			p.mu.Unlock()
			return
		}
		if err := p.take(f, dec, &block); err != nil && p.heard.wrong == nil {
			p.heard.wrong = err
		}
		p.more.Broadcast()
		p.mu.Unlock()
	}
}

func (p *h2Peer) take(f http2.Frame, dec *hpack.Decoder, block *[]byte) error {
	h, id := &p.heard, f.Header().StreamID
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			h.acks++
			return nil
		}
		return f.ForeachSetting(func(s http2.Setting) error { h.settings[s.ID] = s.Val; return nil })
	case *http2.PingFrame:
		if f.IsAck() {
			h.pongs++
		} else {
			h.pings = append(h.pings, f.Data)
		}
	case *http2.GoAwayFrame:
		h.goingAway, h.code, h.last = true, f.ErrCode, f.LastStreamID
	case *http2.RSTStreamFrame:
		s := h.stream(id)
		s.reset, s.code = true, f.ErrCode
	case *http2.WindowUpdateFrame:
		h.increments[id] += int(f.Increment)
	case *http2.DataFrame:
		s := h.stream(id)
		s.length += len(f.Data())
		if len(s.body) < 1<<10 {
			s.body = append(s.body, f.Data()...)
		}
		p.end(s, f.StreamEnded())
	case *http2.HeadersFrame:
		*block = append((*block)[:0], f.HeaderBlockFragment()...)
		p.end(h.stream(id), f.StreamEnded())
		return p.fields(id, f.HeadersEnded(), dec, *block)
	case *http2.ContinuationFrame:
		*block = append(*block, f.HeaderBlockFragment()...)
		return p.fields(id, f.HeadersEnded(), dec, *block)
	}
	return nil
}

func (p *h2Peer) end(s *h2Stream, ended bool) {
	if ended {
		s.ended = true
	}
}

func (p *h2Peer) fields(id uint32, complete bool, dec *hpack.Decoder, block []byte) error {
	if !complete {
		return nil
	}
	fields, err := dec.DecodeFull(block)
	s := p.heard.stream(id)
	s.fields = append(s.fields, fields...)
	return err
}

// until waits for what the peer hears.
func (p *h2Peer) until(what string, is func(h *h2Heard) bool) error {
	late := false
	timer := time.AfterFunc(patience, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		late = true
		p.more.Broadcast()
	})
	defer timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !is(&p.heard) {
		switch {
		case p.heard.ended:
			return fmt.Errorf("the connection ended before %s: %s", what, &p.heard)
		case late:
			return fmt.Errorf("timeout waiting for %s: %s", what, &p.heard)
		}
		p.more.Wait()
	}
	return nil
}

// untilEnd waits for the end of the connection, and then for what was said at it.
func (p *h2Peer) untilEnd(want func(h *h2Heard) bool) error {
	if err := p.until("the end of the connection", func(h *h2Heard) bool { return h.ended }); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !want(&p.heard) {
		return fmt.Errorf("the connection ended otherwise than it should: %s", &p.heard)
	}
	return nil
}

// over reports whether the connection has ended, or no new stream is taken.
func (p *h2Peer) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard.ended || p.heard.goingAway
}

// send reports whether the connection took the bytes.
func (p *h2Peer) send(b ...[]byte) bool {
	_, err := p.nc.Write(slices.Concat(b...))
	return err == nil
}

// repeat sends what next returns, in pieces of many, until the connection is over. It returns
// after so many of them at the latest.
func (p *h2Peer) repeat(most int, next func(i int) []byte) {
	var b []byte
	for i := range most {
		if b = append(b, next(i)...); len(b) > 8<<10 || i == most-1 {
			if p.over() || !p.send(b) {
				return
			}
			b = b[:0]
		}
	}
}

// String lists what was heard, for messages of tests.
func (h *h2Heard) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "goaway %v %v, ended %v, %d acks, %d pongs, %d streams", h.goingAway, h.code, h.ended, h.acks, h.pongs, len(h.streams))
	if h.wrong != nil {
		fmt.Fprintf(&b, ", wrong: %v", h.wrong)
	}
	for i, id := range slices.Sorted(maps.Keys(h.streams)) {
		if i == 5 {
			b.WriteString(" …")
			break
		}
		s := h.streams[id]
		fmt.Fprintf(&b, "\n%d: %v, %d bytes %.60q, ended %v, reset %v %v", id, s.fields, s.length, s.body, s.ended, s.reset, s.code)
	}
	return b.String()
}

// h2Hello is what a client sends first.
func h2Hello(settings ...http2.Setting) []byte {
	return append([]byte(http2.ClientPreface), h2Settings(settings...)...)
}
