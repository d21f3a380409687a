package hpack

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	library "golang.org/x/net/http2/hpack"

	"github.com/remora-proxy/remora/internal/must"
)

// plain are marks that see nothing.
var plain = NewMarks(func([]byte) uint8 { return 0 }, func([]byte) uint8 { return 0 }, 0)

func newDecoder() *Decoder {
	d := &Decoder{}
	d.Reset(plain)
	return d
}

// decode returns the fields of a block.
func decode(d *Decoder, block []byte) (all []string, err error) { return decodeTo(d, block, nil) }

// decodeTo returns the fields of a block, whose text goes to buf.
func decodeTo(d *Decoder, block, buf []byte) (all []string, err error) {
	d.Begin(block)
	for ok := true; ; {
		if buf, ok = d.Next(buf); !ok {
			return all, d.Err()
		}
		all = append(all, show(d.Name, d.Value, d.NeverIndexed))
	}
}

// show returns a field as a line, which ends with ! if the field is never indexed.
func show[T []byte | string](name, value T, never bool) string {
	if never {
		return fmt.Sprintf("%s: %s !", name, value)
	}
	return fmt.Sprintf("%s: %s", name, value)
}

// TestAppendixC runs the examples of the RFC.
func TestAppendixC(t *testing.T) {
	text := must.ReadFile(t, "testdata/appendix_c.txt")
	var d *Decoder
	var left []string
	name, blocks := "", 0
	for line := range strings.SplitSeq(string(text), "\n") {
		key, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "" || key == "#":
		case key == "connection":
			d, name = newDecoder(), rest
		case key == "block":
			wire, err := hex.DecodeString(strings.ReplaceAll(rest, " ", ""))
			if err != nil {
				t.Fatal(name, err)
			}
			if left, err = decode(d, wire); err != nil {
				t.Fatal(name, err)
			}
			blocks++
		case key == "size":
			if len(left) > 0 || rest != fmt.Sprint(d.table.size) {
				t.Errorf("%s: fields %q follow, size %d, want %s", name, left, d.table.size, rest)
			}
		case len(left) == 0 || left[0] != line:
			t.Errorf("%s: fields %q, want %q", name, left, line)
		default:
			left = left[1:]
		}
	}
	if blocks != 16 {
		t.Errorf("%d blocks", blocks)
	}
}

// TestCodeLengths compares the Huffman code with the library's.
func TestCodeLengths(t *testing.T) {
	for c := range 256 {
		if n := library.HuffmanEncodeLength(string(bytes.Repeat([]byte{byte(c)}, 8))); n != uint64(codeLengths[c]) {
			t.Errorf("code of %#x: %d bits, want %d", c, codeLengths[c], n)
		}
		for _, text := range []string{string([]byte{byte(c)}), strings.Repeat(string([]byte{byte(c), 'a'}), 21)} {
			code := library.AppendHuffmanString(nil, text)
			if n, ok := huffmanLen(code); n != len(text) || !ok {
				t.Errorf("%q counts as %d bytes, %t", text, n, ok)
			}
			if got, ok := appendHuffman(append(make([]byte, 0, 1+len(text)), 'x'), code); !ok || string(got) != "x"+text {
				t.Errorf("%q became %q, %t", text, got, ok)
			}
		}
	}
}

// TestRefused checks what ends a connection.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		what, block string
		want        error
	}{
		{"index 0", "80", ErrIndex},
		{"index of an empty table", "be", ErrIndex},
		{"name index of an empty table", "7e0161", ErrIndex},
		{"integer without end", "ffffffffffffffff01", ErrInteger},
		{"integer that is too large", "ff80ffffff0f", ErrInteger},
		{"integer that is cut", "ff80", ErrTruncated},
		{"index of one byte that is cut", "ff", ErrTruncated},
		{"literal without name", "40", ErrTruncated},
		{"literal whose index is cut", "7f", ErrTruncated},
		{"literal whose index is too large", "7fffffffff0f", ErrInteger},
		{"length that is cut", "407f", ErrTruncated},
		{"length that is too large", "407fffffffff0f", ErrInteger},
		{"size update that is cut", "3f", ErrTruncated},
		{"literal with half a name", "400261", ErrTruncated},
		{"literal without value", "400161", ErrTruncated},
		{"literal with half a value", "4001610262", ErrTruncated},
		{"padding of 8 bits", "408287ff0161", ErrHuffman},
		{"padding of zeros", "40811f8100", ErrHuffman},
		{"EOS", "4084ffffffff0161", ErrHuffman},
		{"EOS before text", "4085fffffffc1f0161", ErrHuffman},
		{"size update behind a field", "8220", ErrSize},
		{"size update behind a literal", "400161016220", ErrSize},
		{"size update over the limit", "3fe21f", ErrSize},
		{"size update at the limit", "3fe11f", nil},
		{"two size updates", "203fe11f82", nil},
	} {
		wire, err := hex.DecodeString(c.block)
		if err != nil {
			t.Fatal(err)
		}
		for _, room := range []int{0, 1000} {
			d := newDecoder()
			fields, err := decodeTo(d, wire, make([]byte, 0, room))
			if err != c.want {
				t.Errorf("%s: %v, want %v", c.what, err, c.want)
			}
			if err != nil && len(fields) > 0 != strings.Contains(c.what, "behind") {
				t.Errorf("%s: fields %q", c.what, fields)
			}
			if _, err := decode(d, []byte{0x82}); err != c.want {
				t.Errorf("%s: then %v, want %v", c.what, err, c.want)
			}
		}
	}
}

