// Package h2 is an end of an HTTP/2 connection that sends any frame, right or wrong, and keeps what it receives.
package h2

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

	"github.com/remora-proxy/remora/e2e/harness"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Frame is a frame as it is sent, whether it follows the rules or not.
func Frame(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), byte(kind), byte(flags)}
	return append(encoding.BigEndian.AppendUint32(b, stream), payload...)
}

// Flags of HEADERS, CONTINUATION and DATA.
const (
	EndHeaders = http2.FlagHeadersEndHeaders
	EndStream  = http2.FlagHeadersEndStream
)

// Word is a number of four bytes.
func Word(n uint32) []byte { return encoding.BigEndian.AppendUint32(nil, n) }

// Settings is a SETTINGS frame.
func Settings(settings ...http2.Setting) []byte {
	var payload []byte
	for _, s := range settings {
		payload = append(encoding.BigEndian.AppendUint16(payload, uint16(s.ID)), Word(s.Val)...)
	}
	return Frame(http2.FrameSettings, 0, 0, payload)
}

// SettingsAck acknowledges SETTINGS.
func SettingsAck() []byte { return Frame(http2.FrameSettings, http2.FlagSettingsAck, 0, nil) }

// Reset is a RST_STREAM frame.
func Reset(stream uint32, code http2.ErrCode) []byte {
	return Frame(http2.FrameRSTStream, 0, stream, Word(uint32(code)))
}

// WindowUpdate is a WINDOW_UPDATE frame.
func WindowUpdate(stream, n uint32) []byte {
	return Frame(http2.FrameWindowUpdate, 0, stream, Word(n))
}

// GoAway is a GOAWAY frame.
func GoAway(last uint32, code http2.ErrCode) []byte {
	return Frame(http2.FrameGoAway, 0, 0, append(Word(last), Word(uint32(code))...))
}

// Data is a DATA frame.
func Data(stream uint32, flags http2.Flags, b []byte) []byte {
	return Frame(http2.FrameData, flags, stream, b)
}

