package proxyproto

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"net/netip"
	"strings"
	"testing"
)

// v2 returns a header of version 2.
func v2(command, family byte, body string) string {
	b := append([]byte(signature), command, family)
	return string(binary.BigEndian.AppendUint16(b, uint16(len(body)))) + body
}

// extra returns a value of version 2.
func extra(kind byte, value string) string {
	return string(binary.BigEndian.AppendUint16([]byte{kind}, uint16(len(value)))) + value
}

const (
	ip4 = "\xc0\x00\x02\x01\xc6\x33\x64\x02\xdc\x04\x01\xbb" // 192.0.2.1:56324 to 198.51.100.2:443
	ip6 = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\xdc\x04\x01\xbb"
)

var (
	of4 = Header{netip.MustParseAddrPort("192.0.2.1:56324"), netip.MustParseAddrPort("198.51.100.2:443")}
	of6 = Header{netip.MustParseAddrPort("[2001:db8::1]:56324"), netip.MustParseAddrPort("[2001:db8::2]:443")}
)

// withChecksum returns a header with a CRC32c over all of it, changed by wrong.
func withChecksum(wrong uint32) string {
	b := []byte(v2(0x21, 0x11, ip4+extra(typeCRC32C, "\x00\x00\x00\x00")+extra(0x04, "noop")))
	at := len(signature) + 4 + len(ip4) + 3
	binary.BigEndian.PutUint32(b[at:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))^wrong)
	return string(b)
}

// headers are headers, most of them from the specification, and what they mean.
var headers = []struct {
	name, text string
	want       Header
}{
	{"the shortest", "PROXY UNKNOWN\r\n", Header{}},
	{"TCP4", "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n", of4},
	{"the longest TCP4", "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", Header{
		netip.MustParseAddrPort("255.255.255.255:65535"), netip.MustParseAddrPort("255.255.255.255:65535")}},
	{"TCP6", "PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n", of6},
	{"the longest TCP6", "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n", Header{
		netip.MustParseAddrPort("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"), netip.MustParseAddrPort("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535")}},
	{"the longest", "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n", Header{}},
	{"mapped", "PROXY TCP6 ::ffff:192.0.2.1 ::ffff:198.51.100.2 56324 443\r\n", of4},
	{"port 0", "PROXY TCP4 192.0.2.1 198.51.100.2 0 443\r\n", Header{netip.MustParseAddrPort("192.0.2.1:0"), of4.Destination}},
	{"v2 TCP4", v2(0x21, 0x11, ip4), of4},
	{"v2 TCP6", v2(0x21, 0x21, ip6), of6},
	{"v2 Unix", v2(0x21, 0x31, strings.Repeat("u", 216)), Header{}},
	{"v2 UDP", v2(0x21, 0x12, ip4), Header{}},
	{"v2 unspecified", v2(0x21, 0x00, ""), Header{}},
	{"v2 local", v2(0x20, 0x00, ""), Header{}},
	{"v2 local with addresses", v2(0x20, 0x11, ip4), Header{}},
	{"v2 local with anything", v2(0x20, 0xff, "xyz"), Header{}},
	{"v2 with values", v2(0x21, 0x11, ip4+extra(0x02, "example.com")+extra(0xea, "")), of4},
	{"v2 with a checksum", withChecksum(0), of4},
	{"v2, the longest", v2(0x21, 0x11, ip4+extra(0x04, strings.Repeat("n", MaxBinary-prelude-12-3))), of4},
}

