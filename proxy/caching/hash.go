package caching

import (
	"encoding/binary"
	"math/bits"
)

// Odd numbers without a pattern.
const (
	multiplier = 0x9e3779b97f4a7c15
	salt       = 0xd6e8feb86659fd93
)

// Hash returns the hash of a key. Who does not know the seed can't make keys with one hash.
func Hash(seed uint64, b []byte) uint64 {
	length := 2 * uint64(len(b))
	h, other := seed^salt, mix(seed^salt, multiplier)|1
	for ; len(b) >= 16; b = b[16:] {
		h = mix(binary.LittleEndian.Uint64(b)^h, binary.LittleEndian.Uint64(b[8:])^other)
	}
	var tail [16]byte
	copy(tail[:], b)
	h = mix(binary.LittleEndian.Uint64(tail[:])^h, binary.LittleEndian.Uint64(tail[8:])^other)
	return mix(h^seed, multiplier+length)
}

// mix combines both halves of a product of 128 bits.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
