package hpack

import (
	"encoding/binary"
	"math/bits"
	"strings"
)

// Kind says how a field may be encoded.
type Kind uint8

// The kinds of fields.
const (
	Repeating Kind = iota // enters the table when it comes for the second time
	Varying               // never enters the table: its value is another each time
	Secret                // never indexed, here and by proxies behind us (RFC 7541 section 7.1.3); not for AppendIndexed
)

// Encoder encodes fields. Its zero value needs Reset. Text is never Huffman-coded: that saves a
// quarter of the bytes that are no indices, but costs both sides time for each byte.
type Encoder struct {
	table  table
	bound  int // table.max that the peer allows
	least  int // the smallest bound since the latest block; -1: the bound is unchanged
	slots  [slotCount]uint32
	before [slotCount]uint16 // part of the hash of the latest field that was not in the table
}

// slotCount is a power of two above the number of entries that a table has.
const slotCount = 256

// Reset prepares e for a new connection.
func (e *Encoder) Reset() {
	*e = Encoder{table: table{max: DefaultTableSize, ring: e.table.ring, text: e.table.text[:0]}, bound: DefaultTableSize, least: -1}
}

// SetMax sets the size of the table that the peer allows. The next block tells it what is used.
func (e *Encoder) SetMax(n int) {
	n = min(n, DefaultTableSize)
	if n == e.bound {
		return
	}
	if e.least < 0 {
		e.least = e.bound
	}
	e.bound, e.least = n, min(e.least, n)
}

// Begin appends what a block must begin with.
func (e *Encoder) Begin(dst []byte) []byte {
	if e.least < 0 {
		return dst
	}
	if e.least < e.bound {
		// Two updates: the table was smaller meanwhile, and then got its present size (RFC 7541 section 4.2). The first says 0
		// whatever the smallest size was, since Go's decoder refuses a second one unless its table is empty.
		dst = append(dst, 0x20)
		e.least = 0
	}
	e.table.shrink(e.least)
	e.table.max, e.least = e.bound, -1
	return appendInteger(dst, 0x20, 0x1f, e.bound)
}

// Held returns the bytes of memory of the table.
func (e *Encoder) Held() int { return e.table.held() }

// hash returns a hash of a field; the name's case does not count. It reads little of the text, as
// a match is compared and a collision only costs a few bytes on the wire.
func hash(name, value []byte) uint64 {
	n := len(name)
	h := uint64(n) | uint64(len(value))<<8
	if n > 0 {
		h |= uint64(name[0]|0x20)<<32 | uint64(name[n/2]|0x20)<<40 | uint64(name[n-1]|0x20)<<48
	}
	v := uint64(0)
	switch m := len(value); {
	case m >= 8:
		v = binary.LittleEndian.Uint64(value) ^ bits.RotateLeft64(binary.LittleEndian.Uint64(value[m-8:]), 32)*0x9e3779b97f4a7c15
	case m > 0:
		v = uint64(value[0]) | uint64(value[m/2])<<8 | uint64(value[m-1])<<16
	}
	h = (h ^ v*0xff51afd7ed558ccd) * 0xc4ceb9fe1a85ec53
	h = (h ^ h>>32) * 0xff51afd7ed558ccd // the lower bits of a product do not depend on the upper bits of its factors
	return h>>32 ^ h>>48
}

// AppendIndexed appends the field as an index if the table has it. Otherwise it appends nothing;
// the caller then finds out what kind of field it is, and calls AppendLiteral with the same hash.
// So a field of the table costs no look at its name.
func (e *Encoder) AppendIndexed(dst, name, value []byte) (_ []byte, h uint64, ok bool) {
	h = hash(name, value)
	age := e.table.last - e.slots[h%slotCount]
	if age >= uint32(e.table.n) {
		return dst, h, false
	}
	f, text := e.table.get(age)
	if int(f.name) != len(name) || int(f.value) != len(value) ||
		string(text[f.name:]) != string(value) || !foldedEqual(name, text[:f.name]) {
		return dst, h, false
	}
	if i := age + StaticLen + 1; i < 0x7f {
		return append(dst, 0x80|byte(i)), h, true
	}
	return appendInteger(dst, 0x80, 0x7f, int(age)+StaticLen+1), h, true
}

