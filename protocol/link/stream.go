package link

import (
	"encoding/binary"
	"time"
)

// FeatureStreams in Settings.Features means that this side supports streams on connections of
// their own. An acceptor with it accepts streams. A dialer with it accepts responses with a
// StreamToken; other dialers get none.
const FeatureStreams = 1 << 0

// Stream is the preface of a connection to a link port that carries one stream instead of
// frames. It has role 4 and, in place of the settings,
//
//	kind (1 byte) | time left (varint, microseconds; 0: no deadline) | token (16 bytes, StreamAnswer only)
//
// Further bytes are ignored. The stream follows the preface. For a StreamOpaque or
// StreamAnswer the accepting side first sends one byte: StreamTaken, or the Reason of its
// refusal, after which it closes.
type Stream struct {
	Kind StreamKind
	// TimeLeft is how long the dialer waits for that byte, or for the head of the response
	// after the request's last byte. 0 means no deadline. Negative means that it has passed;
	// the peer sees 1 µs.
	TimeLeft time.Duration
	Token    Token // of a StreamAnswer
}

// StreamKind says what a stream carries.
type StreamKind uint8

const (
	StreamHTTP   StreamKind = 1 // one HTTP/1.1 request and its response
	StreamOpaque StreamKind = 2 // bytes to and from an endpoint of the listener's service
	// StreamAnswer fetches the body of a response that came with the Token over a link:
	// Content-Length bytes if the response declared a length, and chunked otherwise. The
	// dialer sends nothing more.
	StreamAnswer StreamKind = 3
)

// StreamTaken is the first byte of a stream that the accepting side carries.
const StreamTaken = 0

// Token identifies the body of a response that a connection of its own will fetch. It is valid
// once. Who has it gets the body: make it with crypto/rand, and keep it out of logs.
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

func parseStreamPreface(b []byte, own versions) (s Stream, err error) {
	if common(own, versions{b[len(magic)+1], b[len(magic)+2]}) == 0 {
		return s, ErrVersion
	}
	return parseStream(b[prefaceHeader:])
}

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