// TestEncoderKinds checks which fields enter the table.
func TestEncoderKinds(t *testing.T) {
	e, d := &Encoder{}, library.NewDecoder(4096, nil)
	e.Reset()
	for round := range 3 {
		var b []byte
		e.Begin(nil)
		for i, k := range []Kind{Repeating, Varying, Secret} {
			name := []byte{'X', byte('a' + i)}
			out, h, ok := e.AppendIndexed(b, name, []byte("v"))
			if ok != (k == Repeating && round == 2) {
				t.Errorf("round %d, kind %d: indexed %t", round, k, ok)
			}
			if b = out; !ok {
				b = e.AppendLiteral(b, name, []byte("v"), h, k, 0)
			}
		}
		got, err := d.DecodeFull(b)
		want := []library.HeaderField{{Name: "xa", Value: "v"}, {Name: "xb", Value: "v"}, {Name: "xc", Value: "v", Sensitive: true}}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("round %d: %v, %v", round, got, err)
		}
	}
}

// Names are made lower case alike by words and byte by byte.
func TestLower(t *testing.T) {
	for n := range 18 {
		for at := range n {
			for c := range 256 {
				for _, fill := range []byte{'a', 'Z', '-', '0', byte(c)} {
					name := bytes.Repeat([]byte{fill}, n)
					name[at] = byte(c)
					want := bytes.Clone(name)
					ok := lowerBytes(want)
					got := bytes.Clone(name)
					if lower(got) != ok || ok && !bytes.Equal(got, want) {
						t.Fatalf("lower(%q) = %q, want %q, %v", name, got, want, ok)
					}
				}
			}
		}
	}
}

// Only tokens are names.
func TestLowerTokens(t *testing.T) {
	const tokens = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for c := range 256 {
		for n := range 12 {
			name := append(bytes.Repeat([]byte{'a'}, n), byte(c))
			if want := strings.IndexByte(tokens, byte(c)) >= 0; lower(name) != want {
				t.Errorf("%q is a name: %t", name, !want)
			}
		}
	}
}

// FuzzDecode compares the decoder with the library's on any input of several blocks, and the
// memory with its bound.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x82\x86\x84\x41\x0fwww.example.com"), []byte("\x82\xbe\x58\x08no-cache"))
	f.Add([]byte("\x3f\xe1\x01\x48\x82\x64\x02"), []byte("\x48\x83\x64\x0e\xff\xc1"))
	f.Add([]byte("\x40\x01a\x01b"), []byte("\x20\x3f\xe1\x1f\xbe"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		n, valid := huffmanLen(first)
		if text, ok := appendHuffman(make([]byte, 0, longestText(len(first))), first); len(text) != n || ok != valid {
			t.Fatalf("%x: %d bytes of text, %t, counted as %d, %t", first, len(text), ok, n, valid)
		}
		d, l := newDecoder(), library.NewDecoder(4096, nil)
		for i, block := range [][]byte{first, second, first, second} {
			got, err := decode(d, block)
			fields, lerr := l.DecodeFull(block)
			var want []string
			for _, f := range fields {
				want = append(want, show(f.Name, f.Value, f.Sensitive))
			}
			if (err == nil) != (lerr == nil) {
				if known(err, lerr) {
					return
				}
				t.Fatalf("block %d: %v, want %v", i, err, lerr)
			}
			if err != nil {
				return
			}
			if !slices.Equal(got, want) {
				t.Fatalf("block %d: %q, want %q", i, got, want)
			}
			if n := d.Held(); n > 4*4096+128*24 {
				t.Fatalf("%d bytes held", n)
			}
		}
	})
}

// known reports whether a difference is intended: the library reads larger integers, and a table
// size update behind a field if the table is empty. It refuses the second update of a block if
// the table is not empty.
func known(err, lerr error) bool {
	return err == ErrInteger || err == ErrSize || err == nil && strings.Contains(lerr.Error(), "size update MUST occur")
}

