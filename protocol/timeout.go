package protocol

import (
	"slices"
	"strconv"
	"time"
)

// TimeoutField is a header that says how long the caller waits from now on.
type TimeoutField uint8

// The headers.
const (
	NotTimeout    TimeoutField = iota
	OwnTimeout                 // x-remora-timeout-ms: 0 or less means that the time is up
	EnvoyTimeout               // x-envoy-expected-rq-timeout-ms: 0 means no timeout
	GRPCTimeout                // grpc-timeout: at most 8 digits and a unit; 0 means that the time is up
	timeoutFields              // number of the above
)

// TimeoutFieldOf returns which of them has this name, in any case.
func TimeoutFieldOf(name []byte) TimeoutField {
	switch len(name) {
	case len(HeaderGRPCTimeout):
		if EqualFold(name, HeaderGRPCTimeout) {
			return GRPCTimeout
		}
	case len(HeaderTimeout):
		if EqualFold(name, HeaderTimeout) {
			return OwnTimeout
		}
	case len(HeaderEnvoyTimeout):
		if EqualFold(name, HeaderEnvoyTimeout) {
			return EnvoyTimeout
		}
	}
	return NotTimeout
}

const (
	maxTimeoutDigits = 18 // they always fit an int64
	maxGRPCDigits    = 8
	maxGRPC          = 99_999_999

	// MaxTimeout is the longest time that a header can say. It can be added to any time of a loop.
	MaxTimeout = time.Duration(1) << 62
)

// ParseTimeout returns the time that the value of a header says, at most MaxTimeout. 0 or less
// means that it is up. ok is false if the value is malformed, or means no timeout.
func ParseTimeout(f TimeoutField, value []byte) (d time.Duration, ok bool) {
	unit, most, negative := time.Millisecond, maxTimeoutDigits, false
	switch n := len(value); {
	case n == 0:
		return 0, false
	case f == GRPCTimeout:
		unit, most, value = grpcUnit(value[n-1]), maxGRPCDigits, value[:n-1]
	case f == OwnTimeout && value[0] == '-':
		negative, value = true, value[1:]
	}
	if unit == 0 || len(value) == 0 || len(value) > most {
		return 0, false
	}
	var n int64
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	switch {
	case f == EnvoyTimeout && n == 0:
		return 0, false
	case negative:
		return 0, true
	}
	return time.Duration(min(n, int64(MaxTimeout/unit))) * unit, true
}

// grpcUnit returns the unit of a grpc-timeout; 0 means none.
func grpcUnit(c byte) time.Duration {
	switch c {
	case 'H':
		return time.Hour
	case 'M':
		return time.Minute
	case 'S':
		return time.Second
	case 'm':
		return time.Millisecond
	case 'u':
		return time.Microsecond
	case 'n':
		return time.Nanosecond
	}
	return 0
}

// AppendTimeout appends the value of a header that says d, rounded down, but at least the
// shortest time that it can say.
func AppendTimeout(dst []byte, f TimeoutField, d time.Duration) []byte {
	switch {
	case f != GRPCTimeout:
		return strconv.AppendInt(dst, Milliseconds(d), 10)
	case d <= maxGRPC*time.Microsecond:
		return append(strconv.AppendInt(dst, max(1, d.Microseconds()), 10), 'u')
	}
	return append(strconv.AppendInt(dst, min(d.Milliseconds(), maxGRPC), 10), 'm')
}

// Milliseconds returns d rounded down, at least 1: to many readers 0 means no timeout.
func Milliseconds(d time.Duration) int64 { return max(1, d.Milliseconds()) }

// SetTimeLeft makes the headers of a request say how long its caller still waits. It replaces
// the values of hs that are longer or malformed, removes repeated ones, and adds
// x-remora-timeout-ms. The new values are appended to text, which must live as long as they.
func SetTimeLeft(hs []Header, left time.Duration, text []byte) (_ []Header, newText []byte) {
	var seen [timeoutFields]bool
	hs = slices.DeleteFunc(hs, func(h Header) bool {
		f := TimeoutFieldOf(h.Name)
		repeated := f != NotTimeout && seen[f]
		seen[f] = true
		return repeated
	})
	if !seen[OwnTimeout] {
		hs = append(hs, Header{Name: NameTimeout})
	}
	for i := range hs {
		f := TimeoutFieldOf(hs[i].Name)
		if f == NotTimeout {
			continue
		}
		if said, ok := ParseTimeout(f, hs[i].Value); ok && said <= left {
			continue
		}
		start := len(text)
		text = AppendTimeout(text, f, left)
		hs[i].Value = text[start:len(text):len(text)]
	}
	return hs, text
}
