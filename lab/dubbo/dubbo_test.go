package dubbo

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
)

// Calls of hash("abc") with id 1, recorded from a real consumer.
const (
	fastjsonCall = "dabbc6000000000000000001000000b0" +
		"22322e302e31220a22636f6d2e616c69626162612e647562626f2e706572666f726d616e63652e64656d6f2e70726f76696465722e4948656c6c6f53657276696365220a" +
		"6e756c6c0a2268617368220a224c6a6176612f6c616e672f537472696e673b220a22616263220a" +
		"7b2270617468223a22636f6d2e616c69626162612e647562626f2e706572666f726d616e63652e64656d6f2e70726f76696465722e4948656c6c6f53657276696365227d0a"
	hessianCall = "dabbc2000000000000000001000000a5" +
		"05322e302e323039636f6d2e616c69626162612e647562626f2e706572666f726d616e63652e64656d6f2e70726f76696465722e4948656c6c6f53657276696365" +
		"05302e302e300468617368124c6a6176612f6c616e672f537472696e673b03616263" +
		"4804706174683039636f6d2e616c69626162612e647562626f2e706572666f726d616e63652e64656d6f2e70726f76696465722e4948656c6c6f536572766963655a"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRealCalls(t *testing.T) {
	for _, tt := range []struct{ name, call, answer, exhausted string }{
		{"fastjson", fastjsonCall, "dabb0614000000000000000100000008310a39363335340a", "dabb066400000000000000010000000522" + hex.EncodeToString([]byte("no")) + "220a"},
		{"hessian2", hessianCall, "dabb021400000000000000010000000491d57862", "dabb02640000000000000001000000043002" + hex.EncodeToString([]byte("no"))},
	} {
		in := unhex(t, tt.call)
		var c Call
		for i := range in {
			if _, err := c.Parse(in[:i]); err != ErrIncomplete {
				t.Fatalf("%s: %d bytes: %v", tt.name, i, err)
			}
		}
		n, err := c.Parse(append(in, 0xda))
		if err != nil || n != len(in) || c.ID != 1 || !c.TwoWay || c.Event || c.Method != "hash" || len(c.Args) != 1 {
			t.Errorf("%s: %v after %d bytes: %+v", tt.name, err, n, c)
		}
		if s, ok := c.Text(); s != "abc" || !ok {
			t.Errorf("%s: argument %q", tt.name, s)
		}
		if got := hex.EncodeToString(c.AppendInt(nil, HashCode("abc"))); got != tt.answer {
			t.Errorf("%s: answer %s, want %s", tt.name, got, tt.answer)
		}
		if got := hex.EncodeToString(c.AppendError(nil, StatusPoolExhausted, "no")); got != tt.exhausted {
			t.Errorf("%s: answer %s, want %s", tt.name, got, tt.exhausted)
		}
	}
}

func TestHeartbeats(t *testing.T) {
	for _, tt := range []struct{ call, answer string }{
		{"dabbe60000000000000000070000000" + "56e756c6c0a", "dabb2614000000000000000700000005" + "6e756c6c0a"},
		{"dabbe2000000000000000007000000014e", "dabb22140000000000000007000000014e"},
		{"dabbf5000000000000000007000000014e", "dabb35140000000000000007000000014e"}, // an unknown serialization
	} {
		var c Call
		if _, err := c.Parse(unhex(t, tt.call)); err != nil || !c.Event || !c.TwoWay {
			t.Errorf("%s: %v: %+v", tt.call, err, c)
		}
		if got := hex.EncodeToString(c.AppendHeartbeat(nil)); got != tt.answer {
			t.Errorf("%s: %s, want %s", tt.call, got, tt.answer)
		}
	}
}

// call returns a call with a body.
func call(serialization byte, body string) []byte {
	b := append([]byte{0xda, 0xbb, flagRequest | flagTwoWay | serialization}, make([]byte, headerSize-3)...)
	binary.BigEndian.PutUint32(b[12:], uint32(len(body)))
	return append(b, body...)
}

const beforeArgs = "\x052.0.2\x01p\x050.0.0\x04echo\x00"

func TestEcho(t *testing.T) {
	long := strings.Repeat("x", 300)
	values := map[string]string{
		"empty": "\x00", "short": "\x02h\xc3\xa9", "300 characters": "\x31\x2c" + long,
		"chunks": "R\x01\x2c" + long + "S\x00\x02yz", "surrogates": "\x02\xed\xa0\xbd\xed\xb8\x80",
		"four bytes": "\x02\xf0\x9f\x98\x80",
		"int 1":      "\x91", "int 2": "\xc8\x30", "int 3": "\xd4\xff\xff", "int": "I\x7f\xff\xff\xff",
		"long 1": "\xe1", "long 2": "\xf8\x30", "long 3": "\x3c\xff\xff", "long 4": "Y\x7f\xff\xff\xff", "long": "L\x01\x02\x03\x04\x05\x06\x07\x08",
		"true": "T", "false": "F", "double 0": "\x5b", "double 1": "\x5c", "double byte": "\x5d\x02", "double short": "\x5e\x02\x00",
		"double mills": "\x5f\x00\x00\x00\x01", "double": "D\x01\x02\x03\x04\x05\x06\x07\x08",
		"date": "J\x01\x02\x03\x04\x05\x06\x07\x08", "date in minutes": "K\x01\x02\x03\x04",
		"bytes": "\x22ab", "more bytes": "\x34\x02ab", "chunks of bytes": "A\x00\x01aA\x00\x01bB\x00\x01c", "last chunk short": "A\x00\x01a\x21b",
		"list": "\x7a\x91\x01a", "typed list": "\x72\x05[intsTF", "long list": "X\x92NN", "typed long list": "V\x01t\x92NN",
		"open list": "W\x91\x92Z", "typed open list": "U\x01t\x91Z", "type by number": "\x7a\x71\x01tN\x71\x90N",
		"map": "H\x01k\x7a\x91\x92Z", "typed map": "M\x01t\x01k\x01vZ",
		"object":      "C\x04User\x92\x04name\x03age\x60\x02ab\x99",
		"long object": "C\x01U\x91\x01aO\x90N", "nested": "C\x01U\x91\x01a\x60C\x01V\x91\x01b\x61\x60N",
		"reference": "\x7aH\x01k\x01vZQ\x91",
	}
	for name, value := range values {
		var c Call
		if n, err := c.Parse(call(Hessian2, beforeArgs+value+"\x03two"+"HZ")); err != nil || n == 0 || c.Method != "echo" || len(c.Args) != 2 {
			t.Errorf("%s: %v: %+v", name, err, c)
			continue
		}
		if got := c.AppendEcho(nil)[headerSize:]; string(got) != "\x91"+value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
	for body, want := range map[string]string{
		beforeArgs + "N" + "HZ": "\x92", beforeArgs + "HZ": "\x92",
	} {
		var c Call
		if _, err := c.Parse(call(Hessian2, body)); err != nil || string(c.AppendEcho(nil)[headerSize:]) != want {
			t.Errorf("%q: %v", body, err)
		}
	}
	const jsonBeforeArgs = "\"2.0.2\"\n\"p\"\nnull\n\"echo\"\n\"\"\n"
	for args, want := range map[string]string{
		"": "2\n", "null\n": "2\n", "{\"a\":[1,\"\\n\"]}\n7\n": "1\n{\"a\":[1,\"\\n\"]}\n",
	} {
		var c Call
		if _, err := c.Parse(call(Fastjson, jsonBeforeArgs+args+"{}\n")); err != nil || string(c.AppendEcho(nil)[headerSize:]) != want {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestText(t *testing.T) {
	for value, want := range map[string]string{
		"\x02h\xc3\xa9": "hé", "\x02\xed\xa0\xbd\xed\xb8\x80": "😀", "\x02\xf0\x9f\x98\x80": "😀", "\x01\xe2\x82\xac": "€",
		"R\x00\x01aS\x00\x01b": "ab", "\x02\xed\xa0\xbdA": "\ufffdA", "R\x00\x01\xed\xa0\xbd\x01\xed\xb8\x80": "😀",
	} {
		if s, ok := (hessian{}).text([]byte(value)); s != want || !ok {
			t.Errorf("%q: %q", value, s)
		}
	}
	if s, ok := (fastjson{}).text([]byte(`"h\u00e9\n😀"`)); s != "hé\n😀" || !ok {
		t.Errorf("%q", s)
	}
	for _, value := range []string{"null", "7", ""} {
		if s, ok := (fastjson{}).text([]byte(value)); ok {
			t.Errorf("%s is the string %q", value, s)
		}
	}
}

func TestMalformedCalls(t *testing.T) {
	good := call(Hessian2, beforeArgs+"HZ")
	for name, tt := range map[string]struct {
		in   []byte
		want error
	}{
		"magic":       {append([]byte{0xda, 0xbc}, good[2:]...), ErrMalformed},
		"answer":      {append([]byte{0xda, 0xbb, 2}, good[3:]...), ErrMalformed},
		"too long":    {append(bytes.Clone(good[:12]), 0x7f, 0, 0, 0), ErrMalformed},
		"unknown":     {append([]byte{0xda, 0xbb, 0xc0 | 21}, good[3:]...), ErrSerialization},
		"no body":     {call(Hessian2, ""), ErrBody},
		"json":        {call(Fastjson, "1\n2\n"), ErrBody},
		"no method":   {call(Hessian2, "\x00\x00\x00\x91\x00HZ"), ErrBody},
		"cut":         {call(Hessian2, beforeArgs+"S\x00\x09ab"), ErrBody},
		"no class":    {call(Hessian2, beforeArgs+"\x60"), ErrBody},
		"no such tag": {call(Hessian2, beforeArgs+"G"), ErrBody},
		"too deep":    {call(Hessian2, beforeArgs+strings.Repeat("\x79", 1000)+"N"), ErrBody},
		"many fields": {call(Hessian2, beforeArgs+"C\x01AI\x7f\xff\xff\xff"), ErrBody},
		"huge list":   {call(Hessian2, beforeArgs+"XI\x7f\xff\xff\xffN"), ErrBody},
		"no end":      {call(Hessian2, beforeArgs+"H\x01k\x01v"), ErrBody},
		"UTF-8":       {call(Hessian2, beforeArgs+"\x01\xff"), ErrBody},
		"bytes":       {call(Hessian2, beforeArgs+"A\x00\x01aN"), ErrBody},
	} {
		var c Call
		if _, err := c.Parse(tt.in); err != tt.want {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

func TestHashCode(t *testing.T) {
	for s, want := range map[string]int32{
		"": 0, "abc": 96354, "hello world, this overflows": 161437415, "é€": 15587, "😀": 1772899, "polygenelubricants": -2147483648,
	} {
		if got := HashCode(s); got != want {
			t.Errorf("%q: %d, want %d", s, got, want)
		}
	}
}

func TestAppendInt(t *testing.T) {
	for n, want := range map[int32]string{
		0: "90", -16: "80", 47: "bf", 48: "c830", -17: "c7ef", 2047: "cfff", -2048: "c000", 2048: "d40800", -262144: "d00000",
		262143: "d7ffff", 262144: "4900040000", -2147483648: "4980000000",
	} {
		b := (hessian{}).appendInt(nil, n)
		s := scanner{rest: b}
		if hex.EncodeToString(b) != want || s.int() != int(n) || s.bad {
			t.Errorf("%d: %x, want %s", n, b, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{fastjsonCall, hessianCall} {
		b, _ := hex.DecodeString(s)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Call
		n, err := c.Parse(b)
		if n > len(b) || err == nil && n < headerSize {
			t.Fatalf("%v after %d of %d bytes", err, n, len(b))
		}
		if err == nil && !c.Event {
			c.Text()
			c.AppendEcho(nil)
		}
	})
}
