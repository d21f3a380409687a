package dubbo

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"
)

// hessianValues has every form of every type with its JSON; "" means malformed.
var hessianValues = []struct{ wire, json string }{
	{"4e", `null`}, {"54", `true`}, {"46", `false`},
	// int
	{"90", `0`}, {"80", `-16`}, {"bf", `47`}, {"c800", `0`}, {"c000", `-2048`}, {"cfff", `2047`}, {"d40000", `0`},
	{"d00000", `-262144`}, {"d7ffff", `262143`}, {"4900040000", `262144`}, {"4980000000", `-2147483648`}, {"d57862", `96354`},
	// long
	{"e0", `0`}, {"d8", `-8`}, {"ef", `15`}, {"f800", `0`}, {"f000", `-2048`}, {"ffff", `2047`}, {"3c0000", `0`},
	{"380000", `-262144`}, {"3fffff", `262143`}, {"5980000000", `-2147483648`}, {"4c7fffffffffffffff", `9223372036854775807`},
	{"4c8000000000000000", `-9223372036854775808`},
	// double
	{"5b", `0.0`}, {"5c", `1.0`}, {"5d80", `-128.0`}, {"5e7fff", `32767.0`}, {"5f00002fda", `12.25`}, {"5f00000009", `0.009000000000000001`}, {"5f0000000d", `0.013000000000000001`},
	{"5f00000012", `0.018000000000000002`}, {"5ffffffff7", `-0.009000000000000001`}, {"5f0000000a", `0.01`}, {"5f7fffffff", `2147483.647`}, {"443ff8000000000000", `1.5`},
	{"447ff8000000000000", `null`}, {"447ff0000000000000", `null`}, {"4441f0000000000000", `4.294967296E+09`}, {"443f50624dd2f1a9fc", `0.001`},
	// date
	{"4a000000d04b9284b8", `894621091000`}, {"4b00e3838f", `894621060000`},
	// string
	{"00", `""`}, {"0161", `"a"`}, {"02c3a93c", `"é<"`}, {"02eda0bdedb880", `"😀"`}, {"300161", `"a"`}, {"53000161", `"a"`}, {"5200016153000162", `"ab"`},
	{"52000161520001620163", `"abc"`}, {"03220a5c", `"\"\n\\"`}, {"020061", `"\u0000a"`},
	{"02c280dfbf", "\"\u0080\u07ff\""}, {"02e0a080efbfbf", "\"\u0800\uffff\""}, {"01ed9fbf", "\"\ud7ff\""}, // the shortest of each length
	{"02eda08061", `"�a"`}, {"02edb08061", `"�a"`}, {"02edb080eda080", `"��"`}, {"52 0001 eda0bd 01 edb880", `"��"`}, // half a pair
	// binary
	{"20", `""`}, {"23010203", `"AQID"`}, {"3403010203", `"AQID"`}, {"420003010203", `"AQID"`}, {"4100010122 0203", `"AQID"`}, {"4100010141000102 2103", `"AQID"`},
	// list
	{"78", `[]`}, {"7a9091", `[0,1]`}, {"5892 9091", `[0,1]`}, {"57 9091 5a", `[0,1]`}, {"57 5a", `[]`}, {"72 04 5b696e74 9091", `[0,1]`},
	{"56 04 5b696e74 92 9091", `[0,1]`}, {"55 04 5b696e74 9091 5a", `[0,1]`}, {"7a 71 04 5b696e74 90 71 90 91", `[[0],[1]]`}, {"79 79 78", `[[[]]]`},
	{"70 04 5b696e74", `[]`}, {"77 04 5b696e74 90 90 90 90 90 90 90", `[0,0,0,0,0,0,0]`}, {"7f 90 90 90 90 90 90 90", `[0,0,0,0,0,0,0]`},
	// map
	{"48 5a", `{}`}, {"48 0161 90 0162 4e 5a", `{"a":0,"b":null}`}, {"4d 0158 0161 90 5a", `{"a":0}`}, {"48 91 e2 54 46 4e 5b 5a", `{"1":2,"true":false,"null":0.0}`},
	{"7a 4d 0158 5a 4d 90 5a", `[{},{}]`},
	// object
	{"43 0158 92 0161 0162 60 90 0163", `{"a":0,"b":"c"}`}, {"43 0158 91 0161 4f 90 54", `{"a":true}`}, {"43 0158 90 60", `{}`},
	{"7a 43 0158 91 0161 60 90 60 91", `[{"a":0},{"a":1}]`}, {"43 0158 90 43 0159 91 0162 61 60", `{"b":{}}`},
	{"43 14 6a6176612e6d6174682e426967446563696d616c 91 05 76616c7565 60 06 2d312e352e30", ``}, // no number
	{"43 14 6a6176612e6d6174682e426967446563696d616c 91 05 76616c7565 60 04 2d312e35", `-1.5`},
	// references
	{"7a 79 90 51 91", `[[0],[0]]`}, {"7a 48 0161 90 5a 51 91", `[{"a":0},{"a":0}]`}, {"7b 43 0158 91 0161 60 90 51 91 43 0159 90 61", `[{"a":0},{"a":0},{}]`},
	{"7b 79 43 0158 91 0161 60 90 51 91 43 0159 91 0162 61 91", `[[{"a":0}],[{"a":0}],{"b":1}]`},
	{"51 90", ``}, {"79 51 91", ``}, {"79 51 8f", ``},
	{"7a 7a 78 51 92 51 91", `[[[],[]],[[],[]]]`},
	// values that contain themselves: a list, an object (its parent, itself), a map in a list, a copy of a cycle, a name with an escape
	{"79 51 90", `[{"$ref":"$"}]`}, {"43 0158 91 046e657874 60 60 51 90", `{"next":{"next":{"$ref":"$"}}}`},
	{"43 0158 91 046e657874 60 60 51 91", `{"next":{"next":{"$ref":"$.next"}}}`}, {"7a 90 48 0161 51 91 5a", `[0,{"a":{"$ref":"$[1]"}}]`},
	{"7a 79 51 91 51 91", `[[{"$ref":"$[0]"}],[{"$ref":"$[1]"}]]`}, {"48 022261 79 79 51 91 5a", `{"\"a":[[{"$ref":"$.\"a"}]]}`},
	// keys of maps: null, binary, an enum, two references to the enum, objects, a list, a map with a name alone, an object in itself
	{"48 4e 90 22 0102 90 5a", `{"null":0,"AQI=":0}`}, {"48 43 0145 91 046e616d65 60 03524544 90 5a", `{"RED":0}`},
	{"7a 43 0145 91 046e616d65 60 03524544 48 51 91 90 5a", `[{"name":"RED"},{"RED":0}]`}, {"48 43 0158 91 0161 60 90 4e 5a", `{"{\"a\":0}":null}`},
	{"48 43 0158 92 046e616d65 0161 60 0162 4e 90 5a", `{"{\"name\":\"b\",\"a\":null}":0}`}, {"48 7a 90 91 90 5a", `{"[0,1]":0}`},
	{"48 48 046e616d65 0162 5a 90 5a", `{"{\"name\":\"b\"}":0}`}, {"48 43 0158 91 046e616d65 60 51 90 90 5a", `{"{\"name\":{\"$ref\":\"$\"}}":0}`},
	{"48 43 0145 91 046e616d65 60 03 225c61 90 5a", `{"\"\\a":0}`}, {"48 43 0145 91 046e616d65 60 00 90 5a", `{"":0}`}, {"48 43 0145 91 046e616d65 60 4e 90 5a", `{"{\"name\":null}":0}`},
	{"48 43 0158 91 0161 60 90 79 51 90 5a", `{"{\"a\":0}":[{"$ref":"$"}]}`},
	// a key that contains itself, and a list in a key that does
	{"48 43 0158 91 0161 60 51 91 90 5a", `{"{\"a\":{\"$ref\":\"$\"}}":0}`}, {"79 48 79 79 51 93 90 5a", `[{"[[{\"$ref\":\"$[0]\"}]]":0}]`},
}

