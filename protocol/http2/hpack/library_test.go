package hpack

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	library "golang.org/x/net/http2/hpack"
)

// field is a field as a block has it.
type field struct {
	name, value string
	kind        Kind
}

// randomFields returns fields, some of which are as long as a table of limit bytes allows, or a byte longer.
func randomFields(rnd *rand.Rand, limit int) (all []field) {
	names := []string{"a", "accept", "x-name", ":path", "www-authenticate", "x-" + strings.Repeat("n", 125), "x-" + strings.Repeat("n", 126)}
	sizes := []int{0, 1, 2, 30, 126, 127, 128, 254, 255, 256, 1000}
	for range 1 + rnd.IntN(8) {
		f := field{name: names[rnd.IntN(len(names))], kind: Kind(rnd.IntN(3))}
		size := sizes[rnd.IntN(len(sizes))]
		if rnd.IntN(4) == 0 {
			size = []int{limit / 2, limit}[rnd.IntN(2)] - entryOverhead - len(f.name) + rnd.IntN(2)
		}
		f.value = strings.Repeat(string(rune('a'+rnd.IntN(3))), max(size, 0))
		all = append(all, f)
	}
	return all
}

// TestLibraryEncodes: what the library encodes is decoded, whatever the sizes of the table.
func TestLibraryEncodes(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var out bytes.Buffer
		e, d, limit := library.NewEncoder(&out), newDecoder(), DefaultTableSize
		for block := range 60 {
			if rnd.IntN(6) == 0 {
				limit = rnd.IntN(DefaultTableSize + 1)
				e.SetMaxDynamicTableSize(uint32(limit))
			}
			out.Reset()
			var want []string
			for _, f := range randomFields(rnd, limit) {
				if err := e.WriteField(library.HeaderField{Name: f.name, Value: f.value, Sensitive: f.kind == Secret}); err != nil {
					t.Fatal(err)
				}
				want = append(want, show(f.name, f.value, f.kind == Secret))
			}
			got, err := decode(d, out.Bytes())
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("seed %d, block %d: %v, %.300q, want %.300q", seed, block, err, got, want)
			}
			if n := d.Held(); n > 4*DefaultTableSize+128*24 {
				t.Fatalf("seed %d, block %d: %d bytes held", seed, block, n)
			}
			if d.table.size > limit || d.table.max != limit {
				t.Fatalf("seed %d, block %d: %d bytes in a table of %d", seed, block, d.table.size, limit)
			}
		}
	}
}

// TestLibraryDecodes: what is encoded is decoded by the library, and by the decoder here, whose tables stay the same.
func TestLibraryDecodes(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		e, d, l, limit := &Encoder{}, newDecoder(), library.NewDecoder(DefaultTableSize, nil), DefaultTableSize
		e.Reset()
		indexed := 0
		for block := range 60 {
			for range max(0, rnd.IntN(8)-5) {
				limit = rnd.IntN(DefaultTableSize + 1)
				e.SetMax(limit)
			}
			out := e.Begin(nil)
			var want []string
			for _, f := range slices.Repeat(randomFields(rnd, limit), 3) {
				name, value := []byte(f.name), []byte(f.value)
				index := 0
				if f.name == ":path" {
					index = 4
				}
				b, h, ok := e.AppendIndexed(out, name, value)
				if out = b; ok {
					indexed++
				} else {
					out = e.AppendLiteral(out, name, value, h, f.kind, index)
				}
				want = append(want, show(f.name, f.value, !ok && f.kind == Secret))
			}
			got, err := decode(d, out)
			fields, lerr := l.DecodeFull(out)
			var theirs []string
			for _, f := range fields {
				theirs = append(theirs, show(f.Name, f.Value, f.Sensitive))
			}
			if err != nil || lerr != nil || !slices.Equal(got, want) || !slices.Equal(theirs, want) {
				t.Fatalf("seed %d, block %d: %v, %v, %.300q, library %.300q, want %.300q", seed, block, err, lerr, got, theirs, want)
			}
			if e.table.size != d.table.size || e.table.n != d.table.n || e.table.size > limit || d.table.max != limit {
				t.Fatalf("seed %d, block %d: tables of %d and %d bytes, %d and %d entries; the limit is %d",
					seed, block, e.table.size, d.table.size, e.table.n, d.table.n, limit)
			}
		}
		if indexed < 20 {
			t.Errorf("seed %d: only %d fields were indexed", seed, indexed)
		}
	}
}

