package route

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"github.com/remora-proxy/remora/internal/hostname"
	"github.com/remora-proxy/remora/proxy/config"
)

// PathRules bring paths into one form, so that a route matches what the application will see.
// The form is that of RFC 3986 sections 5.2.4 and 6.2.2.
type PathRules struct {
	normalize, merge bool
	slashes          string // a value of config.Path.EscapedSlashes
}

// NewPathRules returns the rules of a listener, or nil if they change nothing.
func NewPathRules(c *config.Path) *PathRules {
	r := PathRules{normalize: c.Normalize, merge: c.MergeSlashes, slashes: c.EscapedSlashes}
	if !r.normalize && !r.merge && r.slashes == config.SlashesKeep {
		return nil
	}
	return &r
}

// Normal reports whether the path of an origin-form target surely is in its form. The query does
// not count. It looks at eight bytes at a time for a question mark, backslash or percent sign, and
// for a slash or a dot behind a slash.
func (r *PathRules) Normal(target []byte) bool {
	i, last := 0, len(target)-8
	for behind := uint64(0); last >= 0; { // behind has a bit for the first byte if a slash is before it
		x := binary.LittleEndian.Uint64(target[i : i+8])
		slashes := equalBytes(x, '/')
		found := equalBytes(x, '?') | equalBytes(x, '\\') | equalBytes(x, '%') | (slashes<<8|behind)&(slashes|equalBytes(x, '.'))
		if found = found &^ x & eachHigh; found != 0 {
			i += bits.TrailingZeros64(found) >> 3
			break
		}
		if i == last {
			return true
		}
		i = min(i+8, last)
		behind = equalBytes(uint64(target[i-1]), '/') & 0x80
	}
	return i < len(target) && target[i] == '?' || isNormal(target[max(i-1, 0):])
}

// isNormal is Normal, byte by byte.
func isNormal(target []byte) bool {
	for i := range target {
		switch target[i] {
		case '?':
			return true
		case '\\':
			return false
		case '/':
			if i+1 < len(target) && (target[i+1] == '/' || target[i+1] == '.' && startsDotSegment(target[i+1:])) {
				return false
			}
		case '%':
			if !isNormalEscape(target[i:]) {
				return false
			}
		}
	}
	return true
}

const (
	eachByte = 0x0101010101010101
	eachHigh = 0x8080808080808080
)

// equalBytes sets the highest bit of each byte of x that equals c, an ASCII character. It may also
// set those of bytes above the lowest such byte (borrows), and of bytes that are not ASCII.
func equalBytes(x uint64, c byte) uint64 { return (x ^ uint64(c)*eachByte) - eachByte }

// startsDotSegment reports whether b, which starts with a dot, may start with a dot segment.
func startsDotSegment(b []byte) bool {
	if len(b) > 1 && b[1] == '.' {
		b = b[1:]
	}
	return len(b) == 1 || b[1] == '/' || b[1] == '?' || b[1] == ';' || b[1] == '%' || b[1] == '\\'
}

// isNormalEscape reports whether b, which starts with a percent sign, starts with an escape
// that every rule keeps.
func isNormalEscape(b []byte) bool {
	c, ok := unescape(b)
	return ok && !hostname.IsUnreserved(c) && c != 0 && c != '/' && c != '\\' && b[1] < 'a' && b[2] < 'a'
}

// unescape returns the byte of the escape that b starts with (RFC 3986 section 2.1).
func unescape(b []byte) (c byte, ok bool) {
	if len(b) < 3 {
		return 0, false
	}
	high, low := hexValue[b[1]], hexValue[b[2]]
	return high<<4 | low&0xf, high < 16 && low < 16
}

