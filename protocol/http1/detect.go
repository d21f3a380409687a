package http1

// Verdict says what protocol the first bytes of a connection belong to.
type Verdict uint8

const (
	Undecided Verdict = iota // the bytes may become a request line
	IsHTTP                   // the bytes begin with a request line of HTTP/1
	NotHTTP                  // the bytes belong to another protocol
)

// More bytes of empty lines, and longer request lines, are not HTTP. RFC 9112 section 3 recommends a limit of 8000 octets; no
// registered method is longer than 17.
const (
	maxDetectBlank  = 64
	maxDetectMethod = 32
	maxDetectTarget = 8000
)

// detectVersion follows the target of an HTTP/1 request. In the preface of HTTP/2 another
// version does (RFC 9113 section 3.4).
const detectVersion = "HTTP/1."

type detectPart uint8

const (
	detectBlank detectPart = iota // empty lines before the request line
	detectMethod
	detectTarget
	detectMinor
)

// Detector finds out from a client's first bytes whether they are a request line of HTTP/1 up
// to the version (RFC 9112 section 3). It skips empty lines before the request line. The decoder
// ignores one, but other servers ignore more, and would read the request behind them.
// The zero value expects the first byte.
type Detector struct {
	part detectPart
	n    int // bytes of the part so far
}

// Feed takes the next bytes. The result does not depend on how the input is split. After a
// verdict the Detector must not be used any more.
func (d *Detector) Feed(b []byte) Verdict {
	for _, c := range b {
		if v := d.next(c); v != Undecided {
			return v
		}
	}
	return Undecided
}

func (d *Detector) next(c byte) Verdict {
	if d.part == detectBlank {
		if (c == '\r' || c == '\n') && d.n < maxDetectBlank {
			d.n++
			return Undecided
		}
		d.part, d.n = detectMethod, 0
	}
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

// word takes a byte of a word of at most limit bytes, or the space that ends it.
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