// TestHuffman: each byte is decoded, at each place among others, into memory that is just enough.
func TestHuffman(t *testing.T) {
	for c := range 256 {
		for _, fill := range []string{"", "a", "&X*", "\xff", "a\xff0~"} {
			for n := range 12 {
				text := strings.Repeat(fill, n) + string([]byte{byte(c)}) + strings.Repeat(fill, 11-n)
				code := library.AppendHuffmanString(nil, text)
				if n, ok := huffmanLen(code); n != len(text) || !ok {
					t.Fatalf("%q: length %d, %t", text, n, ok)
				}
				got, ok := appendHuffman(make([]byte, 1, 1+len(text)), code)
				if string(got[1:]) != text || !ok {
					t.Fatalf("%q: %q, %t", text, got[1:], ok)
				}
				bad := [][]byte{append(slices.Clone(code), 0xff)} // 8 bits of padding, or more
				bits := 0
				for i := range len(text) {
					bits += int(codeLengths[text[i]])
				}
				if bits%8 != 0 { // padding with a zero at its end
					bad = append(bad, slices.Clone(code))
					bad[1][len(code)-1] ^= 1
				}
				for _, code := range bad {
					_, counted := huffmanLen(code)
					if _, ok := appendHuffman(make([]byte, 0, longestText(len(code))), code); ok || counted {
						t.Fatalf("%q as %x: taken", text, code)
					}
				}
			}
		}
	}
}

