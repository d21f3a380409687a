package hpack

import "slices"

// Error says why a header block is refused. The connection can't go on then.
type Error string

// Error implements error.
func (e Error) Error() string { return "hpack: " + string(e) }

// Errors of Decoder.
const (
	ErrTruncated = Error("the block ends within a field")
	ErrInteger   = Error("an integer is too large or too long")
	ErrIndex     = Error("an index that no entry has")
	ErrHuffman   = Error("malformed Huffman code")
	ErrSize      = Error("a table size over the limit, or behind a field")
)

// Marks judge text once, when it enters a table: a Field has the marks of its name and value.
// The two must use different bits.
type Marks struct {
	Name   func(name []byte) uint8
	Value  func(value []byte) uint8
	Values uint8 // the bits of Value

	static [StaticLen + 1]uint8
}

// NewMarks returns the Marks of the two functions.
func NewMarks(name, value func([]byte) uint8, values uint8) *Marks {
	m := &Marks{Name: name, Value: value, Values: values}
	for i := range static[1:] {
		m.static[i+1] = name(static[i+1].name) | value(static[i+1].value)
	}
	return m
}

// Field is a decoded field.
type Field struct {
	Name, Value  []byte // of the memory given to Next, or constants
	Mark         uint8
	NeverIndexed bool // whoever passes the field on encodes it as Secret
}

// Grower gives memory for text that has no room. Grow returns memory with the text dst[from:], which
// is of the field that is being decoded, and with room for n more bytes; at is where that text is now.
// What was in dst before it belongs to the Grower: fields that were decoded may alias it.
type Grower interface {
	Grow(dst []byte, from, n int) (grown []byte, at int)
}

// Decoder decodes header blocks. Its zero value needs Reset.
type Decoder struct {
	Field // the result of Next

	// Grower, if set, gives all memory for text beyond the capacity of what Next is given. Otherwise
	// that grows as append does: a block may leave much larger memory behind than its text.
	Grower Grower

	// Skip says that no field of the rest of the block is wanted. Next then leaves out the text of
	// fields that do not change the table, where it has no room for it: a block may refer to much more
	// text than the caller wants to spend time on. Begin clears it.
	Skip bool

	table table
	marks *Marks
	rest  []byte
	begun bool // the block has had a field
	err   error
}

// Reset prepares d for a new connection.
func (d *Decoder) Reset(m *Marks) {
	*d = Decoder{Grower: d.Grower, marks: m, table: table{max: DefaultTableSize, ring: d.table.ring, text: d.table.text[:0]}}
}

// Begin starts a block, which must stay unchanged until Next has returned false.
func (d *Decoder) Begin(block []byte) {
	d.rest, d.begun, d.Skip = block, false, false
}

// Err returns the error that ended a block, or nil.
func (d *Decoder) Err() error { return d.err }

// Held returns the bytes of memory of the table.
func (d *Decoder) Held() int { return d.table.held() }

// Next decodes the next field into d.Field. Its text is appended to dst, unless it is constant.
// false means that the block has ended; see Err.
func (d *Decoder) Next(dst []byte) (_ []byte, ok bool) {
	for {
		if len(d.rest) == 0 || d.err != nil {
			return dst, false
		}
		b := d.rest[0]
		switch {
		case b >= 0x80: // an indexed field
			i := int(b & 0x7f)
			if i == 0x7f {
				i = d.long(0x7f)
			} else {
				d.rest = d.rest[1:]
			}
			d.begun = true
			return d.indexed(dst, i)
		case b>>5 != 1: // a literal
			d.begun = true
			return d.literal(dst, b)
		}
		size := int(b & 0x1f)
		if size == 0x1f {
			size = d.long(0x1f)
		} else {
			d.rest = d.rest[1:]
		}
		if d.begun || size > DefaultTableSize {
			d.fail(ErrSize)
			continue
		}
		d.table.max = size
		d.table.shrink(size)
	}
}

func (d *Decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.rest = nil
}