// FuzzEncode checks that the library decodes what the encoder sends, whatever the table's size,
// and that a decoder of our own does.
func FuzzEncode(f *testing.F) {
	f.Add("content-type=text/plain X-Y=z content-type=text/plain\n*100\ncontent-type=text/plain", uint8(0))
	f.Add(strings.Repeat("accept=*/* user-agent=a/1\n*64\n*4096\n", 5), uint8(1))
	f.Fuzz(func(t *testing.T, script string, kinds uint8) {
		e, d, l := &Encoder{}, newDecoder(), library.NewDecoder(4096, nil)
		e.Reset()
		for line := range strings.SplitSeq(script, "\n") {
			if n, ok := strings.CutPrefix(line, "*"); ok {
				size := 0
				fmt.Sscan(n, &size)
				size = max(0, size) % 10_000
				e.SetMax(size)
				l.SetAllowedMaxDynamicTableSize(uint32(min(size, 4096)))
				continue
			}
			var b []byte
			var want []string
			b = e.Begin(b)
			for i, word := range strings.Split(line, " ") {
				name, value, _ := strings.Cut(word, "=")
				if name == "" {
					continue
				}
				lowName := []byte(name)
				if !lower(lowName) {
					continue // no token
				}
				small := string(lowName)
				k := Kind(kinds>>(i%4*2)&3) % 3
				want = append(want, show(small, value, k == Secret))
				h, ok := uint64(0), false
				if k != Secret {
					b, h, ok = e.AppendIndexed(b, []byte(name), []byte(value))
				}
				if !ok {
					b = e.AppendLiteral(b, []byte(name), []byte(value), h, k, 0)
				}
			}
			got, err := decode(d, b)
			fields, lerr := l.DecodeFull(b)
			var theirs []string
			for _, f := range fields {
				theirs = append(theirs, show(f.Name, f.Value, f.Sensitive))
			}
			if err != nil || lerr != nil || !slices.Equal(got, want) || !slices.Equal(theirs, want) {
				t.Fatalf("%v, %v: %q, library %q, want %q", err, lerr, got, theirs, want)
			}
			if e.table.size > e.table.max || e.table.max > 4096 {
				t.Fatalf("size %d of %d", e.table.size, e.table.max)
			}
		}
	})
}

// TestSimilarFields checks that fields which differ in one letter, of the name or of the value, nearly all find their place in the table
// when they come for the second time, and not before.
func TestSimilarFields(t *testing.T) {
	for what, field := range map[string]func(letter string) (name, value string){
		"the first letter of the name":          func(c string) (string, string) { return c + "-name", "the same" },
		"the middle of the name":                func(c string) (string, string) { return "x-" + c + "-n", "the same" },
		"the end of the name":                   func(c string) (string, string) { return "x-a" + c + c, "the same" },
		"a value of a letter":                   func(c string) (string, string) { return "x-name", c },
		"the first letter of a short value":     func(c string) (string, string) { return "x-name", c + "alue" },
		"the middle of a short value":           func(c string) (string, string) { return "x-name", "va" + c + "ue" },
		"the last letter of a short value":      func(c string) (string, string) { return "x-name", "valu" + c },
		"the first letter of a longer value":    func(c string) (string, string) { return "x-name", c + "-value of the field" },
		"the eighth letter of a longer value":   func(c string) (string, string) { return "x-name", "a-value" + c + "of the field" },
		"the eighth letter from its end":        func(c string) (string, string) { return "x-name", "a-value of the " + c + "e-field" },
		"the last letter of a longer value":     func(c string) (string, string) { return "x-name", "a-value of the field" + c },
		"the length of the name":                func(c string) (string, string) { return "x-" + strings.Repeat("n", int(c[0]-'a')), "the same" },
		"the length of the value":               func(c string) (string, string) { return "x-name", strings.Repeat("v", int(c[0]-'a')+1) },
		"the third letter of a value of eight":  func(c string) (string, string) { return "x-name", "a-" + c + "-last" },
		"a letter of a value of eight, at last": func(c string) (string, string) { return "x-name", "a-value" + c },
	} {
		var e Encoder
		e.Reset()
		indexed := 0
		for round := range 3 {
			indexed = 0
			for c := 'a'; c <= 'z'; c++ {
				name, value := field(string(c))
				if _, ok := appendField(&e, nil, name, value); ok {
					indexed++
				}
			}
			if round == 0 && e.table.n > 0 {
				t.Errorf("%s: %d fields that came once are in the table", what, e.table.n)
			}
		}
		if indexed < 20 {
			t.Errorf("%s: only %d of 26 fields that came twice before are in the table", what, indexed)
		}
	}
}
