package link

import "encoding/binary"

// A frame is
//
//	type and flags (1 byte) | stream id (varint) | length (varint) | payload
//
// with the type in the low five bits and three flags above it. Frames that
// belong to no stream use the stream id for a number of their own, or 0.
type frameType uint8

const (
	frameRequest   frameType = 1
	frameResponse  frameType = 2
	frameData      frameType = 3
	frameCredit    frameType = 4
	frameCancel    frameType = 5
	frameCancelAck frameType = 6
	frameRefused   frameType = 7
	framePing      frameType = 8
	framePong      frameType = 9
	frameGoAway    frameType = 10
	frameDefine    frameType = 11
	frameLoad      frameType = 12

	// Types from here to 31 are skipped when unknown; below, unknown types end
	// the link. So a later version can add frames that an older one survives.
	frameSkippable frameType = 16
)

const (
	typeMask = 0x1f

	// flagMore, on REQUEST and RESPONSE: the payload starts with the length of
	// the whole message, and the rest of it follows in DATA frames.
	flagMore = 0x20

	// flagAbort, on DATA: there is no payload, and the sender will send no more
	// of the message.
	flagAbort = 0x20
)

// headerRoom is set aside in MaxFrame for the frame header, which is at most 14
// bytes: a frame's payload is at most MaxFrame - headerRoom.
const headerRoom = 16

// header is a decoded frame header.
type header struct {
	typ    frameType
	flags  uint8
	id     uint64
	length int
}

// appendHeader appends the header of a frame with length bytes of payload.
func appendHeader(dst []byte, typeAndFlags uint8, id uint64, length int) []byte {
	if id < 0x80 && length < 0x80 {
		return append(dst, typeAndFlags, byte(id), byte(length))
	}
	dst = append(dst, typeAndFlags)
	dst = binary.AppendUvarint(dst, id)
	return binary.AppendUvarint(dst, uint64(length))
}

// appendShort appends a frame of which the payload is one varint.
func appendShort(dst []byte, t frameType, id, payload uint64) []byte {
	dst = appendHeader(dst, uint8(t), id, varintLen(payload))
	return binary.AppendUvarint(dst, payload)
}

// parseHeader reads a frame header at the start of b and its length n, which is 0
// when b does not hold all of it.
func parseHeader(b []byte, maxPayload int) (f header, n int, err error) {
	if len(b) < 3 {
		return f, 0, nil // no header is shorter
	}
	f.typ, f.flags = frameType(b[0]&typeMask), b[0]&^typeMask
	id, k := parseVarint(b[1:])
	if k <= 0 {
		return f, 0, varintError(k)
	}
	length, m := parseVarint(b[1+k:])
	if m <= 0 {
		return f, 0, varintError(m)
	}
	if length > uint64(maxPayload) {
		return f, 0, ErrFrameSize
	}
	f.id, f.length = id, int(length)
	return f, 1 + k + m, nil
}

// varintError is nil for a varint that is merely incomplete.
func varintError(n int) error {
	if n < 0 {
		return ErrVarint
	}
	return nil
}
