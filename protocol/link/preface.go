package link

import (
	"cmp"
	"encoding/binary"
)

// Versions that this build speaks. A release that adds version N must keep N-1.
const (
	MinVersion = 1
	MaxVersion = 1
)

// Role is the side of a link. The dialer sends requests, the acceptor responses.
type Role uint8

const (
	Dialer   Role = 1
	Acceptor Role = 2

	// Values that a preface may have instead of a role:
	refusal    Role = 3 // no common version
	streamRole Role = 4 // a stream instead of a link, see Stream
)

// A preface is
//
//	magic (4) | role (1) | lowest version (1) | highest version (1) |
//	length of the settings (1, below 128) | settings
//
// The dialer offers the range of versions that it speaks. The acceptor names the version that
// it chose as both ends of its range. A refusal names the range of the acceptor, for logs.
// Bytes of the settings after the known ones are ignored.
const (
	magic         = "\x8dRML" // no text protocol starts with a byte above 0x7f
	prefaceHeader = len(magic) + 4
)

type versions struct{ min, max uint8 } // inclusive

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

// AppendRefusal appends what an acceptor sends instead of its preface if Feed returned
// ErrVersion. The acceptor then closes the connection.
func AppendRefusal(dst []byte) []byte {
	return appendPreface(dst, refusal, versions{MinVersion, MaxVersion}, Settings{})
}

// prefaceLen returns the length of the preface at the start of b, or its minimum length while
// b is shorter. Bytes that can't become a preface are an error at once.
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

// parsePreface reads the peer's complete preface b for a side with this role that speaks own.
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
		return 0, peer, ErrVersion // an acceptor must name exactly one version
	}
	peer, err = parseSettings(b[prefaceHeader:])
	return version, peer, err
}

func common(own, theirs versions) uint8 {
	v := min(own.max, theirs.max)
	if v < own.min || v < theirs.min {
		return 0
	}
	return v
}

func parseSettings(b []byte) (s Settings, err error) {
	fields, ok := parseVarints(b)
	if !ok {
		return s, ErrSettings
	}
	const max32 = 1<<32 - 1
	if fields[0] < MinFrame || fields[1] < fields[0] || fields[1] > max32 || fields[2] == 0 || fields[2] > max32 {
		return s, ErrSettings
	}
	s = Settings{uint32(fields[0]), uint32(fields[1]), uint32(fields[2]), fields[3]}
	return s.withDefaults(), nil
}

// Limits of version 1; settings can't exceed them.
const (
	MaxFrame  = 64 << 10  // longest frame, header included, in bytes
	MinFrame  = 4 << 10   // smallest MaxFrame setting that a peer may announce
	MaxWindow = 256 << 10 // most DATA that is ever unacknowledged in one direction
)

// maxWhole is the longest frame that is not DATA, header included, in bytes. Such frames need no credit.
const maxWhole = 16 << 10

// FeatureStarts in the Settings of an acceptor means that requests may wait at it for the application: it understands
// START and WITHDRAW, and tied hedges wait. It holds for as long as the link. A dialer does not announce it.
const FeatureStarts = 1 << 1

// Settings is what one side can receive, as announced in its preface. The zero value of a
// field means the default.
type Settings struct {
	// MaxFrame is the longest frame in bytes, header included, that this side accepts:
	// MinFrame to MaxFrame. Default: 16 KiB. Only DATA is longer than that.
	MaxFrame uint32
	// Window is the number of DATA bytes that the other side may send without CREDIT: at least
	// MaxFrame, at most MaxWindow. Default: 128 KiB.
	Window uint32
	// MaxStreams is the number of requests that the other side may have open. The caller
	// counts them, not the Writer. Default: 4096.
	MaxStreams uint32
	Features   uint64 // bits such as FeatureStreams; unknown ones are ignored
}

func (s Settings) withDefaults() Settings {
	s.MaxFrame = min(max(cmp.Or(s.MaxFrame, maxWhole), MinFrame), MaxFrame)
	s.Window = min(max(cmp.Or(s.Window, 128<<10), s.MaxFrame), MaxWindow)
	s.MaxStreams = cmp.Or(s.MaxStreams, 4096)
	return s
}
