package link

import "encoding/binary"

// Versions that this build speaks. A release that adds version N keeps N-1.
const (
	MinVersion = 1
	MaxVersion = 1
)

// Role is the side of a link. The dialer sends requests, the acceptor responses.
type Role uint8

// The two sides of a link.
const (
	Dialer   Role = 1
	Acceptor Role = 2

	// In the place of a role:
	refusal    Role = 3 // no version in common
	streamRole Role = 4 // no link but a stream, see Stream
)

// A preface is
//
//	magic (4) | role (1) | lowest version (1) | highest version (1) |
//	length of the settings (1, below 128) | settings
//
// The dialer names the range it speaks, the acceptor the one version it chose
// from that, twice. A refusal names what the acceptor speaks, for the log. Bytes
// of the settings after the known ones are ignored.
const (
	magic         = "\x8dRML" // no text protocol starts with a byte above 0x7f
	prefaceHeader = len(magic) + 4
)

// versions is a range of protocol versions, both ends included.
type versions struct{ min, max uint8 }

func appendPreface(dst []byte, role Role, v versions, s Settings) []byte {
	dst = append(dst, magic...)
	dst = append(dst, byte(role), v.min, v.max, 0)
	start := len(dst)
	if role != refusal {
		dst = binary.AppendUvarint(dst, uint64(s.MaxFrame))
		dst = binary.AppendUvarint(dst, uint64(s.Window))
		dst = binary.AppendUvarint(dst, uint64(s.MaxStreams))
		dst = binary.AppendUvarint(dst, s.Features)
	}
	dst[start-1] = byte(len(dst) - start)
	return dst
}

// AppendRefusal appends what an acceptor sends instead of its preface when Feed
// returned ErrVersion; it then closes in an orderly way.
func AppendRefusal(dst []byte) []byte {
	return appendPreface(dst, refusal, versions{MinVersion, MaxVersion}, Settings{})
}

// prefaceLen is the length of the preface that b starts with, or the least that it
// can be when b is short of it. What can't become a preface is an error at once.
func prefaceLen(b []byte) (int, error) {
	for i := 0; i < len(b) && i < len(magic); i++ {
		if b[i] != magic[i] {
			return 0, ErrMagic
		}
	}
	if len(b) < prefaceHeader {
		return prefaceHeader, nil
	}
	if b[prefaceHeader-1] > 0x7f {
		return 0, ErrSettings
	}
	return prefaceHeader + int(b[prefaceHeader-1]), nil
}

// parsePreface reads the whole preface b of the peer of a side with role, which
// speaks own.
func parsePreface(b []byte, role Role, own versions) (version uint8, peer Settings, err error) {
	from, theirs := Role(b[len(magic)]), versions{b[len(magic)+1], b[len(magic)+2]}
	if from == refusal && role == Dialer {
		return 0, peer, ErrRefused
	}
	if from != Dialer && from != Acceptor || from == role {
		return 0, peer, ErrRole
	}
	if version = common(own, theirs); version == 0 {
		return 0, peer, ErrVersion
	}
	if from == Acceptor && theirs.min != theirs.max {
		return 0, peer, ErrVersion // it must have chosen
	}
	peer, err = parseSettings(b[prefaceHeader:])
	return version, peer, err
}

// common is the highest version in both ranges, 0 if there is none.
func common(own, theirs versions) uint8 {
	v := min(own.max, theirs.max)
	if v < own.min || v < theirs.min || theirs.min > theirs.max {
		return 0
	}
	return v
}

func parseSettings(b []byte) (s Settings, err error) {
	var fields [4]uint64
	for i := range fields {
		v, n := parseVarint(b)
		if n <= 0 {
			return s, ErrSettings
		}
		fields[i], b = v, b[n:]
	}
	const max32 = 1<<32 - 1
	if fields[0] < MinFrame || fields[1] < fields[0] || fields[2] == 0 ||
		fields[0] > max32 || fields[1] > max32 || fields[2] > max32 {
		return s, ErrSettings
	}
	s = Settings{uint32(fields[0]), uint32(fields[1]), uint32(fields[2]), fields[3]}
	return s.withDefaults(), nil
}