func foldedEqual(name, lower []byte) bool {
	if string(name) == string(lower) {
		return true
	}
	for i, c := range name {
		if lowered[c] != lower[i] {
			return false
		}
	}
	return true
}

// AppendLiteral appends a field that AppendIndexed has not found. index is the index of its name
// in the static table, or 0: then it is looked up. It appends nothing if the name is no token.
func (e *Encoder) AppendLiteral(dst, name, value []byte, h uint64, k Kind, index int) []byte {
	first, prefix := byte(0), 0x0f
	add := false
	switch k {
	case Secret:
		first = 0x10
	case Repeating:
		slot, part := h%slotCount, uint16(h>>16)|1
		if add = e.before[slot] == part && len(name)+len(value)+entryOverhead <= e.table.max/2; add {
			first, prefix = 0x40, 0x3f
			e.slots[slot] = e.table.last + 1
		}
		e.before[slot] = part
	}
	from, at := len(dst), 0
	if index == 0 {
		dst = append(dst, first)
		dst = appendInteger(dst, 0, 0x7f, len(name))
		at = len(dst)
		dst = append(dst, name...)
		if len(name) == 0 || !lower(dst[at:]) {
			return dst[:from]
		}
		if index = staticIndex(dst[at:]); index > 0 {
			dst = dst[:from]
		}
	}
	if index > 0 {
		dst = appendInteger(dst, first, prefix, index)
	}
	if len(value) < 0x7f {
		dst = append(dst, byte(len(value)))
	} else {
		dst = appendInteger(dst, 0, 0x7f, len(value))
	}
	dst = append(dst, value...)
	if add {
		text := static[index].name
		if index == 0 {
			text = dst[at : at+len(name)]
		}
		e.table.add(text, value, 0)
	}
	return dst
}

// appendInteger appends an integer behind the bits of first (RFC 7541 section 5.1).
func appendInteger(dst []byte, first byte, prefix, v int) []byte {
	if v < prefix {
		return append(dst, first|byte(v))
	}
	dst = append(dst, first|byte(prefix))
	for v -= prefix; v >= 0x80; v >>= 7 {
		dst = append(dst, byte(v)|0x80)
	}
	return append(dst, byte(v))
}

// lower makes a name lower case. false: it is no token (RFC 9110 section 5.6.2). It tests eight bytes at a
// time for letters and hyphens, of which most names consist. The last eight overlap those before.
func lower(name []byte) bool {
	last := len(name) - 8
	if last < 0 {
		return lowerBytes(name)
	}
	for i := 0; ; i = min(i+8, last) {
		word := name[i : i+8]
		if x := binary.LittleEndian.Uint64(word); lettersOrHyphens(x) {
			binary.LittleEndian.PutUint64(word, x|0x20*eachByte)
		} else if !lowerBytes(word) {
			return false
		}
		if i == last {
			return true
		}
	}
}

const (
	eachByte = 0x0101010101010101
	eachHigh = 0x8080808080808080
)

// lettersOrHyphens reports whether each of the eight bytes of x is a letter of ASCII or a hyphen.
func lettersOrHyphens(x uint64) bool {
	// Without the highest bit of each byte, no sum carries into the next one.
	low := (x | 0x20*eachByte) &^ eachHigh
	letters := (low + (0x80-'a')*eachByte) &^ (low + (0x80-'z'-1)*eachByte)
	others := (x^'-'*eachByte)&^eachHigh + 0x7f*eachByte // than hyphens
	return (letters|^others)&^x&eachHigh == eachHigh
}

// lowerBytes is lower, byte by byte.
func lowerBytes(name []byte) bool {
	ok := byte(0xff)
	for i, c := range name {
		l := lowered[c]
		ok = min(ok, l)
		name[i] = l
	}
	return ok > 0
}

// lowered is each byte of a token in lower case, and 0 for other bytes.
var lowered = func() (t [256]byte) {
	for c := range t {
		switch {
		case 'A' <= c && c <= 'Z':
			t[c] = byte(c) | 0x20
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", byte(c)) >= 0:
			t[c] = byte(c)
		}
	}
	return t
}()