// AppendNormal appends target with its path in the form of the rules to dst, which must not
// overlap it. ok is false if the path must be refused: different applications would read it
// as different paths.
func (r *PathRules) AppendNormal(dst, target []byte) (_ []byte, ok bool) {
	path, query := target, []byte(nil)
	if i := bytes.IndexByte(target, '?'); i >= 0 {
		path, query = target[:i], target[i:]
	}
	start := len(dst)
	if dst, ok = r.appendUnescaped(dst, path); !ok {
		return dst, false
	}
	out := dst[start:]
	if r.normalize {
		if hidesDots(out) {
			return dst, false
		}
		out = removeDots(out)
	}
	if r.merge {
		out = mergeSlashes(out)
	}
	return append(dst[:start+len(out)], query...), true
}

// appendUnescaped appends path without the escapes that the rules replace.
func (r *PathRules) appendUnescaped(dst, path []byte) (_ []byte, ok bool) {
	for i := 0; i < len(path); i++ {
		c, length, valid := path[i], 1, true
		if c == '%' {
			c, valid = unescape(path[i:])
			length = 3
		}
		switch {
		case !valid || c == 0:
			if r.normalize {
				return dst, false
			}
			dst = append(dst, '%')
			continue
		case c == '\\', c == '/' && length > 1:
			switch r.slashes {
			case config.SlashesReject:
				return dst, false
			case config.SlashesUnescape:
				dst = append(dst, '/')
				i += length - 1
				continue
			}
		}
		switch {
		case length == 1 || r.normalize && hostname.IsUnreserved(c):
			dst = append(dst, c)
		case r.normalize:
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&0xf])
		default:
			dst = append(dst, path[i:i+length]...)
		}
		i += length - 1
	}
	return dst, true
}

// hidesDots reports whether a path has a segment that becomes a dot segment for applications
// that drop parameters (/..;x/), or that take escaped slashes for slashes (/..%2F).
func hidesDots(path []byte) bool {
	for segment := range bytes.SplitSeq(path, slash) {
		for rest, last := segment, false; !last; {
			var name []byte
			name, rest, last = cutName(rest)
			if (string(name) == "." || string(name) == "..") && len(name) < len(segment) {
				return true
			}
		}
	}
	return false
}

// cutName returns the text of a segment before the next escaped slash, without parameters, and
// the text after that slash. last reports whether there is none.
func cutName(segment []byte) (name, after []byte, last bool) {
	name, last = segment, true
	for i := range segment {
		c, width := segment[i], 1
		if c == '%' {
			c, _ = unescape(segment[i:])
			width = 3
		}
		if c == '\\' || c == '/' {
			if len(name) == len(segment) {
				name = segment[:i]
			}
			return name, segment[i+width:], false
		}
		if c == ';' && len(name) == len(segment) {
			name = segment[:i]
		}
	}
	return name, nil, last
}

// removeDots removes the dot segments of a path in its memory, each ".." with the segment
// before it (RFC 3986 section 5.2.4). Other segments stay, empty ones too.
func removeDots(path []byte) []byte {
	out := path[:0]
	for len(path) > 0 { // path starts with a slash, and out has none of its bytes
		end := len(path)
		if i := bytes.IndexByte(path[1:], '/'); i >= 0 {
			end = i + 1
		}
		segment, last := path[:end], end == len(path)
		path = path[end:]
		switch string(segment) {
		case "/..":
			out = out[:max(0, bytes.LastIndexByte(out, '/'))]
			fallthrough
		case "/.":
			if last {
				out = append(out, '/')
			}
		default:
			out = append(out, segment...)
		}
	}
	return out
}

// mergeSlashes makes one slash of several that follow each other, in the memory of path.
func mergeSlashes(path []byte) []byte {
	out := path[:0]
	for _, c := range path {
		if c != '/' || len(out) == 0 || out[len(out)-1] != '/' {
			out = append(out, c)
		}
	}
	return out
}

var slash = []byte("/")

const upperHex = "0123456789ABCDEF"

// hexValue is the value of a hexadecimal digit, and above 15 for other bytes.
var hexValue = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for _, digits := range []string{upperHex, "0123456789abcdef"} {
		for i := range len(digits) {
			t[digits[i]] = byte(i)
		}
	}
	return t
}()
