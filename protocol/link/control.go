package link

import (
	"encoding/binary"
	"time"
)

// Load is the state of a service at its provider, for all loops and all consumers together.
// Durations travel in microseconds, rounded up.
type Load struct {
	Pending       uint32        // requests at the application
	Queued        uint32        // requests that wait for the application
	Latency       time.Duration // recent latency of the application; 0 means unknown
	SinceResponse time.Duration // since the application's last response; negative means none yet
}

// Control frames. A payload may have bytes after the known ones, which are ignored, so that a
// later version can add fields.

// FeatureProbes in Settings.Features means that this side, as an acceptor, responds to PROBE.
const FeatureProbes = 1 << 2

// appendLoad appends a LOAD or an ANSWER.
func appendLoad(dst []byte, t frameType, l Load) []byte {
	since := uint64(0) // 0 means no response yet
	if l.SinceResponse >= 0 {
		since = micros(l.SinceResponse) + 1
	}
	fields := [4]uint64{uint64(l.Pending), uint64(l.Queued), micros(l.Latency), since}
	length := 0
	for _, v := range fields {
		length += varintLen(v)
	}
	dst = appendHeader(dst, uint8(t), 0, length)
	for _, v := range fields {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

func parseLoad(b []byte) (l Load, err error) {
	fields, ok := parseVarints(b)
	if !ok {
		return l, ErrPayload
	}
	const most = 1<<32 - 1
	l.Pending, l.Queued = uint32(min(fields[0], most)), uint32(min(fields[1], most))
	l.Latency = time.Duration(min(fields[2], maxMicros)) * time.Microsecond
	l.SinceResponse = -1
	if fields[3] > 0 {
		l.SinceResponse = time.Duration(min(fields[3]-1, maxMicros)) * time.Microsecond
	}
	return l, nil
}

func parseCredit(b []byte) (uint32, error) {
	v, _ := parseVarint(b) // 0 if b has none
	if v == 0 || v > 1<<32-1 {
		return 0, ErrPayload
	}
	return uint32(v), nil
}

// parseByte reads a payload of one byte: a Reason or a Dropped.
func parseByte(b []byte) (uint8, error) {
	if len(b) == 0 {
		return 0, ErrPayload
	}
	return b[0], nil
}
