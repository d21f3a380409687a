package http1

// Verdict is what the first bytes of a connection tell of it.
type Verdict uint8

// The verdicts.
const (
	Undecided Verdict = iota // the bytes may become a request line
	IsHTTP                   // they begin with a request line of HTTP/1
	NotHTTP                  // they are something else
)

// A request line longer than this is not looked at any further. RFC 9112 section
// 3 recommends 8000 octets; no registered method is longer than 17.
const (
	maxDetectMethod = 32
	maxDetectTarget = 8000
)

// detectVersion is what follows the target of an HTTP/1 request, and not that of
// HTTP/2's preface (RFC 9113 section 3.4).
const detectVersion = "HTTP/1."

// detectPart is a part of the request line.
type detectPart uint8

const (
	detectMethod detectPart = iota
	detectTarget
	detectMinor
)

// Detector tells from the first bytes that a client sends whether it speaks
// HTTP/1: whether they are a request line up to the version (RFC 9112 section 3).
// No empty line is skipped before it. The zero value waits for the first byte.
type Detector struct {
	part detectPart
	n    int // bytes of the part
}

// Feed takes the bytes that came next. How they are split makes no difference.
// After a verdict the Detector is of no further use.
func (d *Detector) Feed(b []byte) Verdict {
	for _, c := range b {
		if v := d.next(c); v != Undecided {
			return v
		}
	}
	return Undecided
}

func (d *Detector) next(c byte) Verdict {
	switch d.part {
	case detectMethod:
		return d.word(c, &tokenChar, maxDetectMethod)
	case detectTarget:
		return d.word(c, &targetChar, maxDetectTarget)
	}
	if c != detectVersion[d.n] {
		return NotHTTP
	}
	if d.n++; d.n == len(detectVersion) {
		return IsHTTP
	}
	return Undecided
}

// word takes a byte of a word of at most limit bytes, or the space behind it.
func (d *Detector) word(c byte, of *table, limit int) Verdict {
	switch {
	case c == ' ' && d.n > 0:
		d.part++
		d.n = 0
	case !of[c] || d.n == limit:
		return NotHTTP
	default:
		d.n++
	}
	return Undecided
}