// Block is a header block of literals, without a use of the dynamic table. Names and values go
// by turns, as they are.
func Block(fields ...string) []byte {
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

// Heads is a header block in as many frames as it needs.
func Heads(stream uint32, flags http2.Flags, block []byte) []byte {
	const most = 16 << 10
	first, rest := block[:min(len(block), most)], block[min(len(block), most):]
	if len(rest) == 0 {
		flags |= EndHeaders
	}
	b := Frame(http2.FrameHeaders, flags, stream, first)
	for len(rest) > 0 {
		n := min(len(rest), most)
		flags = 0
		if n == len(rest) {
			flags = EndHeaders
		}
		b = append(b, Frame(http2.FrameContinuation, flags, stream, rest[:n])...)
		rest = rest[n:]
	}
	return b
}

// RequestFields are the fields of a request, and more of them.
func RequestFields(method, path string, more ...string) []string {
	return append([]string{":method", method, ":scheme", "http", ":path", path, ":authority", "a"}, more...)
}

// Get is a whole GET.
func Get(stream uint32, path string) []byte {
	return Heads(stream, EndStream, Block(RequestFields("GET", path)...))
}

// Post is the head of a POST.
func Post(stream uint32, path string, more ...string) []byte {
	return Heads(stream, 0, Block(RequestFields("POST", path, more...)...))
}

// Stream is what a peer has received of one stream.
type Stream struct {
	Fields []hpack.HeaderField // of all heads and trailers
	Body   []byte
	Length int // of the body; the rest of a long one is not in body
	Ended  bool
	Reset  bool
	Code   http2.ErrCode // of the RST_STREAM
}

// Field returns the last value of a field, or "".
func (s *Stream) Field(name string) string {
	for _, f := range slices.Backward(s.Fields) {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// Heard is what a peer has received on a connection.
type Heard struct {
	Streams     map[uint32]*Stream
	settings    map[http2.SettingID]uint32
	acks, pongs int
	pings       [][8]byte
	increments  map[uint32]int // of windows, by streams
	GoingAway   bool
	Code        http2.ErrCode // of the latest GOAWAY
	last        uint32        // of the latest GOAWAY
	Ended       bool          // the connection
	Wrong       error         // received, and not HTTP/2
	Order       []uint32      // the streams that have begun
}

// Stream returns what was received of a stream.
func (h *Heard) Stream(id uint32) *Stream {
	if h.Streams[id] == nil {
		h.Streams[id] = &Stream{}
		h.Order = append(h.Order, id)
	}
	return h.Streams[id]
}

// Calmed reports whether the connection was ended by a limit of floods.
func (h *Heard) Calmed() bool {
	return h.GoingAway && h.Code == http2.ErrCodeEnhanceYourCalm && h.Ended
}

// Peer is an end of an HTTP/2 connection that sends what it is told, and keeps what it receives.
type Peer struct {
	Nc    net.Conn
	Mu    sync.Mutex
	more  *sync.Cond
	Heard Heard
}

// NewPeer returns a peer that hears nothing before listen. The caller closes nc.
func NewPeer(nc net.Conn) *Peer {
	p := &Peer{Nc: nc}
	p.more = sync.NewCond(&p.Mu)
	p.Heard.Streams = map[uint32]*Stream{}
	p.Heard.settings = map[http2.SettingID]uint32{}
	p.Heard.increments = map[uint32]int{}
	return p
}

// Listen reads until the end of the connection.
func (p *Peer) Listen() {
	fr := http2.NewFramer(io.Discard, p.Nc)
	fr.AllowIllegalReads = true
	dec := hpack.NewDecoder(4096, nil)
	fr.SetMaxReadFrameSize(1<<24 - 1)
	var block []byte
	for {
		f, err := fr.ReadFrame()
		p.Mu.Lock()
		if err != nil {
			if p.Heard.Ended = true; !errors.Is(err, io.EOF) && !errors.As(err, new(net.Error)) {
				p.Heard.Wrong = err
			}
			p.more.Broadcast()
			p.Mu.Unlock()
			return
		}
		if err := p.take(f, dec, &block); err != nil && p.Heard.Wrong == nil {
			p.Heard.Wrong = err
		}
		p.more.Broadcast()
		p.Mu.Unlock()
	}
}

func (p *Peer) take(f http2.Frame, dec *hpack.Decoder, block *[]byte) error {
	h, id := &p.Heard, f.Header().StreamID
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
		h.GoingAway, h.Code, h.last = true, f.ErrCode, f.LastStreamID
	case *http2.RSTStreamFrame:
		s := h.Stream(id)
		s.Reset, s.Code = true, f.ErrCode
	case *http2.WindowUpdateFrame:
		h.increments[id] += int(f.Increment)
	case *http2.DataFrame:
		s := h.Stream(id)
		s.Length += len(f.Data())
		if len(s.Body) < 1<<10 {
			s.Body = append(s.Body, f.Data()...)
		}
		p.end(s, f.StreamEnded())
	case *http2.HeadersFrame:
		*block = append((*block)[:0], f.HeaderBlockFragment()...)
		p.end(h.Stream(id), f.StreamEnded())
		return p.fields(id, f.HeadersEnded(), dec, *block)
	case *http2.ContinuationFrame:
		*block = append(*block, f.HeaderBlockFragment()...)
		return p.fields(id, f.HeadersEnded(), dec, *block)
	}
	return nil
}

func (p *Peer) end(s *Stream, ended bool) {
	if ended {
		s.Ended = true
	}
}

func (p *Peer) fields(id uint32, complete bool, dec *hpack.Decoder, block []byte) error {
	if !complete {
		return nil
	}
	fields, err := dec.DecodeFull(block)
	s := p.Heard.Stream(id)
	s.Fields = append(s.Fields, fields...)
	return err
}

// Until waits for what the peer hears.
func (p *Peer) Until(what string, is func(h *Heard) bool) error {
	late := false
	timer := time.AfterFunc(harness.Patience, func() {
		p.Mu.Lock()
		defer p.Mu.Unlock()
		late = true
		p.more.Broadcast()
	})
	defer timer.Stop()
	p.Mu.Lock()
	defer p.Mu.Unlock()
	for !is(&p.Heard) {
		switch {
		case p.Heard.Ended:
			return fmt.Errorf("the connection ended before %s: %s", what, &p.Heard)
		case late:
			return fmt.Errorf("timeout waiting for %s: %s", what, &p.Heard)
		}
		p.more.Wait()
	}
	return nil
}

// UntilEnd waits for the end of the connection, and then for what was said at it.
func (p *Peer) UntilEnd(want func(h *Heard) bool) error {
	if err := p.Until("the end of the connection", func(h *Heard) bool { return h.Ended }); err != nil {
		return err
	}
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if !want(&p.Heard) {
		return fmt.Errorf("the connection ended otherwise than it should: %s", &p.Heard)
	}
	return nil
}

// Over reports whether the connection has ended, or no new stream is taken.
func (p *Peer) Over() bool {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	return p.Heard.Ended || p.Heard.GoingAway
}

// Send reports whether the connection took the bytes.
func (p *Peer) Send(b ...[]byte) bool {
	_, err := p.Nc.Write(slices.Concat(b...))
	return err == nil
}

// Repeat sends what next returns, in pieces of many, until the connection is over. It returns
// after so many of them at the latest.
func (p *Peer) Repeat(most int, next func(i int) []byte) {
	var b []byte
	for i := range most {
		if b = append(b, next(i)...); len(b) > 8<<10 || i == most-1 {
			if p.Over() || !p.Send(b) {
				return
			}
			b = b[:0]
		}
	}
}

// String lists what was heard, for messages of tests.
func (h *Heard) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "goaway %v %v, ended %v, %d acks, %d pongs, %d streams", h.GoingAway, h.Code, h.Ended, h.acks, h.pongs, len(h.Streams))
	if h.Wrong != nil {
		fmt.Fprintf(&b, ", wrong: %v", h.Wrong)
	}
	for i, id := range slices.Sorted(maps.Keys(h.Streams)) {
		if i == 5 {
			b.WriteString(" …")
			break
		}
		s := h.Streams[id]
		fmt.Fprintf(&b, "\n%d: %v, %d bytes %.60q, ended %v, reset %v %v", id, s.Fields, s.Length, s.Body, s.Ended, s.Reset, s.Code)
	}
	return b.String()
}

// Hello is what a client sends first.
func Hello(settings ...http2.Setting) []byte {
	return append([]byte(http2.ClientPreface), Settings(settings...)...)
}
