package http2

import "encoding/binary"

type frameType uint8

const (
	frameData         frameType = 0
	frameHeaders      frameType = 1
	framePriority     frameType = 2
	frameRSTStream    frameType = 3
	frameSettings     frameType = 4
	framePushPromise  frameType = 5
	framePing         frameType = 6
	frameGoAway       frameType = 7
	frameWindowUpdate frameType = 8
	frameContinuation frameType = 9
	frameTypes                  = 10 // higher types are ignored
)

const (
	flagEndStream  = 0x1 // DATA, HEADERS
	flagAck        = 0x1 // SETTINGS, PING
	flagEndHeaders = 0x4 // HEADERS, CONTINUATION
	flagPadded     = 0x8 // DATA, HEADERS
	flagPriority   = 0x20
)

// frameHead is the length of a frame header.
const frameHead = 9

// frame is a frame header (RFC 9113 section 4.1).
type frame struct {
	length int
	typ    frameType
	flags  uint8
	id     uint32
}

func (f frame) has(flag uint8) bool { return f.flags&flag != 0 }

// parseFrame reads a frame header; b has at least frameHead bytes.
func parseFrame(b []byte) frame {
	v := binary.BigEndian.Uint64(b)
	return frame{
		length: int(v >> 40),
		typ:    frameType(v >> 32),
		flags:  uint8(v >> 24),
		id:     (uint32(v)<<8 | uint32(b[8])) &^ (1 << 31),
	}
}

func appendFrame(dst []byte, length int, t frameType, flags uint8, id uint32) []byte {
	return append(dst, byte(length>>16), byte(length>>8), byte(length), byte(t), flags,
		byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
}

// putLength sets the length of the frame that begins at dst[at] and ends with dst.
func putLength(dst []byte, at int) {
	n := len(dst) - at - frameHead
	dst[at], dst[at+1], dst[at+2] = byte(n>>16), byte(n>>8), byte(n)
}

// padding removes the padding of a DATA or HEADERS frame (RFC 9113 section 6.1).
func padding(f frame, b []byte) (_ []byte, ok bool) {
	if !f.has(flagPadded) {
		return b, true
	}
	if len(b) == 0 || int(b[0]) >= len(b) {
		return nil, false
	}
	return b[1 : len(b)-int(b[0])], true
}

func appendRSTStream(dst []byte, id uint32, code Code) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(dst, 4, frameRSTStream, 0, id), uint32(code))
}

func appendWindowUpdate(dst []byte, id uint32, n int) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(dst, 4, frameWindowUpdate, 0, id), uint32(n))
}

func appendPing(dst []byte, flags uint8, data uint64) []byte {
	return binary.BigEndian.AppendUint64(appendFrame(dst, 8, framePing, flags, 0), data)
}

func appendGoAway(dst []byte, last uint32, code Code) []byte {
	dst = binary.BigEndian.AppendUint32(appendFrame(dst, 8, frameGoAway, 0, 0), last)
	return binary.BigEndian.AppendUint32(dst, uint32(code))
}

type setting uint16

const (
	settingTableSize     setting = 1
	settingPush          setting = 2
	settingMaxStreams    setting = 3
	settingInitialWindow setting = 4
	settingMaxFrame      setting = 5
	settingMaxHeader     setting = 6
)

const settingLen = 6

// settingValue is one of the SETTINGS.
type settingValue struct {
	name  setting
	value int
}

func appendSetting(dst []byte, s setting, v int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, 0, byte(s)), uint32(v))
}
