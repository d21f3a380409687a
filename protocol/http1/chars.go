package http1

import (
	"encoding/binary"
	"math/bits"

	"github.com/remora-proxy/remora/protocol"
)

func isDigit(c byte) bool { return c-'0' <= 9 }

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

const (
	eachByte = 0x0101010101010101
	eachHigh = 0x8080808080808080
)

// tokenEnd returns the index of the first byte in b[i:] that no token may contain, or len(b). It tests
// eight bytes at a time for letters, of which names nearly consist.
func tokenEnd(b []byte, i int) int {
	for i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i : i+8])
		low := (x | 0x20*eachByte) &^ eachHigh // no sum carries into the next byte
		letters := (low + (0x80-'a')*eachByte) &^ (low + (0x80-'z'-1)*eachByte) &^ x & eachHigh
		if letters == eachHigh {
			i += 8
			continue
		}
		if i += bits.TrailingZeros64(letters^eachHigh) >> 3; !protocol.TokenChar[b[i]] {
			return i
		}
		i++
	}
	for i < len(b) && protocol.TokenChar[b[i]] {
		i++
	}
	return i
}

// targetEnd returns the index of the first byte of b that no request target may contain, or len(b).
func targetEnd(b []byte) (i int) {
	for ; i+8 <= len(b); i += 8 {
		// Only bytes behind one that is not allowed may set their bit without need (borrows and carries).
		x := binary.LittleEndian.Uint64(b[i : i+8])
		fragment := x ^ '#'*eachByte
		if m := ((x - 0x21*eachByte) | (x + eachByte) | (fragment - eachByte) | x) & eachHigh; m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for i < len(b) && protocol.TargetChar[b[i]] {
		i++
	}
	return i
}

// textEnd returns the index of the first byte in b[i:] that a field value may not contain (RFC
// 9110 section 5.5), a control character other than HTAB, or len(b).
func textEnd(b []byte, i int) int {
	for i+8 <= len(b) {
		// Each byte below 0x20 or equal to 0x7f sets its bit. A byte behind such a byte, or
		// behind 0xff, may set its bit without being one (borrows and carries).
		x := binary.LittleEndian.Uint64(b[i : i+8])
		m := ((x - 0x20*eachByte) | (x + eachByte)) &^ x & eachHigh
		if m == 0 {
			i += 8
			continue
		}
		if i += bits.TrailingZeros64(m) >> 3; isControl(b[i]) {
			return i
		}
		i++
	}
	for i < len(b) && !isControl(b[i]) {
		i++
	}
	return i
}

// isControl reports whether c is a control character other than HTAB.
func isControl(c byte) bool { return c < 0x20 && c != '\t' || c == 0x7f }
