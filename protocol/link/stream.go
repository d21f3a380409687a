package link

import (
	"encoding/binary"
	"time"
)

// FeatureStreams in Settings.Features: this side carries streams on connections
// of their own. An acceptor that sets it takes them, a dialer that sets it takes
// responses with a StreamToken, and to one that does not none is sent.
const FeatureStreams = 1 << 0

// Stream is what a connection to a link port begins with that carries one stream
// instead of frames. Its preface has role 4 and, in the place of the settings,
//
//	kind (1 byte) | time left (varint, microseconds; 0: no deadline) | token (16 bytes, StreamAnswer only)
//
// with further bytes ignored. What follows the preface is the stream's. The
// accepting side answers a StreamOpaque or StreamAnswer with one byte first:
// StreamTaken, or the Reason why not, after which it closes.
type Stream struct {
	Kind StreamKind
	// TimeLeft is how long the dialer waits for the reply, or for the head of
	// the answer after the request's last byte; 0: no deadline, negative: it has
	// passed (the peer sees 1 µs).
	TimeLeft time.Duration
	Token    Token // of a StreamAnswer
}

// StreamKind says what a stream carries.
type StreamKind uint8

const (
	// StreamHTTP is one HTTP/1.1 request, and back its response.
	StreamHTTP StreamKind = 1
	// StreamOpaque is bytes for an endpoint of the listener's service.
	StreamOpaque StreamKind = 2
	// StreamAnswer fetches the body of a response that came with the Token over
	// a link: Content-Length bytes where it declared a length, else the chunked
	// coding. The dialer sends nothing more.
	StreamAnswer StreamKind = 3
)

// StreamTaken is the reply to a stream that the accepting side carries.
const StreamTaken = 0

// Token stands for a response's body that waits for a connection of its own. It
// is good once, and whoever has it gets the body: make it with crypto/rand, and
// keep it out of logs.
type Token [16]byte

// AppendStream appends the preface of a stream.
func AppendStream(dst []byte, s *Stream) []byte {
	dst = append(dst, magic...)
	dst = append(dst, byte(streamRole), MinVersion, MaxVersion, 0)
	start := len(dst)
	dst = append(dst, byte(s.Kind))
	dst = binary.AppendUvarint(dst, timeLeft(s.TimeLeft))
	if s.Kind == StreamAnswer {
		dst = append(dst, s.Token[:]...)
	}
	dst[start-1] = byte(len(dst) - start)
	return dst
}

// parseStreamPreface reads the whole preface b of a stream.
func parseStreamPreface(b []byte, own versions) (s Stream, err error) {
	if common(own, versions{b[len(magic)+1], b[len(magic)+2]}) == 0 {
		return s, ErrVersion
	}
	return parseStream(b[prefaceHeader:])
}

// parseStream reads what a stream's preface has in the place of settings.
func parseStream(b []byte) (s Stream, err error) {
	if len(b) == 0 {
		return s, ErrSettings
	}
	s.Kind = StreamKind(b[0])
	left, n := parseVarint(b[1:])
	if n <= 0 {
		return s, ErrSettings
	}
	s.TimeLeft = time.Duration(min(left, maxMicros)) * time.Microsecond
	switch s.Kind {
	case StreamHTTP, StreamOpaque:
	case StreamAnswer:
		if copy(s.Token[:], b[1+n:]) < len(s.Token) {
			return s, ErrSettings
		}
	default:
		return s, ErrStreamKind
	}
	return s, nil
}
