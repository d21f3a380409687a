package dubbo

import "encoding/binary"

// A frame is a header of 16 bytes, big-endian, and a body:
//
//	magic (2) | flags and serialization id (1) | status (1) | id (8) | length of the body (4)
const (
	HeaderSize = 16 // length of a frame's header in bytes
	magic      = 0xdabb

	flagRequest       = 0x80
	flagTwoWay        = 0x40
	flagEvent         = 0x20
	serializationMask = 0x1f
)

// Ids of the supported serializations.
const (
	Hessian2 byte = 2
	Fastjson byte = 6
)

// Frame is one message.
type Frame struct {
	Request       bool // false means a response
	TwoWay        bool // the request expects a response
	Event         bool // a heartbeat or another message about the connection itself
	Serialization byte // id, at most 31
	Status        Status
	ID            int64  // chosen by the caller, repeated in the response
	Body          []byte // aliases the decoded bytes
}

// Decode reads the frame at the start of b and returns its length n, or 0 if b does not hold
// all of it. A body of more than maxBody bytes is refused as soon as its header is complete.
func Decode(b []byte, maxBody int) (f Frame, n int, err error) {
	f, length, err := DecodeHeader(b, maxBody)
	if err != nil || length < 0 || len(b) < HeaderSize+length {
		return f, 0, err
	}
	n = HeaderSize + length
	f.Body = b[HeaderSize:n:n]
	return f, n, nil
}

// DecodeHeader reads the header at the start of b: the frame without its body, and the length
// of the body, which is -1 if b does not hold the whole header.
func DecodeHeader(b []byte, maxBody int) (f Frame, length int, err error) {
	if len(b) < HeaderSize {
		if len(b) > 0 && b[0] != magic>>8 || len(b) > 1 && b[1] != magic&0xff {
			return f, -1, ErrMagic
		}
		return f, -1, nil
	}
	if binary.BigEndian.Uint16(b) != magic {
		return f, -1, ErrMagic
	}
	size := int32(binary.BigEndian.Uint32(b[12:]))
	if size < 0 || int(size) > maxBody {
		return f, -1, ErrFrameTooLarge
	}
	return Frame{
		Request:       b[2]&flagRequest != 0,
		TwoWay:        b[2]&flagTwoWay != 0,
		Event:         b[2]&flagEvent != 0,
		Serialization: b[2] & serializationMask,
		Status:        Status(b[3]),
		ID:            int64(binary.BigEndian.Uint64(b[4:])),
	}, int(size), nil
}

// AppendFrame appends f.
func AppendFrame(dst []byte, f *Frame) []byte {
	return append(AppendHeader(dst, f), f.Body...)
}

// AppendHeader appends the header of f, which the body follows.
func AppendHeader(dst []byte, f *Frame) []byte {
	flags := f.Serialization & serializationMask
	if f.Request {
		flags |= flagRequest
	}
	if f.TwoWay {
		flags |= flagTwoWay
	}
	if f.Event {
		flags |= flagEvent
	}
	dst = append(dst, magic>>8, magic&0xff, flags, byte(f.Status))
	dst = binary.BigEndian.AppendUint64(dst, uint64(f.ID))
	return binary.BigEndian.AppendUint32(dst, uint32(len(f.Body)))
}

// endFrame writes the length of the body, which ends dst, into the header at start.
func endFrame(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start+HeaderSize-4:], uint32(len(dst)-start-HeaderSize))
	return dst
}
