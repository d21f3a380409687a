package dubbo

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// jsonTexts are valid and malformed JSON texts.
var jsonTexts = []string{
	`null`, `true`, `false`, `0`, `-0`, `12`, `-1.5`, `1e9`, `1E+9`, `0.5e-10`, `""`, `"a"`, `"\"\\\/\b\f\n\r\t\u00e9"`,
	`"` + "\u00e9\u4e2d\U0001F600" + `"`, `"\ud83d\ude00"`, `[]`, `[1]`, `[1,"a",[null]]`, `{}`, `{"a":1}`, ` { "a" : [ 1 , 2 ] , "b" : { } } `,
	"\t[\r\n]",
	``, ` `, `nul`, `nulll`, `tru`, `falsey`, `01`, `-`, `+1`, `1.`, `.5`, `1e`, `1e+`, `0x1`, `1 2`, `"`, `"a`, `"\`, `"\x"`, `"\u12"`, `"\u12g4"`,
	"\"\n\"", "\"\x1f\"", "1\x00", "\"\x00\"", `'a'`, `[`, `[1`, `[1,`, `[1,]`, `[,1]`, `[1 2]`, `]`, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{a:1}`,
	`{1:2}`, `{,}`, `{"a" 1}`, `{"a":1 "b":2}`, `}`, `[}`, `{]`, `//`, `NaN`, `Infinity`, `[1]]`, `{"a":1}}`,
}

func TestJSONReader(t *testing.T) {
	for _, text := range jsonTexts {
		value, ok := oneJSON([]byte(text))
		if ok != json.Valid([]byte(text)) {
			t.Errorf("%q: got %v", text, ok)
		}
		if ok && string(value) != strings.TrimSpace(text) {
			t.Errorf("%q: got %q", text, value)
		}
		if !ok {
			continue
		}
		for i := range text { // every prefix is malformed, or another value
			if got, ok := oneJSON([]byte(text[:i])); ok != json.Valid([]byte(text[:i])) {
				t.Errorf("%q: got %q", text[:i], got)
			}
		}
	}
}

func TestJSONDepth(t *testing.T) {
	for _, c := range []struct{ open, end string }{{"[", "]"}, {`{"a":`, "}"}} {
		for depth, want := range map[int]bool{maxDepth: true, maxDepth + 1: false, 1 << 20: false} {
			text := strings.Repeat(c.open, depth) + "1" + strings.Repeat(c.end, depth)
			if _, ok := oneJSON([]byte(text)); ok != want {
				t.Errorf("%d of %s: got %v", depth, c.open, ok)
			}
		}
	}
}

func TestJSONCompact(t *testing.T) {
	const text = " {\r\n\t\"a b\\\" \\\\\" : [ 1 , \"\\\\\" , { } ]\n} "
	const want = `{"a b\" \\":[1,"\\",{}]}`
	if got := string(appendCompact(nil, []byte(text))); got != want {
		t.Errorf("got %s", got)
	}
}

// randomText returns text with all characters that are special in JSON, Java or UTF-8.
func randomText(r *rand.Rand) string {
	alphabet := []rune("abc \"\\/\b\f\n\r\t\x00\x1f\x7f\u00e9\u07ff\u0800\u2028\ud7ff\ue000\uffff\U00010000\U0010ffff")
	var b strings.Builder
	for range r.IntN(40) {
		if r.IntN(3) == 0 {
			b.WriteRune(alphabet[r.IntN(len(alphabet))])
		} else {
			b.WriteByte(byte('a' + r.IntN(26)))
		}
	}
	return b.String()
}

func TestJSONStringRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		text := randomText(r)
		quoted := appendJSONString(nil, []byte(text))
		var theirs string
		if err := json.Unmarshal(quoted, &theirs); err != nil || theirs != text {
			t.Fatalf("%q: encoding/json reads %q from %s, %v", text, theirs, quoted, err)
		}
		ascii, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range [][]byte{quoted, ascii} {
			token, ok := oneJSON(q)
			if got := string(appendUnescaped(nil, inner(token))); !ok || got != text {
				t.Fatalf("%q: got %q from %s", text, got, q)
			}
		}
	}
}

// TestPlainLen tries every byte at every offset of a word, among bytes that its word-wise
// search could confuse it with.
func TestPlainLen(t *testing.T) {
	for _, around := range []byte{' ', '!', '#', '[', ']', 0x7f} {
		for at := range 17 {
			for c := range 256 {
				text := []byte(strings.Repeat(string(rune(around)), 17))
				text[at] = byte(c)
				want := len(text)
				if c < 0x20 || c == '"' || c == '\\' || c == surrogateLead {
					want = at
				}
				if got := plainLen(text); got != want {
					t.Fatalf("%q: got %d, want %d", text, got, want)
				}
			}
		}
	}
}

func TestSurrogates(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"\xed\xa0\xbd\xed\xb8\x80", "\U0001F600"},
		{"a\xed\xa0\xbd\xed\xb8\x80b", "a\U0001F600b"},
		{"\xed\xa0\xbd", "\ufffd"},
		{"\xed\xa0\xbdab", "\ufffdab"},
		{"\xed\xb8\x80\xed\xa0\xbd", "\ufffd\ufffd"},
		{"\xed\x9f\xbf", "\ud7ff"},
		{"\xed", "\ufffd"},
		{"\xed\xa0", "\ufffd\xa0"}, // the readers refuse such text before
	} {
		if got := string(appendText(nil, []byte(c.in))); got != c.want {
			t.Errorf("%q: got %q, want %q", c.in, got, c.want)
		}
		if got := string(appendEscaped(nil, []byte(c.in))); got != c.want {
			t.Errorf("%q in JSON: got %q, want %q", c.in, got, c.want)
		}
	}
	for _, c := range []struct{ in, want string }{
		{`\ud83d\ude00`, "\U0001F600"},
		{`\ud83d`, "\ufffd"},
		{`\ud83dx`, "\ufffdx"},
		{`\ud83d\n`, "\ufffd\n"},
		{`\ud83d\u0041`, "\ufffdA"},
		{`\ude00\ud83d`, "\ufffd\ufffd"},
	} {
		got := appendUnescaped(nil, []byte(c.in))
		if string(got) != c.want || !utf8.Valid(got) {
			t.Errorf("%s: got %q, want %q", c.in, got, c.want)
		}
	}
}