func toJSON(b []byte, max int) (string, *transcoder) {
	tr := &transcoder{r: hessianReader{b: b}, max: max}
	tr.value()
	return string(tr.dst), tr
}

// TestHessianKeysInKeys: maps that are keys of maps do not grow past the limit, although each doubles the escapes of
// those in it, and although the input ends early.
func TestHessianKeysInKeys(t *testing.T) {
	const limit = 1000
	for _, depth := range []int{20, maxDepth} {
		maps := strings.Repeat("H", depth-1)
		for _, b := range []string{maps, maps + "\x01a", maps + "\x90" + strings.Repeat("NZ", depth-1)} {
			if _, tr := toJSON([]byte(b), limit); !tr.r.bad || len(tr.dst) > 4*limit {
				t.Errorf("depth %d, %.30q: %d bytes, refused: %t", depth, b[depth-1:], len(tr.dst), tr.r.bad)
			}
		}
	}
}

func TestHessianValues(t *testing.T) {
	for _, c := range hessianValues {
		b := unhexed(t, c.wire)
		got, tr := toJSON(b, 1000)
		if c.json == "" {
			if !tr.r.bad {
				t.Errorf("%s: got %s", c.wire, got)
			}
			continue
		}
		if got != c.json || tr.r.bad || tr.r.i != len(b) || tr.r.depth != 0 {
			t.Errorf("%s: got %s of %d bytes, %v, want %s", c.wire, got, tr.r.i, tr.r.bad, c.json)
		}
		r := hessianReader{b: append(b, 0xff)}
		if r.skip(); r.bad || r.i != len(b) || r.depth != 0 {
			t.Errorf("%s: skipped %d of %d bytes, %v", c.wire, r.i, len(b), r.bad)
		}
		for i := range b {
			r := hessianReader{b: b[:i:i]}
			if r.skip(); !r.bad {
				t.Errorf("%s: the first %d bytes are also a value", c.wire, i)
			}
		}
	}
}

