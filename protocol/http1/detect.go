package http1

import "github.com/remora-proxy/remora/protocol"

// Verdict says what protocol the first bytes of a connection belong to.
type Verdict uint8

const (
	Undecided Verdict = iota // the bytes may become a request line
	IsHTTP                   // the bytes begin with a request line of HTTP/1
	LikeHTTP                 // they don't, but a lenient server may find a request of HTTP/1 there, or they are HTTP/2
	NotHTTP                  // the bytes belong to another protocol
)

// What has more bytes of empty lines, or a longer request line, is at most LikeHTTP. RFC 9112 section 3 recommends a limit of
// 8000 octets; no registered method is longer than 17.
const (
	maxDetectBlank  = 64
	maxDetectMethod = 32
	maxDetectTarget = 8000
)

// detectVersion follows the target of an HTTP/1 request. In the preface of HTTP/2 another
// version does (RFC 9113 section 3.4).
const (
	detectVersion = "HTTP/1."
	detectName    = "HTTP/"
)

type detectPart uint8

const (
	detectBlank detectPart = iota // empty lines before the request line
	detectMethod
	detectTarget
	detectMinor
	detectText // the rest of a line that is no request line
)

// Detector finds out from a client's first bytes whether they are a request line of HTTP/1 up
// to the version (RFC 9112 section 3). It skips empty lines before the request line. The decoder
// ignores one empty line, but other servers ignore more, and would read the request behind them.
//
// A first line that is no request line of HTTP/1 is LikeHTTP in three cases: "HTTP/" is in it, in any case, since some servers split
// lines at any spaces and take any method; it is a GET of HTTP/0.9; or it is longer than a request line may be.
//
// The zero value expects the first byte.
type Detector struct {
	part   detectPart
	n      int  // bytes of the part so far
	named  int  // in detectText: bytes of "HTTP/" that have just been seen
	simple bool // the method may be GET, the only one of HTTP/0.9
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
		if c != '\r' && c != '\n' {
			d.part, d.n, d.simple = detectMethod, 0, true
		} else if d.n++; d.n > maxDetectBlank {
			return LikeHTTP
		} else {
			return Undecided
		}
	}
	switch d.part {
	case detectMethod:
		return d.method(c)
	case detectTarget:
		return d.target(c)
	case detectText:
		return d.text(c)
	}
	switch {
	case c == detectVersion[d.n]:
		if d.n++; d.n == len(detectVersion) {
			return IsHTTP
		}
		return Undecided
	case d.n >= len(detectName):
		return LikeHTTP
	}
	return d.beginText(c)
}

func (d *Detector) method(c byte) Verdict {
	const simple = "GET"
	switch {
	case c == ' ' && d.n > 0:
		d.simple = d.simple && d.n == len(simple)
		d.part, d.n = detectTarget, 0
	case separates(c):
		d.simple = d.simple && (d.n == 0 || d.n == len(simple))
		return d.beginText(c)
	case !protocol.TokenChar[c] || d.n == maxDetectMethod:
		d.simple = false
		return d.beginText(c)
	default:
		d.simple = d.simple && d.n < len(simple) && c == simple[d.n]
		d.n++
	}
	return Undecided
}

func (d *Detector) target(c byte) Verdict {
	switch {
	case c == ' ' && d.n > 0:
		d.part, d.n = detectMinor, 0
	case !protocol.TargetChar[c] || d.n == maxDetectTarget:
		return d.beginText(c)
	default:
		d.n++
	}
	return Undecided
}

func (d *Detector) beginText(c byte) Verdict {
	d.part, d.n = detectText, 0
	return d.text(c)
}

// separates reports whether some server splits a request line at c: the spaces that RFC 9112 section 3 lists,
// with a bare CR, and those of Unicode in Latin-1, at which Python's http.server splits.
func separates(c byte) bool {
	switch c {
	case ' ', '\t', '\v', '\f', '\r', 0x1c, 0x1d, 0x1e, 0x1f, 0x85, 0xa0:
		return true
	}
	return false
}

// text looks for the name of a version in the rest of the line, in any case.
func (d *Detector) text(c byte) Verdict {
	upper := c
	if 'a' <= c && c <= 'z' {
		upper -= 'a' - 'A'
	}
	switch {
	case (c == '\r' || c == '\n') && d.simple:
		return LikeHTTP
	case c < ' ' && !separates(c):
		return NotHTTP
	case upper == detectName[d.named]:
		d.named++
	case upper == detectName[0]:
		d.named = 1
	default:
		d.named = 0
	}
	if d.n++; d.named == len(detectName) || d.n == maxDetectTarget {
		return LikeHTTP
	}
	return Undecided
}