// malformed are no headers.
var malformed = map[string]string{
	"HTTP":                 "GET / HTTP/1.1\r\n",
	"TLS":                  "\x16\x03\x01",
	"small letters":        "proxy TCP4 192.0.2.1 198.51.100.2 56324 443\r\n",
	"a version":            "PROXY1 ",
	"no line end":          "PROXY UNKNOWN" + strings.Repeat(" ", MaxText),
	"no line end in time":  "PROXY UNKNOWN" + strings.Repeat(" ", MaxText-len("PROXY UNKNOWN")),
	"a line end too late":  "PROXY UNKNOWN" + strings.Repeat(" ", MaxText-len("PROXY UNKNOWN\r")) + "\r\n",
	"another family":       "PROXY UDP4 192.0.2.1 198.51.100.2 56324 443\r\n",
	"no family":            "PROXY \r\n",
	"IPv6 as TCP4":         "PROXY TCP4 2001:db8::1 2001:db8::2 56324 443\r\n",
	"IPv4 as TCP6":         "PROXY TCP6 192.0.2.1 198.51.100.2 56324 443\r\n",
	"a zone":               "PROXY TCP6 fe80::1%eth0 2001:db8::2 56324 443\r\n",
	"two spaces":           "PROXY TCP4 192.0.2.1  198.51.100.2 56324 443\r\n",
	"a leading zero":       "PROXY TCP4 192.0.2.01 198.51.100.2 56324 443\r\n",
	"a zero before a port": "PROXY TCP4 192.0.2.1 198.51.100.2 056324 443\r\n",
	"a zero and a digit":   "PROXY TCP4 192.0.2.1 198.51.100.2 01 443\r\n",
	"a sign":               "PROXY TCP4 192.0.2.1 198.51.100.2 +56324 443\r\n",
	"a large port":         "PROXY TCP4 192.0.2.1 198.51.100.2 65536 443\r\n",
	"a missing port":       "PROXY TCP4 192.0.2.1 198.51.100.2 56324\r\n",
	"one more":             "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443 x\r\n",
	"a space at the end":   "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443 \r\n",
	"v2 of version 1":      v2(0x11, 0x11, ip4),
	"v2 of version 3":      v2(0x31, 0x11, ip4),
	"v2 of command 2":      v2(0x22, 0x11, ip4),
	"v2 of family 4":       v2(0x21, 0x41, ip4),
	"v2 of transport 3":    v2(0x21, 0x13, ip4),
	"v2 too short":         v2(0x21, 0x11, ip4[:11]),
	"v2 too long":          v2(0x21, 0x11, ip4+extra(0x04, strings.Repeat("n", MaxBinary-prelude-12-2))),
	"v2, a cut value":      v2(0x21, 0x11, ip4+extra(0x04, "abc")[:5]),
	"v2, a cut head":       v2(0x21, 0x11, ip4+"\x04\x00"),
	"v2, a wrong checksum": withChecksum(1),
	"v2, a short checksum": v2(0x21, 0x11, ip4+extra(typeCRC32C, "abc")),
	"v2, another newline":  "\r\n\r\n\x00\r\nQUIT\r",
}

// TestDecode decodes each header whole, with bytes behind it, and byte by byte.
func TestDecode(t *testing.T) {
	for _, c := range headers {
		for i := range len(c.text) {
			if _, n, err := Decode([]byte(c.text[:i])); err != ErrIncomplete || n != 0 {
				t.Fatalf("%s, %d bytes: %d, %v", c.name, i, n, err)
			}
		}
		for _, behind := range []string{"", "\r\n", "PROXY "} {
			if h, n, err := Decode([]byte(c.text + behind)); h != c.want || n != len(c.text) || err != nil {
				t.Errorf("%s: %+v, %d, %v; want %+v, %d", c.name, h, n, err, c.want, len(c.text))
			}
		}
	}
	for name, text := range malformed {
		if h, n, err := Decode([]byte(text)); h != (Header{}) || n != 0 || err != ErrMalformed {
			t.Errorf("%s: %+v, %d, %v", name, h, n, err)
		}
	}
}

// TestAppend checks the bytes that are sent, against the examples of the specification.
func TestAppend(t *testing.T) {
	mixed := Header{of4.Source, of6.Destination}
	for _, c := range []struct {
		version int
		h       Header
		want    string
	}{
		{1, of4, "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n"},
		{1, of6, "PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n"},
		{1, mixed, "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 56324 443\r\n"},
		{1, Header{}, "PROXY UNKNOWN\r\n"},
		{1, Header{Source: of4.Source}, "PROXY UNKNOWN\r\n"},
		{2, of4, v2(0x21, 0x11, ip4)},
		{2, of6, v2(0x21, 0x21, ip6)},
		{2, Header{}, v2(0x21, 0x00, "")},
	} {
		if got := Append([]byte("x"), c.version, c.h); string(got) != "x"+c.want {
			t.Errorf("version %d of %+v: %q", c.version, c.h, got)
		}
	}
	if got := hex.EncodeToString(Append(nil, 2, of4)); got != "0d0a0d0a000d0a515549540a"+"2111000c"+"c0000201c6336402dc0401bb" {
		t.Errorf("version 2: %s", got)
	}
}

// FuzzDecode: no prefix of a header has another result, a header is bounded, and what Append writes
// of it is read as the same.
func FuzzDecode(f *testing.F) {
	for _, c := range headers {
		f.Add([]byte(c.text))
	}
	for _, text := range malformed {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := Decode(b)
		switch err {
		case nil:
			if n < len("PROXY UNKNOWN\r\n") || n > MaxBinary || n > len(b) {
				t.Fatalf("a header of %d bytes", n)
			}
		case ErrIncomplete:
			if len(b) >= MaxBinary || !bytes.HasPrefix(b, []byte(signature)) && len(b) >= MaxText {
				t.Fatalf("incomplete after %d bytes", len(b))
			}
		case ErrMalformed:
		default:
			t.Fatal(err)
		}
		if err != nil {
			return
		}
		for i := range n {
			if _, _, err := Decode(b[:i]); err != ErrIncomplete {
				t.Fatalf("%d of %d bytes: %v", i, n, err)
			}
		}
		for version := 1; version <= 2; version++ {
			sent := Append(nil, version, h)
			if again, n, err := Decode(sent); again != h || n != len(sent) || err != nil {
				t.Fatalf("version %d: %+v became %+v, %v", version, h, again, err)
			}
		}
	})
}
