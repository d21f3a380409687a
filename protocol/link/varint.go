package link

import "encoding/binary"

// Integers travel as unsigned LEB128: seven bits per byte, the lowest first, the
// top bit set on all bytes but the last, in the shortest form.

// parseVarint reads a varint at the start of b: its value and length. n is 0 when
// b ends before the varint does, and negative when it is malformed.
func parseVarint(b []byte) (v uint64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	v, n = binary.Uvarint(b)
	if n > 1 && b[n-1] == 0 {
		return 0, -1 // a longer form of a smaller number
	}
	return v, n
}

// varintLen is the length of v as a varint.
func varintLen(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}
