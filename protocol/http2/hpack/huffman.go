package hpack

import "encoding/binary"

// codeLengths has the length in bits of the Huffman code of each byte (RFC 7541 appendix B), by
// rows of 16. The code is canonical: codes rise with their length, then with the byte. So the
// lengths define it.
const codeLengths = "" +
	"\x0d\x17\x1c\x1c\x1c\x1c\x1c\x1c\x1c\x18\x1e\x1c\x1c\x1e\x1c\x1c" +
	"\x1c\x1c\x1c\x1c\x1c\x1c\x1e\x1c\x1c\x1c\x1c\x1c\x1c\x1c\x1c\x1c" +
	"\x06\x0a\x0a\x0c\x0d\x06\x08\x0b\x0a\x0a\x08\x0b\x08\x06\x06\x06" +
	"\x05\x05\x05\x06\x06\x06\x06\x06\x06\x06\x07\x08\x0f\x06\x0c\x0a" +
	"\x0d\x06\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07" +
	"\x07\x07\x07\x07\x07\x07\x07\x07\x08\x07\x08\x0d\x13\x0d\x0e\x06" +
	"\x0f\x05\x06\x05\x06\x05\x06\x06\x06\x05\x07\x07\x06\x06\x06\x05" +
	"\x06\x07\x06\x05\x05\x06\x07\x07\x07\x07\x07\x0f\x0b\x0e\x0d\x1c" +
	"\x14\x16\x14\x14\x16\x16\x16\x17\x16\x17\x17\x17\x17\x17\x18\x17" +
	"\x18\x18\x16\x17\x18\x17\x17\x17\x17\x15\x16\x17\x16\x17\x17\x18" +
	"\x16\x15\x14\x16\x16\x17\x17\x15\x17\x16\x16\x18\x15\x16\x17\x17" +
	"\x15\x15\x16\x15\x17\x16\x17\x17\x14\x16\x16\x16\x17\x16\x16\x17" +
	"\x1a\x1a\x14\x13\x16\x17\x16\x19\x1a\x1a\x1a\x1b\x1b\x1a\x18\x19" +
	"\x13\x15\x1a\x1b\x1b\x1a\x1b\x18\x15\x15\x1a\x1a\x1c\x1b\x1b\x1b" +
	"\x14\x18\x14\x15\x16\x15\x15\x17\x16\x16\x19\x19\x18\x18\x1a\x17" +
	"\x1a\x1b\x1a\x1a\x1b\x1b\x1b\x1b\x1b\x1c\x1b\x1b\x1b\x1b\x1b\x1a"

const (
	longestCode = 30
	firstBits   = 8 // codes up to this length are found by one look-up
)

var (
	// short has, for the next firstBits bits of input, the byte and the length of its code: the
	// byte in the high half. 0 means a longer code.
	short [1 << firstBits]uint16

	// For each length: the code behind the last of this length, aligned to the left in 32 bits,
	// and the index in byCode of the code 0 of this length, if there were one.
	codeLimit [longestCode + 1]uint64
	codeBase  [longestCode + 1]int
	byCode    []byte // all bytes, in the order of their codes
)

func init() {
	code := uint64(0) // the next code, aligned to the left in 32 bits
	for n := 1; n <= longestCode; n++ {
		codeBase[n] = len(byCode) - int(code>>(32-n))
		for c := range 256 {
			if int(codeLengths[c]) != n {
				continue
			}
			if n <= firstBits {
				from := int(code >> (32 - firstBits))
				for i := range 1 << (firstBits - n) {
					short[from+i] = uint16(c)<<8 | uint16(n)
				}
			}
			byCode = append(byCode, byte(c))
			code += 1 << (32 - n)
		}
		codeLimit[n] = code
	}
}

// appendHuffman appends the text that src encodes to dst, which has room for it. ok is false if src
// contains the code of EOS, or does not end with fewer than 8 bits of its start (RFC 7541 section 5.2).
func appendHuffman(dst, src []byte) (_ []byte, ok bool) {
	used := len(dst)
	out := dst[:cap(dst)]
	var bits uint64 // the next n bits of input, aligned to the left, then zeros
	n := uint(0)
	for i := 0; ; {
		if i+8 <= len(src) {
			bits |= binary.BigEndian.Uint64(src[i:]) >> n
			i += int(63-n) >> 3
			n |= 56
			// At least 56 bits: enough for 7 short codes, or one long.
			for k := 0; k < 7; k++ {
				e := short[bits>>(64-firstBits)]
				if e == 0 {
					break
				}
				out[used] = byte(e >> 8)
				used++
				bits <<= e & 0xff
				n -= uint(e & 0xff)
			}
		} else {
			for n <= 56 && i < len(src) {
				bits |= uint64(src[i]) << (56 - n)
				n += 8
				i++
			}
		}
		if n < longestCode && i < len(src) {
			continue
		}
		e := uint(short[bits>>(64-firstBits)])
		if e == 0 {
			if e = longCode(bits); e == 0 {
				return dst[:used], false // EOS
			}
		}
		if e&0xff > n {
			return dst[:used], n < 8 && bits == ^uint64(0)<<(64-n)
		}
		out[used] = byte(e >> 8)
		used++
		bits <<= e & 0xff
		n -= e & 0xff
	}
}

// longestText returns the most bytes that n encoded ones can stand for: the shortest code has 5 bits.
func longestText(n int) int { return n * 8 / 5 }

// huffmanLen returns the length of the text that src encodes. ok is that of appendHuffman.
func huffmanLen(src []byte) (n int, ok bool) {
	var bits uint64 // as in appendHuffman
	left := uint(0) // bits of input in bits
	for i := 0; ; n++ {
		for left <= 56 && i < len(src) {
			bits |= uint64(src[i]) << (56 - left)
			left += 8
			i++
		}
		e := uint(short[bits>>(64-firstBits)])
		if e == 0 {
			e = longCode(bits)
		}
		if e == 0 || e&0xff > left {
			return n, left < 8 && bits == ^uint64(0)<<(64-left)
		}
		bits <<= e & 0xff
		left -= e & 0xff
	}
}

// longCode returns the byte whose code begins bits and is longer than firstBits, and the
// length, as in short. 0 means EOS, or the start of it.
func longCode(bits uint64) uint {
	for n := uint(firstBits + 1); n <= longestCode; n++ {
		if bits>>32 < codeLimit[n] {
			return uint(byCode[codeBase[n]+int(bits>>(64-n))])<<8 | n
		}
	}
	return 0
}
