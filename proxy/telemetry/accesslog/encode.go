package accesslog

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/remora-proxy/remora/internal/printable"
)

// Longest strings of a line, in bytes. Longer ones are truncated: clients choose most of them.
const (
	maxName = 256 // names of listeners and services, hosts and addresses
	maxWord = 64  // methods, outcomes and codes
	maxID   = 128
	maxPath = 1024
)

// maxLine bounds the length of a line of JSON: escaping makes at most six bytes of one.
const maxLine = 6*(5*maxName+7*maxWord+2*maxID+maxPath) + 1024

// encoder encodes lines, and caches the digits of the last second. Its zero value is ready.
type encoder struct {
	format *format // nil means JSON
	record Record  // being encoded by format: what function values get would be allocated
	second int64
	digits [len(toSecond)]byte
}

const toSecond = "2006-01-02T15:04:05"

// longest bounds the length of a line.
func (e *encoder) longest() int {
	if e.format != nil {
		return e.format.longest
	}
	return maxLine
}

// append appends the line of r. In JSON the order of the fields is fixed.
func (e *encoder) append(b []byte, r *Record) []byte {
	if e.format != nil {
		e.record = *r
		b = e.format.append(e, b)
		e.record = Record{}
		return b
	}
	first := len(b)
	if !r.Time.IsZero() {
		b = append(e.time(append(b, `,"time":"`...), r.Time), '"')
	}
	b = appendText(b, `,"listener":"`, r.Listener, maxName)
	b = appendText(b, `,"client":"`, r.Client, maxName)
	b = appendText(b, `,"protocol":"`, r.Protocol, maxWord)
	b = appendText(b, `,"stream":"`, r.Stream, maxWord)
	b = appendText(b, `,"request_id":"`, r.RequestID, maxID)
	b = appendText(b, `,"trace_id":"`, r.TraceID, maxID)
	b = appendText(b, `,"method":"`, r.Method, maxWord)
	b = appendText(b, `,"authority":"`, r.Authority, maxName)
	b = appendText(b, `,"path":"`, r.Path, maxPath)
	b = appendText(b, `,"service":"`, r.Service, maxName)
	b = appendText(b, `,"endpoint":"`, r.Endpoint, maxName)
	b = appendText(b, `,"outcome":"`, r.Outcome, maxWord)
	b = appendInt(b, `,"status":`, int64(r.Status))
	b = appendText(b, `,"grpc_status":"`, r.GRPC, maxWord)
	b = appendText(b, `,"error":"`, r.Error, maxWord)
	b = appendText(b, `,"fault":"`, r.Fault, maxWord)
	b = appendText(b, `,"fallback":"`, r.Fallback, maxWord)
	b = appendText(b, `,"cache":"`, r.Cache, maxWord)
	b = appendInt(b, `,"bytes_in":`, r.BytesIn)
	b = appendInt(b, `,"bytes_out":`, r.BytesOut)
	b = appendMillis(b, `,"duration_ms":`, r.Duration)
	b = appendMillis(b, `,"queued_ms":`, r.Queued)
	b = appendInt(b, `,"attempts":`, int64(r.Attempts))
	b = appendInt(b, `,"retries":`, int64(r.Retries))
	b = appendInt(b, `,"hedges":`, int64(r.Hedges))
	b = strconv.AppendBool(append(b, `,"hedge_won":`...), r.HedgeWon)
	b[first] = '{' // instead of the first comma
	return append(b, "}\n"...)
}

// time appends t in RFC 3339 with microseconds, in UTC.
func (e *encoder) time(b []byte, t time.Time) []byte {
	if s := t.Unix(); s != e.second || e.digits[0] == 0 {
		e.second = s
		t.UTC().AppendFormat(e.digits[:0], toSecond)
	}
	b = append(b, e.digits[:]...)
	b = fraction(append(b, '.'), t.Nanosecond()/1e3, 1e5)
	return append(b, 'Z')
}

func appendInt(b []byte, key string, n int64) []byte {
	return strconv.AppendInt(append(b, key...), n, 10)
}

// appendMillis appends d with three decimals.
func appendMillis(b []byte, key string, d time.Duration) []byte {
	us := max(0, d.Microseconds())
	b = strconv.AppendInt(append(b, key...), us/1e3, 10)
	return fraction(append(b, '.'), int(us%1e3), 1e2)
}

// fraction appends the digits of n. first is the value of a 1 in the first digit.
func fraction(b []byte, n, first int) []byte {
	for ; first > 0; first /= 10 {
		b = append(b, byte('0'+n/first%10))
	}
	return b
}

// appendText appends key, which ends with the opening quote, and s, unless s is empty. It
// truncates s to maxBytes.
func appendText[T string | []byte](b []byte, key string, s T, maxBytes int) []byte {
	if len(s) == 0 {
		return b
	}
	b = append(b, key...)
	if len(s) > maxBytes {
		s = s[:truncatedLen(s, maxBytes)]
	}
	return append(escape(b, s), '"')
}

// truncatedLen returns the largest length of at most maxBytes that splits no
// character of s, which is longer than maxBytes.
func truncatedLen[T string | []byte](s T, maxBytes int) int {
	for n := maxBytes; n > maxBytes-utf8.UTFMax; n-- {
		if utf8.RuneStart(s[n]) {
			return n
		}
	}
	return maxBytes // s is not UTF-8
}

// plain marks the printable bytes that a JSON string contains unescaped (RFC 8259 section 7).
var plain = func() (t [utf8.RuneSelf]bool) {
	for c := byte(' '); c < 0x7f; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// escape appends s as the inside of a JSON string. Invalid UTF-8 becomes U+FFFD, and what is not printable is
// escaped.
func escape[T string | []byte](b []byte, s T) []byte {
	done := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if !plain[c] {
				b = control(append(b, s[done:i]...), c)
				done = i + 1
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
		switch {
		case r == utf8.RuneError && n == 1:
			b = append(append(b, s[done:i]...), `\ufffd`...)
			done = i + n
		case !printable.Is(r):
			b = printable.AppendEscape(append(b, s[done:i]...), r)
			done = i + n
		}
		i += n
	}
	return append(b, s[done:]...)
}

// control appends the escape of a byte that is not plain.
func control(b []byte, c byte) []byte {
	if i := strings.IndexByte("\"\\\b\f\n\r\t", c); i >= 0 {
		return append(b, '\\', `"\bfnrt`[i])
	}
	return printable.AppendEscape(b, rune(c))
}
