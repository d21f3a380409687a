package wire

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/net/http2/hpack"
)

// Preface is what an HTTP/2 client sends first.
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Types, flags and settings of HTTP/2 (RFC 9113, section 6) that the lab knows.
const (
	Data, Headers, Reset, Settings, Ping, WindowUpdate = 0, 1, 3, 4, 6, 8

	Ack, EndStream, EndHeaders = 1, 1, 4

	TableSize = 1
)

// Windows and tables at the start of a connection.
const (
	FirstWindow = 1<<16 - 1
	MostWindow  = 1<<31 - 1
	FirstTable  = 4096
)

// frameHead is the length of a frame's head.
const frameHead = 9

// Frame is one frame of HTTP/2. Its payload aliases the input.
type Frame struct {
	Type, Flags byte
	Stream      uint32
	Payload     []byte
}

// ParseFrame parses the frame at the start of b. It returns the frame's length, or ErrIncomplete.
func ParseFrame(b []byte) (f Frame, n int, err error) {
	if len(b) < frameHead {
		return f, 0, ErrIncomplete
	}
	n = frameHead + int(b[0])<<16 + int(b[1])<<8 + int(b[2])
	if n > MaxBody {
		return f, 0, ErrTooLarge
	}
	if len(b) < n {
		return f, 0, ErrIncomplete
	}
	return Frame{b[3], b[4], binary.BigEndian.Uint32(b[5:]) & MostWindow, b[frameHead:n]}, n, nil
}

// AppendFrame appends f.
func AppendFrame(dst []byte, f Frame) []byte {
	n := len(f.Payload)
	dst = append(dst, byte(n>>16), byte(n>>8), byte(n), f.Type, f.Flags)
	return append(binary.BigEndian.AppendUint32(dst, f.Stream), f.Payload...)
}

// AppendWindow appends a WINDOW_UPDATE of n bytes.
func AppendWindow(dst []byte, stream uint32, n int) []byte {
	return AppendFrame(dst, Frame{WindowUpdate, 0, stream, binary.BigEndian.AppendUint32(nil, uint32(n))})
}

// Setting returns the last value of a setting in the payload of SETTINGS, or otherwise.
func (f *Frame) Setting(id uint16, otherwise int) int {
	for b := f.Payload; len(b) >= 6; b = b[6:] {
		if binary.BigEndian.Uint16(b) == id {
			otherwise = int(binary.BigEndian.Uint32(b[2:]))
		}
	}
	return otherwise
}

// Increment is what a WINDOW_UPDATE adds.
func (f *Frame) Increment() int {
	if len(f.Payload) != 4 {
		return 0
	}
	return int(binary.BigEndian.Uint32(f.Payload) & MostWindow)
}

// Call is all frames of one side of a gRPC call. Only the number of the stream differs from
// call to call, and the first one of a connection, which fills the table of its peer.
type Call struct {
	frames [2][]byte // of the first call, and of all others
	heads  [2][]int  // where the frames begin
	Data   int       // bytes that count for windows
}

// NewCall makes a call of one message, for a peer with a table of so many bytes. Trailers may be nil.
func NewCall(table int, head []hpack.HeaderField, message []byte, trailers []hpack.HeaderField) *Call {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	e.SetMaxDynamicTableSizeLimit(uint32(min(table, FirstTable)))
	fields := func(all []hpack.HeaderField) []byte {
		block.Reset()
		for _, f := range all {
			e.WriteField(f) // to memory
		}
		return block.Bytes()
	}
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))) // not compressed
	body = append(body, message...)
	c := &Call{Data: len(body)}
	for i := range c.frames {
		add := func(f Frame) {
			c.heads[i] = append(c.heads[i], len(c.frames[i]))
			c.frames[i] = AppendFrame(c.frames[i], f)
		}
		add(Frame{Type: Headers, Flags: EndHeaders, Payload: fields(head)})
		if trailers == nil {
			add(Frame{Type: Data, Flags: EndStream, Payload: body})
			continue
		}
		add(Frame{Type: Data, Payload: body})
		add(Frame{Type: Headers, Flags: EndHeaders | EndStream, Payload: fields(trailers)})
	}
	return c
}

// Append appends the frames of the call on a stream. first says that the connection had none before.
func (c *Call) Append(dst []byte, stream uint32, first bool) []byte {
	i := 1
	if first {
		i = 0
	}
	start := len(dst)
	dst = append(dst, c.frames[i]...)
	for _, head := range c.heads[i] {
		binary.BigEndian.PutUint32(dst[start+head+5:], stream)
	}
	return dst
}