func TestHessianMalformed(t *testing.T) {
	for _, wire := range []string{
		"", "40", "40 0000", "45", "47", "50", "5a", "43", "4f90", "60", "43 0158 90 61", "43 0158 90 4f 8f", // no such type, end or class
		"43 0158 8f 60", "43 0158 c8ff 60", "43 90 90 60", "43 0158 91 90 60 90", "43 0158 0161 60", "43 5200016100 90 60", // definitions
		"58 8f", "58 c8ff 90", "58 e0", "7a 90", "56 04 5b696e74 4e", "72 90 9091", "72 4e 9091", "4d 8f 5a", "4d 4e 5a", // lists and types
		"48 0161 5a", "48 0161", "57 90", // no value, no end
		"01 80", "01 c3", "01 c361", "01 e0a0", "01 e0a061", "01 f09f9880", "02 f09f9880", "01 ff", // text
		"01 c080", "01 c1b0", "01 c1bf", "01 e08080", "01 e080af", "01 e09fbf", "520001c08000", "530001c080", "43 01c080 90 60", // not the shortest form
		"520001614e", "5200016190", "5200016121 62", "410001610161", // chunks
		"51 8f", "51 0161", "51 e0", // references
	} {
		b := unhexed(t, wire)
		r := hessianReader{b: b}
		if r.skip(); !r.bad {
			if _, tr := toJSON(b, 1000); !tr.r.bad || !strings.HasPrefix(wire, "51 8f") {
				t.Errorf("%s: not refused", wire)
			}
		}
	}
}

func TestHessianDepth(t *testing.T) {
	for _, c := range []struct{ open, end string }{
		{"79", ""}, {"57", "5a"}, {"48 90", "5a"}, {"60", ""}, {"71 0158", ""},
	} {
		for depth, want := range map[int]bool{maxDepth: true, maxDepth + 1: false, 1 << 18: false} {
			b := unhexed(t, "43 0158 91 0161"+strings.Repeat(c.open, depth)+"90"+strings.Repeat(c.end, depth))
			r := hessianReader{b: b}
			if r.skip(); r.bad == want {
				t.Errorf("%d of %s: bad %v", depth, c.open, r.bad)
			}
			if _, tr := toJSON(b, 1<<20); tr.r.bad == want {
				t.Errorf("%d of %s in JSON: bad %v", depth, c.open, tr.r.bad)
			}
		}
	}
	// Heads of values must not nest.
	for _, tag := range []string{"43", "4d", "55", "56", "58", "4f", "51", "70", "52000161"} {
		r := hessianReader{b: unhexed(t, strings.Repeat(tag, 1<<20))}
		if r.skip(); !r.bad {
			t.Errorf("many %s are a value", tag)
		}
	}
}

