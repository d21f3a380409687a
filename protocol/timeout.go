package protocol

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// TimeoutField is a header that says how long the caller waits from now on.
type TimeoutField uint8

const (
	NotTimeout   TimeoutField = iota
	OwnTimeout                // milliseconds; 0 or less means that the time is up
	EnvoyTimeout              // milliseconds; 0 means no timeout
	GRPCTimeout               // at most 8 digits and a unit; 0 means that the time is up
)

// timeoutLengths has the bit n set if a name has n bytes.
const timeoutLengths = 1<<len(HeaderTimeout) | 1<<len(HeaderEnvoyTimeout) | 1<<len(HeaderGRPCTimeout)

// TimeoutFieldOf returns the field with this name, in any case.
func TimeoutFieldOf(name []byte) TimeoutField {
	if uint64(timeoutLengths)>>min(len(name), 63)&1 == 0 {
		return NotTimeout
	}
	return timeoutNamed(name)
}

// timeoutNamed is TimeoutFieldOf for a name that has one of timeoutLengths.
func timeoutNamed(name []byte) TimeoutField {
	switch {
	case string(name) == HeaderTimeout || EqualFold(name, HeaderTimeout):
		return OwnTimeout
	case string(name) == HeaderGRPCTimeout || EqualFold(name, HeaderGRPCTimeout):
		return GRPCTimeout
	case EqualFold(name, HeaderEnvoyTimeout):
		return EnvoyTimeout
	}
	return NotTimeout
}

// MaxTimeout is the longest time that a header can say. It can be added to any time of a loop.
const MaxTimeout = time.Duration(1) << 62

const maxGRPC = 99_999_999

var grpcUnits = [...]time.Duration{time.Hour, time.Minute, time.Second, time.Millisecond, time.Microsecond, time.Nanosecond}

// ParseTimeout returns the time that the value of a header says, at most MaxTimeout. 0 means
// that it is up. ok is false if the value is malformed, or means no timeout.
func ParseTimeout(f TimeoutField, value []byte) (d time.Duration, ok bool) {
	unit, digits, isUp := time.Millisecond, string(value), false
	switch {
	case f == NotTimeout, digits == "":
		return 0, false // without the allocations of an error
	case f == OwnTimeout:
		digits, isUp = strings.CutPrefix(digits, "-")
	case f == GRPCTimeout:
		last := len(digits) - 1
		if last < 1 || last > 8 || strings.IndexByte("HMSmun", digits[last]) < 0 {
			return 0, false
		}
		unit, digits = grpcUnits[strings.IndexByte("HMSmun", digits[last])], digits[:last]
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	switch {
	case err != nil, f == EnvoyTimeout && n == 0:
		return 0, false
	case isUp:
		return 0, true
	}
	return time.Duration(min(n, uint64(MaxTimeout/unit))) * unit, true
}

// Milliseconds returns the last whole number before d, since a loop's clock stands still during
// a turn. It is at least 1: to many readers 0 means no timeout.
func Milliseconds(d time.Duration) int64 { return max(1, (max(d, 1) - 1).Milliseconds()) }

// appendTimeout appends the value of a header that says somewhat less than d.
func appendTimeout(dst []byte, f TimeoutField, d time.Duration) []byte {
	switch {
	case f != GRPCTimeout:
		return strconv.AppendInt(dst, Milliseconds(d), 10)
	case d <= maxGRPC*time.Microsecond:
		return append(strconv.AppendInt(dst, max(1, (max(d, 1)-1).Microseconds()), 10), 'u')
	}
	return append(strconv.AppendInt(dst, min((d-1).Milliseconds(), maxGRPC), 10), 'm')
}

// SetTimeLeft makes the headers of a request say how long its caller still waits. It replaces
// the values of hs that are not shorter or are malformed, removes repeated ones, and adds
// x-remora-timeout-ms. The new values are appended to text, which must live as long as they.
func SetTimeLeft(hs []Header, left time.Duration, text []byte) (_ []Header, newText []byte) {
	var seen [GRPCTimeout + 1]bool
	hs = append(hs, Header{Name: NameTimeout})
	for i := 0; i < len(hs); i++ {
		f := TimeoutFieldOf(hs[i].Name)
		switch {
		case f == NotTimeout:
			continue
		case seen[f]:
			hs = slices.Delete(hs, i, i+1)
			i--
			continue
		}
		seen[f] = true
		if said, ok := ParseTimeout(f, hs[i].Value); !ok || said >= left {
			start := len(text)
			text = appendTimeout(text, f, left)
			hs[i].Value = text[start:len(text):len(text)]
		}
	}
	return hs, text
}