// TestIntegers: which integers are read.
func TestIntegers(t *testing.T) {
	for _, c := range []struct {
		what  string
		block []byte
		want  error
	}{
		{"the largest", appendInteger(nil, 0x80, 0x7f, 1<<30), ErrIndex},
		{"a larger one", appendInteger(nil, 0x80, 0x7f, 1<<30+1), ErrInteger},
		{"five bytes", []byte{0xff, 0x80, 0x80, 0x80, 0x80, 0}, ErrIndex},
		{"six bytes", []byte{0xff, 0x80, 0x80, 0x80, 0x80, 0x80, 0}, ErrInteger},
		{"the last of the static table", []byte{0x80 | StaticLen}, nil},
		{"the first of the dynamic table", []byte("\x40\x01a\x01b\xbe"), nil},
		{"the second of it", []byte("\x40\x01a\x01b\xbf"), ErrIndex},
		{"the name of the last of the static table", []byte("\x7d\x01b"), nil},
		{"the name of the first of the dynamic table", []byte("\x40\x01a\x01b\x7e\x01c"), nil},
		{"the name of the second of it", []byte("\x40\x01a\x01b\x7f\x00\x01c"), ErrIndex},
	} {
		got, err := decode(newDecoder(), c.block)
		if err != c.want {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
		fields := 0
		if c.block[0] == 0x40 {
			fields++ // that which the others refer to
		}
		if c.want == nil {
			fields++
		}
		if len(got) != fields {
			t.Errorf("%s: fields %q", c.what, got)
		}
	}
}

// TestManyFields: fields are told apart, and found, however many are in the table and however long their names are.
func TestManyFields(t *testing.T) {
	for what, c := range map[string]struct {
		fields int
		name   func(i int) string
	}{
		"short names":          {100, func(i int) string { return "a" + string(rune('a'+i/26)) + string(rune('a'+i%26)) }},
		"names of all lengths": {60, func(i int) string { return strings.Repeat("n", 1+i) }},
	} {
		e, d := &Encoder{}, newDecoder()
		e.Reset()
		indexed := 0
		for round := range 4 {
			for i := range c.fields {
				n, h, ok := []byte(c.name(i)), uint64(0), false
				var block []byte
				if block, h, ok = e.AppendIndexed(e.Begin(nil), n, []byte("v")); ok {
					indexed++
				} else {
					block = e.AppendLiteral(block, n, []byte("v"), h, Repeating, 0)
				}
				if got, err := decode(d, block); err != nil || !slices.Equal(got, []string{c.name(i) + ": v"}) {
					t.Fatalf("%s, round %d, field %d: %q, %v", what, round, i, got, err)
				}
			}
		}
		if indexed < 40 {
			t.Errorf("%s: %d were found", what, indexed)
		}
	}
}

// TestIndices: a field is sent as the index of its place, as long as it is in the table.
func TestIndices(t *testing.T) {
	e, l := &Encoder{}, library.NewDecoder(DefaultTableSize, nil)
	e.Reset()
	decodes := func(block []byte, name, value string) {
		t.Helper()
		fields, err := l.DecodeFull(block)
		if err != nil || len(fields) != 1 || fields[0].Name != name || fields[0].Value != value {
			t.Fatalf("%s: %s became %v, %v", name, value, fields, err)
		}
	}
	add := func(name, value string) {
		for range 2 {
			block, _ := appendField(e, nil, name, value)
			decodes(block, name, value)
		}
	}
	const first = 16 // some of them give their place to fields of the same hash
	for i := range first {
		add("first", strconv.Itoa(i))
	}
	most := DefaultTableSize / (entryOverhead + len("x0")) // fields in the table
	for others := range most + first {
		add("x", strconv.Itoa(others))
		indexed := 0
		for i := range first {
			value := strconv.Itoa(i)
			if block, _, ok := e.AppendIndexed(nil, []byte("first"), []byte(value)); ok {
				decodes(block, "first", value)
				indexed++
			}
		}
		if others < most-2*first && indexed == 0 || others >= most && indexed > 0 {
			t.Errorf("behind %d others: %d of the first are indexed", others, indexed)
		}
	}
}

// TestStaticNames: the names of the static table are sent as their indices.
func TestStaticNames(t *testing.T) {
	e := &Encoder{}
	e.Reset()
	for index := 1; index <= StaticLen; index++ {
		name := static[index].name
		for k, first := range map[Kind]byte{Varying: 0, Secret: 0x10} {
			want := append(appendInteger([]byte("p"), first, 0x0f, index), 1, 'v')
			if got := e.AppendLiteral([]byte("p"), name, []byte("v"), 0, k, index); !bytes.Equal(got, want) {
				t.Errorf("%s of kind %d: %x, want %x", name, k, got, want)
			}
			if k != Varying || name[0] == ':' || bytes.Equal(name, static[index-1].name) {
				continue
			}
			if got := e.AppendLiteral([]byte("p"), bytes.ToUpper(name), []byte("v"), 0, k, 0); !bytes.Equal(got, want) {
				t.Errorf("%s, looked up: %x, want %x", name, got, want)
			}
		}
	}
}

// TestTableGrowsSeldom: a table that fills up gets more memory a few times only.
func TestTableGrowsSeldom(t *testing.T) {
	d := newDecoder()
	grown, before := 0, 0
	for i := range 400 {
		value := strings.Repeat("v", i%90)
		if _, err := decode(d, append([]byte{0x40, 2, 'a', 'b', byte(len(value))}, value...)); err != nil {
			t.Fatal(err)
		}
		if held := d.Held(); held != before {
			grown, before = grown+1, held
		}
	}
	if grown > 10 {
		t.Errorf("the memory has grown %d times", grown)
	}
}

// exactGrower gives exactly the memory that is asked for.
type exactGrower struct {
	given []byte
	calls int
}

func (g *exactGrower) Grow(dst []byte, from, n int) ([]byte, int) {
	g.calls++
	g.given = append(make([]byte, 0, len(dst)-from+n), dst[from:]...)
	return g.given, 0
}

// TestGrower: all memory for text is the Grower's, and text that has room needs none.
func TestGrower(t *testing.T) {
	const long = "a value that is too long for any room"
	code := library.AppendHuffmanString(nil, long)
	literal := append([]byte{0x40, 4}, "name"...)
	whole := append(append(literal, byte(len(long))), long...)
	coded := append(append(literal, 0x80|byte(len(code))), code...)
	for name, block := range map[string][]byte{
		"literal": whole, "Huffman code": coded, "index": append(slices.Clone(whole), 0xbe), "name of an entry": append(slices.Clone(whole), "\x7e\x01b"...),
	} {
		for _, room := range []int{0, 3, 4, 30, len("name"+long) - 1, len("name" + long), 1000} {
			d, g := newDecoder(), &exactGrower{}
			d.Grower = g
			d.Begin(block)
			fields := 0
			for ; ; fields++ {
				mine := make([]byte, 100, 100+room) // behind other text
				g.given, g.calls = nil, 0
				dst, ok := d.Next(mine)
				if !ok {
					break
				}
				memory, size := mine, len(d.Name)+len(d.Value)
				if g.given != nil {
					memory = g.given
				}
				if (g.given != nil) != (size > room) || g.given != nil && cap(g.given) != size {
					t.Errorf("%s, with room for %d bytes: %d bytes were asked for, want %d", name, room, cap(g.given), size)
				}
				most := 1 // for the value
				if room < len("name") {
					most = 2
				}
				if g.calls > most {
					t.Errorf("%s, with room for %d bytes: %q: memory was asked for %d times", name, room, d.Value, g.calls)
				}
				if &dst[:1][0] != &memory[:1][0] || string(d.Name) != "name" || string(d.Value) != long && string(d.Value) != "b" {
					t.Errorf("%s, with room for %d bytes: %q: %q in other memory", name, room, d.Name, d.Value)
				}
			}
			if d.Err() != nil || fields == 0 {
				t.Errorf("%s, with room for %d bytes: %d fields, %v", name, room, fields, d.Err())
			}
		}
	}
}

// TestFirstMemory: a table begins with room for a few entries.
func TestFirstMemory(t *testing.T) {
	d := newDecoder()
	if n := d.Held(); n != 0 {
		t.Errorf("an empty table holds %d bytes", n)
	}
	if _, err := decode(d, []byte("\x40\x01a\x01b")); err != nil || d.Held() != 256+16*24 {
		t.Errorf("with one entry: %d bytes, %v", d.Held(), err)
	}
}

// TestStaticTable compares the static table with the library's, both ways.
func TestStaticTable(t *testing.T) {
	l := library.NewDecoder(DefaultTableSize, nil)
	for i := 1; i <= StaticLen; i++ {
		want, err := l.DecodeFull([]byte{0x80 | byte(i)})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decode(newDecoder(), []byte{0x80 | byte(i)}); err != nil || !slices.Equal(got, []string{want[0].Name + ": " + want[0].Value}) {
			t.Errorf("%d: %q, %v, want %v", i, got, err, want)
		}
		if first := staticIndex(want[0].Name); string(static[first].name) != want[0].Name || first > i || first < i && string(static[first+1].name) != want[0].Name {
			t.Errorf("%s: index %d, want that of the first with the name", want[0].Name, first)
		}
	}
	if i := staticIndex("x-other"); i != 0 {
		t.Errorf("another name has index %d", i)
	}
}

// TestLargeFields: a field of more than half of the table does not enter it.
func TestLargeFields(t *testing.T) {
	for size, want := range map[int]bool{DefaultTableSize / 2: true, DefaultTableSize/2 + 1: false} {
		var e Encoder
		e.Reset()
		name, value := []byte("name"), bytes.Repeat([]byte{'v'}, size-entryOverhead-len("name"))
		indexed := false
		for range 3 {
			var h uint64
			if _, h, indexed = e.AppendIndexed(nil, name, value); !indexed {
				e.AppendLiteral(nil, name, value, h, Repeating, 0)
			}
		}
		if indexed != want {
			t.Errorf("a field of %d bytes is in the table: %t", size, indexed)
		}
	}
}

// TestTooLargeField: a field that is larger than the table empties it (RFC 7541 section 4.4).
func TestTooLargeField(t *testing.T) {
	d := newDecoder()
	if _, err := decode(d, []byte("\x40\x01a\x01b\xbe")); err != nil || d.table.n != 1 {
		t.Fatalf("%v, %d entries", err, d.table.n)
	}
	large := append([]byte("\x40\x01c"), appendInteger(nil, 0, 0x7f, DefaultTableSize)...)
	got, err := decode(d, append(large, bytes.Repeat([]byte{'v'}, DefaultTableSize)...))
	if err != nil || len(got) != 1 || d.table.n != 0 || d.table.size != 0 {
		t.Errorf("%d fields, %v, a table of %d entries and %d bytes", len(got), err, d.table.n, d.table.size)
	}
	if _, err := decode(d, []byte{0xbe}); err != ErrIndex {
		t.Errorf("an entry of before: %v", err)
	}
}

// appendField appends a field to a block, as an index if it can.
func appendField(e *Encoder, block []byte, name, value string) (_ []byte, indexed bool) {
	block, h, ok := e.AppendIndexed(block, []byte(name), []byte(value))
	if !ok {
		block = e.AppendLiteral(block, []byte(name), []byte(value), h, Repeating, 0)
	}
	return block, ok
}

// TestNamesApart: a name is found whatever its case, and no other name of which a hash might see the same.
func TestNamesApart(t *testing.T) {
	var e Encoder
	e.Reset()
	for range 2 {
		appendField(&e, nil, "x-abcde", "value")
	}
	for name, want := range map[string]bool{"x-abcde": true, "X-ABCDE": true, "x-aBcdE": true, "x-axcde": false, "X-AXCDE": false, "x_abcde": false, "x-abcdf": false} {
		if _, _, ok := e.AppendIndexed(nil, []byte(name), []byte("value")); ok != want {
			t.Errorf("%s is found: %t", name, ok)
		}
	}
	for value, want := range map[string]bool{"value": true, "vaXue": false, "vXlue": false, "valu": false, "values": false} {
		if _, _, ok := e.AppendIndexed(nil, []byte("x-abcde"), []byte(value)); ok != want {
			t.Errorf("the value %s is found: %t", value, ok)
		}
	}
}

// TestNoToken: a name that is no token is not sent, and what comes behind it is.
func TestNoToken(t *testing.T) {
	var e Encoder
	e.Reset()
	d := newDecoder()
	for range 4 {
		var block []byte
		for _, name := range []string{"a b", "", "c", "d\x00", "a:b", "e"} {
			block, _ = appendField(&e, block, name, "v")
		}
		if got, err := decode(d, block); err != nil || !slices.Equal(got, []string{"c: v", "e: v"}) {
			t.Errorf("%q, %v", got, err)
		}
	}
	if e.table.n != 2 || d.table.n != 2 {
		t.Errorf("%d and %d entries, want 2", e.table.n, d.table.n)
	}
}

// TestSetMax: a block says the size of the table if that has changed, and nothing else.
func TestSetMax(t *testing.T) {
	for _, c := range []struct {
		sizes   []int
		want    string
		entries int // that stay
	}{
		{nil, "", 1}, {[]int{DefaultTableSize}, "", 1}, {[]int{2 * DefaultTableSize}, "", 1},
		{[]int{100}, "\x3f\x45", 1}, {[]int{100, 100}, "\x3f\x45", 1}, {[]int{30}, "\x3e", 0}, {[]int{31}, "\x3f\x00", 0}, {[]int{0}, "\x20", 0},
		{[]int{100, 200}, "\x20\x3f\xa9\x01", 0}, {[]int{200, 100}, "\x3f\x45", 1}, {[]int{100, DefaultTableSize}, "\x20\x3f\xe1\x1f", 0},
		{[]int{0, DefaultTableSize, 100}, "\x20\x3f\x45", 0},
	} {
		var e Encoder
		e.Reset()
		for range 2 {
			appendField(&e, nil, "name", "value")
		}
		for _, n := range c.sizes {
			e.SetMax(n)
		}
		if got := e.Begin([]byte("before")); string(got) != "before"+c.want {
			t.Errorf("sizes %d: %x, want %x", c.sizes, got[len("before"):], c.want)
		}
		if got := e.Begin(nil); len(got) != 0 {
			t.Errorf("sizes %d: the next block says it again: %x", c.sizes, got)
		}
		if e.table.n != c.entries {
			t.Errorf("sizes %d: %d entries", c.sizes, e.table.n)
		}
	}
}

// TestHeldTables: both tables hold memory once they have entries.
func TestHeldTables(t *testing.T) {
	var e Encoder
	if e.Reset(); e.Held() != 0 {
		t.Errorf("an empty table holds %d bytes", e.Held())
	}
	for range 2 {
		appendField(&e, nil, "name", "value")
	}
	if n := e.Held(); n < len("namevalue") {
		t.Errorf("with one entry: %d bytes", n)
	}
}

// TestSkip: of a block that nobody wants, no text takes memory beyond that which is there, but for text that enters the table. The
// table has the same entries then as if the block were wanted.
func TestSkip(t *testing.T) {
	long := strings.Repeat("v", 100)
	literal := func(first string, name string) string {
		return first + string(rune(len(name))) + name + string(rune(len(long))) + long
	}
	setup := literal("\x40", "first") + literal("\x40", "second") // indices 63 and 62
	for name, c := range map[string]struct {
		block string
		grows int // fields that enter the table
	}{
		"an index":                     {"\xbe\xbf", 0},
		"a name of an entry":           {"\x0f\x2f\x01a\x0f\x30\x01b", 0},
		"a name of an entry, to enter": {"\x7e\x01a\x7e\x01b", 2},
		"a constant":                   {"\x82\x86", 0},
		"all of them":                  {"\xbe\x82\x7e\x01a\x0f\x2f\x01a\xbf", 1},
	} {
		d, wanted := newDecoder(), newDecoder()
		for _, each := range []*Decoder{d, wanted} {
			if _, err := decode(each, []byte(setup)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := decode(wanted, []byte(c.block)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		g := &countingGrower{}
		d.Grower = g
		d.Begin([]byte(c.block))
		d.Skip = true
		dst, fields := []byte(nil), 0
		for ok := true; ; fields++ {
			if dst, ok = d.Next(nil); !ok {
				break
			}
		}
		if d.Err() != nil || len(dst) != 0 || g.calls < c.grows || g.named > c.grows {
			t.Errorf("%s: %v, %d fields, memory was asked for %d times, %d of them for long text", name, d.Err(), fields, g.calls, g.named)
		}
		if d.table.n != wanted.table.n || d.table.size != wanted.table.size {
			t.Errorf("%s: %d entries of %d bytes, want %d of %d", name, d.table.n, d.table.size, wanted.table.n, wanted.table.size)
		}
		for i := range d.table.n {
			index := []byte{0x80 | byte(StaticLen+1+i)}
			got, _ := decode(d, index)
			if want, _ := decode(wanted, index); !slices.Equal(got, want) {
				t.Errorf("%s: entry %d is %.30q, want %.30q", name, i, got, want)
			}
		}
	}
}

// countingGrower gives all memory, and counts.
type countingGrower struct{ calls, named int }

func (g *countingGrower) Grow(dst []byte, from, n int) ([]byte, int) {
	if g.calls++; n >= len("second") {
		g.named++
	}
	return slices.Grow(slices.Clone(dst[from:]), n), 0
}

// TestMarks: a field has the marks of its name and of its value, however it is encoded, and says whether it may be indexed.
func TestMarks(t *testing.T) {
	marks := NewMarks(func(name []byte) uint8 {
		return uint8(bytes.Count(name, []byte("m")))
	}, func(value []byte) uint8 {
		return uint8(2 * bytes.Count(value, []byte("G")))
	}, 2)
	d := &Decoder{}
	d.Reset(NewMarks(func(name []byte) uint8 { return uint8(len(name)) }, func(value []byte) uint8 { return uint8(len(value)) << 6 }, 0xc0))
	for i := 1; i <= StaticLen; i++ {
		d.Begin([]byte{0x80 | byte(i)})
		if _, ok := d.Next(nil); !ok || d.Mark != uint8(len(static[i].name))|uint8(len(static[i].value))<<6 {
			t.Errorf("constant %d: %s: %s, marks %#x", i, d.Name, d.Value, d.Mark)
		}
	}
	d.Reset(marks)
	for _, c := range []struct {
		what, block string
		want        uint8
		never       bool
	}{
		{"a constant", "\x82", 3, false}, // :method: GET
		{"a constant without a value", "\x8f", 0, false},
		{"the name of a constant", "\x02\x01x", 1, false},
		{"the name of a constant, never indexed", "\x12\x01G", 3, true},
		{"text", "\x00\x01m\x01x", 1, false},
		{"other text", "\x00\x01n\x01G", 2, false},
		{"text without marks", "\x00\x01n\x01x", 0, false},
		{"text, never indexed", "\x10\x01m\x01G", 3, true},
		{"text that enters the table", "\x40\x01m\x01G", 3, false},
		{"an entry", "\xbe", 3, false},
		{"the name of an entry", "\x0f\x2f\x01x", 1, false},
		{"the name of an entry, to enter", "\x7e\x01x", 1, false},
		{"the latest entry", "\xbe", 1, false},
		{"the entry before", "\xbf", 3, false},
	} {
		d.Begin([]byte(c.block))
		if _, ok := d.Next(nil); !ok || d.Mark != c.want || d.NeverIndexed != c.never {
			t.Errorf("%s: %s: %s, %v, marks %d, never indexed %t", c.what, d.Name, d.Value, d.Err(), d.Mark, d.NeverIndexed)
		}
	}
}