// long reads an integer whose prefix is full (RFC 7541 section 5.1).
func (d *Decoder) long(prefix int) int {
	v := uint64(prefix)
	for i := 1; i < len(d.rest); i++ {
		b := d.rest[i]
		v += uint64(b&0x7f) << (7 * (i - 1))
		if b < 0x80 {
			d.rest = d.rest[i+1:]
			if v > 1<<30 {
				d.fail(ErrInteger)
				return 0
			}
			return int(v)
		}
		if i == 5 {
			d.fail(ErrInteger)
			return 0
		}
	}
	d.fail(ErrTruncated)
	return 0
}

func (d *Decoder) indexed(dst []byte, i int) ([]byte, bool) {
	if uint(i-1) < StaticLen {
		s := &static[i]
		d.Field = Field{s.name, s.value, d.marks.static[i], false}
		return dst, true
	}
	age := i - StaticLen - 1
	if uint(age) >= uint(d.table.n) {
		d.fail(ErrIndex)
		return dst, false
	}
	e, text := d.table.get(uint32(age))
	from := len(dst)
	if len(text) > cap(dst)-from {
		if d.Skip {
			return dst, true
		}
		dst, from = d.grow(dst, from, len(text))
	}
	dst = append(dst, text...)
	middle := from + int(e.name)
	d.Field = Field{dst[from:middle:middle], dst[middle:len(dst):len(dst)], e.mark, false}
	return dst, true
}

func (d *Decoder) literal(dst []byte, b byte) ([]byte, bool) {
	add, prefix := false, byte(0x0f)
	if b >= 0x40 {
		add, prefix = true, 0x3f
	}
	i := int(b & prefix)
	if i == int(prefix) {
		i = d.long(i)
	} else {
		d.rest = d.rest[1:]
	}
	var mark uint8
	var name []byte // of the static table
	from := len(dst)
	switch age := i - StaticLen - 1; {
	case d.err != nil:
		return dst, false
	case i == 0:
		dst, from = d.text(dst, from)
		mark = d.marks.Name(dst[from:])
	case i <= StaticLen:
		name, mark = static[i].name, d.marks.static[i]&^d.marks.Values
	case age < d.table.n:
		e, text := d.table.get(uint32(age))
		if int(e.name) > cap(dst)-from {
			if d.Skip && !add {
				break
			}
			dst, from = d.grow(dst, from, int(e.name))
		}
		dst, mark = append(dst, text[:e.name]...), e.mark&^d.marks.Values
	default:
		d.fail(ErrIndex)
		return dst, false
	}
	named := len(dst) - from
	dst, from = d.text(dst, from)
	if d.err != nil {
		return dst, false
	}
	middle := from + named
	if d.Name = name; name == nil {
		d.Name = dst[from:middle:middle]
	}
	d.Value = dst[middle:len(dst):len(dst)]
	d.Mark, d.NeverIndexed = mark|d.marks.Value(d.Value), b>>4 == 1
	if add {
		d.table.add(d.Name, d.Value, d.Mark)
	}
	return dst, true
}

// text appends the next text of the block. The text of the field begins at from, and at the returned
// place then.
func (d *Decoder) text(dst []byte, from int) ([]byte, int) {
	if len(d.rest) == 0 {
		d.fail(ErrTruncated)
		return dst, from
	}
	b := d.rest[0]
	n := int(b & 0x7f)
	if n == 0x7f {
		n = d.long(n)
	} else {
		d.rest = d.rest[1:]
	}
	if n > len(d.rest) {
		d.fail(ErrTruncated)
		return dst, from
	}
	src := d.rest[:n]
	d.rest = d.rest[n:]
	ok := true
	if b >= 0x80 {
		// Before memory is asked for, the code is read once to count its text: a byte has 5 to 30 bits.
		if n = longestText(n); n > cap(dst)-len(dst) {
			n, ok = huffmanLen(src)
		}
	}
	if ok && n > cap(dst)-len(dst) {
		dst, from = d.grow(dst, from, n)
	}
	if b < 0x80 {
		return append(dst, src...), from
	}
	if ok {
		dst, ok = appendHuffman(dst, src)
	}
	if !ok {
		d.fail(ErrHuffman)
	}
	return dst, from
}

// grow makes room in dst for n more bytes.
func (d *Decoder) grow(dst []byte, from, n int) ([]byte, int) {
	if d.Grower == nil {
		return slices.Grow(dst, n), from
	}
	return d.Grower.Grow(dst, from, n)
}
