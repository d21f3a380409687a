package dubbo

import (
	"encoding/binary"
	"math"
	"unicode/utf16"
	"unicode/utf8"
)

// maxChunk limits the UTF-16 code units in a chunk of a string, and the bytes in a chunk of
// binary. Java writes strings in chunks of this size.
const maxChunk = 0x8000

// appendHessianString appends text, which must be UTF-8.
func appendHessianString(dst, text []byte) []byte {
	for {
		units, size := measure(text)
		chunk := text[:size]
		text = text[size:]
		switch {
		case len(text) > 0:
			dst = append(dst, 'R', byte(units>>8), byte(units))
		case units < 0x20:
			dst = append(dst, byte(units))
		case units < 0x400:
			dst = append(dst, 0x30+byte(units>>8), byte(units))
		default:
			dst = append(dst, 'S', byte(units>>8), byte(units))
		}
		dst = appendCESU8(dst, chunk)
		if len(text) == 0 {
			return dst
		}
	}
}

// measure returns the UTF-16 code units and the bytes of the part of text in the next chunk.
func measure(text []byte) (units, size int) {
	for size < len(text) {
		if n := asciiLen(text[size:min(len(text), size+maxChunk-units)]); n > 0 {
			units += n
			size += n
			continue
		}
		r, n := utf8.DecodeRune(text[size:])
		width := utf16.RuneLen(r)
		if units+width > maxChunk {
			break
		}
		units += width
		size += n
	}
	return units, size
}

func asciiLen(text []byte) int {
	i := 0
	for i+8 <= len(text) && binary.LittleEndian.Uint64(text[i:])&highBits == 0 {
		i += 8
	}
	for i < len(text) && text[i] < utf8.RuneSelf {
		i++
	}
	return i
}

// appendCESU8 appends text with surrogate pairs for the characters outside the BMP.
func appendCESU8(dst, text []byte) []byte {
	for {
		i := 0
		for i < len(text) && text[i] < firstOfFour {
			i++
		}
		dst = append(dst, text[:i]...)
		if i == len(text) {
			return dst
		}
		r, n := utf8.DecodeRune(text[i:])
		high, low := utf16.EncodeRune(r)
		dst = appendThreeBytes(appendThreeBytes(dst, high), low)
		text = text[i+n:]
	}
}

// firstOfFour is the smallest first byte of a character of four bytes.
const firstOfFour = 0xf0

func appendThreeBytes(dst []byte, r rune) []byte {
	return append(dst, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
}

func appendHessianInt(dst []byte, v int32) []byte {
	switch {
	case -0x10 <= v && v < 0x30:
		return append(dst, byte(v+0x90))
	case -0x800 <= v && v < 0x800:
		return append(dst, byte(v>>8+0xc8), byte(v))
	case -0x40000 <= v && v < 0x40000:
		return append(dst, byte(v>>16+0xd4), byte(v>>8), byte(v))
	}
	return binary.BigEndian.AppendUint32(append(dst, 'I'), uint32(v))
}

func appendHessianLong(dst []byte, v int64) []byte {
	switch {
	case -0x08 <= v && v < 0x10:
		return append(dst, byte(v+0xe0))
	case -0x800 <= v && v < 0x800:
		return append(dst, byte(v>>8+0xf8), byte(v))
	case -0x40000 <= v && v < 0x40000:
		return append(dst, byte(v>>16+0x3c), byte(v>>8), byte(v))
	case math.MinInt32 <= v && v <= math.MaxInt32:
		return binary.BigEndian.AppendUint32(append(dst, 0x59), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, 'L'), uint64(v))
}

func appendHessianBinary(dst, b []byte) []byte {
	for len(b) > maxChunk {
		dst = append(dst, 'A', maxChunk>>8, maxChunk&0xff)
		dst = append(dst, b[:maxChunk]...)
		b = b[maxChunk:]
	}
	dst = append(dst, 'B', byte(len(b)>>8), byte(len(b)))
	return append(dst, b...)
}
