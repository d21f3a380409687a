package hostname

import (
	"bytes"
	"strings"
	"testing"
)

// spellings are texts with their canonical form.
var spellings = []struct{ text, want string }{
	{"a.test", "a.test"},
	{"A.Test", "a.test"},
	{"a.test.", "a.test"},
	{"A.TEST.", "a.test"},
	{"%61.test", "a.test"},
	{"a%2Etest%2e", "a.test"},
	{"%41.%54est", "a.test"},
	{"a.test..", "a.test.."}, // an empty label: no name
	{".", "."},
	{"..", ".."},
	{"", ""},
	{".shop.test", ".shop.test"},
	{".Shop.test.", ".shop.test"},
	{"a%2fb", "a%2fb"}, // a slash is no part of a name
	{"a%2Fb", "a%2fb"},
	{"%2541", "%2541"},     // a percent sign
	{"%%34%31", "%%34%31"}, // no escape
	{"a%", "a%"}, {"a%4", "a%4"}, {"a%zz", "a%zz"},
	{"127.0.0.1", "127.0.0.1"},
	{"127.0.0.1.", "127.0.0.1"},
	{"[::1]", "[::1]"},
	{"[0:0:0:0:0:0:0:1]", "[::1]"},
	{"[0000::0001]", "[::1]"},
	{"[::0.0.0.1]", "[::1]"},
	{"[2001:DB8::A]", "[2001:db8::a]"},
	{"[2001:db8:0:0:1:0:0:1]", "[2001:db8::1:0:0:1]"},
	{"[::ffff:127.0.0.1]", "127.0.0.1"},
	{"[::FFFF:7f00:1]", "127.0.0.1"},
	{"[::127.0.0.1]", "[::7f00:1]"},
	{"[fe80::1%25eth0]", "[fe80::1%25eth0]"}, // with a zone, which no request may have
	{"[fe80::1%eth0]", "[fe80::1%eth0]"},
	{"[127.0.0.1]", "[127.0.0.1]"}, // no literal
	{"[:::]", "[:::]"},
	{"[::1", "[::1"},
	{"[", "["},
	{"[]", "[]"},
}

func TestCanonicalForm(t *testing.T) {
	for _, c := range spellings {
		var buf Buffer
		if got := Name(c.text); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
		for _, port := range []string{"", ":80", ":", ":8080"} {
			if strings.HasSuffix(c.text, "[::1") || strings.Contains(c.text, "::1%") && port == "" {
				continue
			}
			if got := string(Of(&buf, []byte(c.text+port))); got != c.want {
				t.Errorf("%q: %q, want %q", c.text+port, got, c.want)
			}
		}
	}
}

// TestUsualName: a name that has the canonical form is returned as it is, and nothing allocates, but
// for IPv6 literals.
func TestUsualName(t *testing.T) {
	var buf Buffer
	for _, text := range []string{"a.test", "a.test:8080", "127.0.0.1:80", ""} {
		authority := []byte(text)
		if got := Of(&buf, authority); len(got) > 0 && &got[0] != &authority[0] {
			t.Errorf("%q is copied", text)
		}
	}
	for _, text := range []string{"a.test", "A.test.:80", "%61.test"} {
		authority, dst := []byte(text), make([]byte, 0, 64)
		if n := testing.AllocsPerRun(100, func() { Of(&buf, authority); dst = AppendAuthority(dst[:0], authority, true) }); n != 0 {
			t.Errorf("%q: %v allocations", text, n)
		}
	}
}

// TestLength: a host of MaxLen bytes has a form, however the host is written, and a longer host has none.
func TestLength(t *testing.T) {
	for _, c := range []struct {
		text string
		want int // 0 means nil
	}{
		{strings.Repeat("a", MaxLen), MaxLen},
		{strings.Repeat("a", MaxLen) + ".", MaxLen},
		{strings.Repeat("A", MaxLen), MaxLen},
		{strings.Repeat("%61", MaxLen), MaxLen},
		{strings.Repeat("a", MaxLen+1), 0},
		{strings.Repeat("A", MaxLen+1), 0},
		{strings.Repeat("%61", MaxLen+1), 0},
	} {
		var buf Buffer
		if got := Of(&buf, []byte(c.text+":80")); len(got) != c.want {
			t.Errorf("%d bytes, %.6s: %d, want %d", len(c.text), c.text, len(got), c.want)
		}
	}
}

func TestAppendAuthority(t *testing.T) {
	for _, c := range []struct {
		text    string
		isHTTPS bool
		want    string
	}{
		{"a.test", false, "a.test"},
		{"A.test.:80", false, "a.test"},
		{"a.test:080", false, "a.test"},
		{"a.test:", false, "a.test"},
		{"a.test:443", false, "a.test:443"},
		{"a.test:443", true, "a.test"},
		{"a.test:80", true, "a.test:80"},
		{"a.test:08080", true, "a.test:8080"},
		{"a.test:99999", true, "a.test:99999"}, // no port
		{"[0::1]:80", false, "[::1]"},
		{"[0::1]", false, "[::1]"},
		{"", false, ""},
	} {
		if got := string(AppendAuthority([]byte("x "), []byte(c.text), c.isHTTPS)); got != "x "+c.want {
			t.Errorf("%q, %t: %q, want %q", c.text, c.isHTTPS, got, c.want)
		}
	}
}

func TestBare(t *testing.T) {
	for in, want := range map[string]string{"[::1]": "::1", "a.test": "a.test", "[": "[", "": ""} {
		if got := string(Bare([]byte(in))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// FuzzName: the canonical form of a canonical form is the same, and another spelling of a name has the
// form of that name.
func FuzzName(f *testing.F) {
	for _, c := range spellings {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, host []byte) {
		form := Append(nil, host)
		if again := Append(nil, form); !bytes.Equal(again, form) {
			t.Fatalf("%q: %q, and then %q", host, form, again)
		}
		if IsCanonical(host) && !bytes.Equal(form, host) {
			t.Fatalf("%q should be canonical: %q", host, form)
		}
		if got := Name(string(host)); got != string(form) {
			t.Fatalf("%q: %q as a name, else %q", host, got, form)
		}
		if bytes.ContainsAny(host, ":]") {
			return
		}
		var buf Buffer
		for _, port := range []string{"", ":", ":80"} {
			if got := Of(&buf, append(bytes.Clone(host), port...)); !bytes.Equal(got, form) && len(form) <= MaxLen {
				t.Fatalf("%q%s: %q, want %q", host, port, got, form)
			}
		}
		others := [][]byte{asciiUpper(host)}
		if n := len(host); n > 0 && host[n-1] != '.' && !strings.HasSuffix(string(form), ".") && len(form) > 0 && host[0] != '[' && isEscaped(host) && !endsEscapedDot(host) {
			others = append(others, append(bytes.Clone(host), '.'), append(bytes.Clone(host), "%2E"...))
		}
		for _, other := range others {
			if got := Append(nil, other); !bytes.Equal(got, form) {
				t.Fatalf("%q is %q, and %q is %q", host, form, other, got)
			}
		}
	})
}

// asciiUpper returns host in upper case.
func asciiUpper(host []byte) []byte {
	out := bytes.Clone(host)
	for i, c := range out {
		if 'a' <= c && c <= 'z' {
			out[i] = c - 0x20
		}
	}
	return out
}

func endsEscapedDot(host []byte) bool { return bytes.HasSuffix(asciiUpper(host), []byte("%2E")) }