// TestHessianClasses defines the maximum number of classes, and one more.
func TestHessianClasses(t *testing.T) {
	for n, want := range map[int]bool{maxClasses: true, maxClasses + 1: false} {
		r := hessianReader{b: unhexed(t, strings.Repeat("43 0158 90", n)+"60")}
		if r.skip(); r.bad == want {
			t.Errorf("%d classes: bad %v", n, r.bad)
		}
	}
}

// TestHessianClassesReplay refers to lists that define classes, up to the maximum in all, and then uses the latest class.
func TestHessianClassesReplay(t *testing.T) {
	for _, n := range []int{1, 600, maxClasses - 1} {
		list := "79" + strings.Repeat("43 0158 90", n) + "60" // a list with an object behind n definitions
		wire := "58 94" + list + "51 91 51 91 43 0159 91 0161" + "4f" + hex.EncodeToString(appendHessianInt(nil, int32(n))) + "90"
		b := unhexed(t, wire)
		got, tr := toJSON(b, 1<<20)
		if want := `[[{}],[{}],[{}],{"a":0}]`; got != want || tr.r.bad || len(tr.r.classes) != n+1 {
			t.Errorf("%d classes: got %s, bad %v, %d known, want %s", n, got, tr.r.bad, len(tr.r.classes), want)
		}
	}
}

// TestHessianReplay checks that references are expanded only up to max. Nested lists that
// refer twice to the list before grow exponentially from a few bytes.
func TestHessianReplay(t *testing.T) {
	b := []byte{0x58, 0x90 + 47, 0x78}
	for i := 1; i < 47; i++ {
		b = append(b, 0x7a, 'Q', 0x90+byte(i), 'Q', 0x90+byte(i))
	}
	for _, max := range []int{10, 1 << 10, 1 << 20} {
		got, tr := toJSON(b, max)
		if !tr.tooLarge || len(got) > max+100 || tr.replayed > max+len(b) {
			t.Errorf("max %d: %d bytes of JSON, %d read again, %v", max, len(got), tr.replayed, tr.tooLarge)
		}
	}
	// Class definitions add nothing to the JSON, but cost time to read again.
	b = append([]byte{0x58, 'I', 0, 0, 4, 0, 0x79}, unhexed(t, strings.Repeat("43 0158 90", 500)+"60")...)
	for range 1023 {
		b = append(b, 'Q', 0x91)
	}
	if _, tr := toJSON(b, 100_000); !tr.tooLarge || tr.replayed > 102_000 {
		t.Errorf("%d bytes read again", tr.replayed)
	}
}

// TestHessianReplayLimit: what is read again may be as long as the limit, and no byte longer.
func TestHessianReplayLimit(t *testing.T) {
	list := unhexed(t, "79"+strings.Repeat("43 0158 90", 10)+"60") // its definitions add nothing to the JSON
	b := slices.Concat([]byte{0x7b}, list, []byte{'Q', 0x91, 0x90})
	if got, tr := toJSON(b, len(list)); got != "[[{}],[{}],0]" || tr.r.bad {
		t.Errorf("%d bytes read again: %s, refused: %t", len(list), got, tr.r.bad)
	}
	if got, tr := toJSON(b, len(list)-1); !tr.tooLarge {
		t.Errorf("a byte more than the limit: %s", got)
	}
}

// TestHessianJSONGrowth checks that objects of few bytes with long field names are
// written only up to max.
func TestHessianJSONGrowth(t *testing.T) {
	b := []byte("C\x01X\x91S\x03\xe8" + strings.Repeat("n", 1000) + "XI\x00\x00\x04\x00" + strings.Repeat("\x60\x90", 1<<10))
	if got, tr := toJSON(b, 10_000); !tr.tooLarge || len(got) > 12_000 {
		t.Errorf("%d bytes, %v", len(got), tr.tooLarge)
	}
	if got, tr := toJSON(b, 1<<21); tr.r.bad || len(got) < 1000<<10 {
		t.Errorf("%d bytes, %v", len(got), tr.r.bad)
	}
}

func TestHessianReaderReleasesBody(t *testing.T) {
	var inv Invocation
	if err := inv.Parse(Hessian2, unhexed(t, hessian2Call)[HeaderSize:]); err != nil || inv.reader.b != nil {
		t.Errorf("kept %s, %v", hex.EncodeToString(inv.reader.b), err)
	}
}
