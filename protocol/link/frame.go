package link

import "encoding/binary"

// A frame is
//
//	type and flags (1 byte) | stream id (varint) | length (varint) | payload
//
// with the type in the low five bits and three flags above it. Frames without a stream use the
// stream id for a number of their own, or 0.
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

	// Peers that don't know these skip them.
	frameInterim  frameType = 16
	frameStart    frameType = 17
	frameWithdraw frameType = 18
	frameProbe    frameType = 19
	frameAnswer   frameType = 20

	// Unknown types from here to 31 are skipped, so that a later version can add frames. Lower
	// unknown types end the link.
	frameSkippable frameType = 21
)

// skipped reports whether a Reader skips frames of the type.
func (t frameType) skipped() bool { return t >= frameSkippable }

const (
	typeMask = 0x1f

	// flagMore, on REQUEST and RESPONSE: the payload starts with the length of the whole
	// message, and DATA frames carry the rest.
	flagMore = 0x20

	// flagAbort, on DATA: there is no payload, and the sender sends no more of the message.
	flagAbort = 0x20
)

// headerRoom is reserved in MaxFrame for the frame header, which has at most 14 bytes. A
// frame's payload has at most MaxFrame - headerRoom bytes.
const headerRoom = 16

type header struct {
	typ    frameType
	flags  uint8
	id     uint64
	length int
}

func appendHeader(dst []byte, typeAndFlags uint8, id uint64, length int) []byte {
	if id < 0x80 && length < 0x80 {
		return append(dst, typeAndFlags, byte(id), byte(length))
	}
	dst = append(dst, typeAndFlags)
	dst = binary.AppendUvarint(dst, id)
	return binary.AppendUvarint(dst, uint64(length))
}

// parseHeader reads a frame header at the start of b and returns its length n, which is 0 if b
// does not hold the whole header.
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
	if length > uint64(maxPayload) || f.typ != frameData && length > maxWhole-headerRoom {
		return f, 0, ErrFrameSize
	}
	f.id, f.length = id, int(length)
	return f, 1 + k + m, nil
}

// varintError returns nil for a varint that is only incomplete.
func varintError(n int) error {
	if n < 0 {
		return ErrVarint
	}
	return nil
}

// Integers travel as unsigned LEB128 in the shortest form: seven bits per byte, the lowest
// first, with the top bit set on all bytes but the last.

// parseVarint reads a varint at the start of b and returns its value and length: 0 if b ends
// before the varint, and negative if the varint is malformed.
func parseVarint(b []byte) (v uint64, n int) {
	switch {
	case len(b) > 0 && b[0] < 0x80:
		return uint64(b[0]), 1
	case len(b) > 1 && b[1]-1 < 0x7f: // two bytes, as of most lengths and streams
		return uint64(b[0]&0x7f) | uint64(b[1])<<7, 2
	}
	v, n = binary.Uvarint(b)
	if n >= 2 && b[n-1] == 0 {
		return 0, -1 // not the shortest form
	}
	return v, n
}

// parseVarints reads the four varints at the start of b; false if they are not there.
func parseVarints(b []byte) (fields [4]uint64, ok bool) {
	for i := range fields {
		v, n := parseVarint(b)
		if n <= 0 {
			return fields, false
		}
		fields[i], b = v, b[n:]
	}
	return fields, true
}

func varintLen(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}
