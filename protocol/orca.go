package protocol

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
)

// LoadReport is what an endpoint says of its own load by ORCA, as xds.data.orca.v3.OrcaLoadReport.
// The values are finite and not negative; 0 means not said.
type LoadReport struct {
	CPU         float64 // used share of the processors, which may be above 1
	Application float64 // the same, as the application measures it
	Rate        float64 // requests per second of all its clients
}

// Utilization returns the used share of the endpoint's capacity, by the application's own measure if it has one.
func (r *LoadReport) Utilization() float64 {
	if r.Application > 0 {
		return r.Application
	}
	return r.CPU
}

// The fields that carry a report: as text in HTTP, in binary in gRPC.
const (
	HeaderLoad       = "endpoint-load-metrics"
	HeaderLoadBinary = "endpoint-load-metrics-bin"
)

// maxLoadReport bounds the bytes of a report that is read. A longer one counts as none.
const maxLoadReport = 1 << 10

// LoadReported returns the report in headers or trailers. ok is false if they have none, or one that
// is malformed.
func LoadReported(hs []Header) (r LoadReport, ok bool) {
	for i := range hs {
		switch name := hs[i].Name; {
		case len(name) == len(HeaderLoadBinary) && EqualFold(name, HeaderLoadBinary):
			ok = r.parseBase64(hs[i].Value)
		case len(name) == len(HeaderLoad) && EqualFold(name, HeaderLoad):
			ok = r.parse(hs[i].Value)
		default:
			continue
		}
		return r, ok
	}
	return r, false
}

// parse reads a value that begins with its format.
func (r *LoadReport) parse(b []byte) bool {
	format, rest, _ := bytes.Cut(b, []byte(" "))
	switch {
	case len(b) > maxLoadReport:
		return false
	case string(format) == "TEXT":
		return r.parseText(rest)
	case string(format) == "JSON":
		return r.parseJSON(rest)
	case string(format) == "BIN":
		return r.parseBase64(rest)
	}
	return false
}

func (r *LoadReport) parseBase64(b []byte) bool {
	var buf [maxLoadReport]byte
	b = bytes.TrimRight(b, "=")
	if base64.RawStdEncoding.DecodedLen(len(b)) > len(buf) {
		return false
	}
	n, err := base64.RawStdEncoding.Decode(buf[:], b)
	return err == nil && r.parseBinary(buf[:n])
}

// Types of fields in Protocol Buffers.
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wire32     = 5
)

// parseBinary reads a report in Protocol Buffers.
func (r *LoadReport) parseBinary(b []byte) bool {
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 {
			return false
		}
		b = b[n:]
		size := 0
		switch tag & 7 {
		case wireVarint:
			if _, size = binary.Uvarint(b); size <= 0 {
				return false
			}
		case wire64:
			size = 8
		case wire32:
			size = 4
		case wireBytes:
			length, n := binary.Uvarint(b)
			if n <= 0 || length > uint64(len(b)) {
				return false
			}
			size = n + int(length)
		default:
			return false
		}
		if size > len(b) {
			return false
		}
		if tag&7 == wire64 && !r.set(tag>>3, math.Float64frombits(binary.LittleEndian.Uint64(b))) {
			return false
		}
		b = b[size:]
	}
	return true
}

// Numbers of fields in OrcaLoadReport.
const (
	fieldCPU         = 1
	fieldRate        = 6
	fieldApplication = 9
)

// set sets the field with a number to v. Others are ignored. It returns false if v is no load.
func (r *LoadReport) set(field uint64, v float64) bool {
	var to *float64
	switch field {
	case fieldCPU:
		to = &r.CPU
	case fieldRate:
		to = &r.Rate
	case fieldApplication:
		to = &r.Application
	default:
		return true
	}
	*to = v
	return v >= 0 && v <= math.MaxFloat64
}

// setText sets the field with a name. Both spellings that JSON may have are known.
func (r *LoadReport) setText(name, value []byte) bool {
	field := uint64(0)
	switch string(name) {
	case "cpu_utilization", "cpuUtilization":
		field = fieldCPU
	case "rps_fractional", "rpsFractional":
		field = fieldRate
	case "application_utilization", "applicationUtilization":
		field = fieldApplication
	default:
		return true
	}
	v, err := strconv.ParseFloat(string(value), 64)
	return err == nil && r.set(field, v)
}

// parseText reads "name=value, name=value".
func (r *LoadReport) parseText(b []byte) bool {
	for len(b) > 0 {
		var pair []byte
		pair, b, _ = bytes.Cut(b, []byte(","))
		if pair = bytes.TrimSpace(pair); len(pair) == 0 {
			continue // RFC 9110 section 5.6.1.2
		}
		name, value, ok := bytes.Cut(pair, []byte("="))
		if !ok || !r.setText(name, value) {
			return false
		}
	}
	return true
}

// parseJSON reads the numbers of an object, and skips what else it has.
func (r *LoadReport) parseJSON(b []byte) bool {
	depth, key := 0, []byte(nil)
	for i := 0; i < len(b); {
		switch c := b[i]; c {
		case '{', '[':
			depth++
			key = nil
			i++
		case '}', ']':
			depth--
			i++
			if depth <= 0 {
				return depth == 0 && len(bytes.TrimSpace(b[i:])) == 0
			}
		case ' ', '\t', '\r', '\n', ':':
			i++
		case ',':
			key = nil
			i++
		case '"':
			n := stringLength(b[i:])
			if n == 0 {
				return false
			}
			key = b[i+1 : i+n-1]
			i += n
		default: // a number, or a word
			n := bytes.IndexAny(b[i:], ",]} \t\r\n")
			if n <= 0 || depth == 0 {
				return false
			}
			if depth == 1 && !r.setText(key, b[i:i+n]) {
				return false
			}
			i += n
		}
	}
	return false
}

// stringLength returns the length of the JSON string at the start of b, with its quotes; 0 if it has
// no end.
func stringLength(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}
