package http2

import (
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// Stream is one request and its response. The Conn owns it, and recycles it once it is over.
type Stream struct {
	Owner any // the handler's; nil in a new stream

	id      uint32
	state   streamState
	flags   streamFlags
	interim uint8 // interim responses received, at most freeInterim

	begun time.Duration // when the peer began it, by Conn.Advance

	// Receiving.
	length int64 // the Content-Length that the peer declared, or -1
	got    int64 // bytes of the body announced by DATA frames
	recv   int   // bytes that the peer may still send
	given  int   // bytes given back and not announced

	// Sending.
	window   int    // bytes that the peer accepts
	data     []byte // unsent, in the memory of owner, the caller or buf
	trailers []protocol.Header
	owner    Releaser
	buf      *bytebufferpool.ByteBuffer // of Send
	copied   int                        // bytes of memory of trailers that were copied

	prev, next *Stream // in the ring of those that send
}

type streamFlags uint16

const (
	toHead        streamFlags = 1 << iota // the request is a HEAD
	noContent                             // the peer's message may have no body
	headReceived                          // the peer's final head
	expects                               // the body waits for an interim response
	headSent                              // our final head
	ending                                // our side ends behind data and trailers
	isBatch                               // our DATA goes after that of others
	inRing                                // it waits for its turn to send DATA
	blocked                               // Send took less than all
	listed                                // in writer.events
	eventSent                             // OnSent is due
	eventWritable                         // OnWritable is due
	reported                              // OnSent was called
	discard                               // the handler wants nothing of the peer's message
)

// streamState is the state of RFC 9113 section 5.1. A stream that is over is closed.
type streamState uint8

const (
	streamIdle streamState = iota
	streamOpen
	streamLocalEnded  // "half-closed (local)"
	streamRemoteEnded // "half-closed (remote)"
	streamClosed
	streamStates
)

// streamEdges are all changes of a state: from, to.
var streamEdges = [streamStates][streamStates]bool{
	streamIdle:        {streamOpen: true},
	streamOpen:        {streamLocalEnded: true, streamRemoteEnded: true, streamClosed: true},
	streamLocalEnded:  {streamClosed: true},
	streamRemoteEnded: {streamClosed: true},
}

func (s *Stream) become(next streamState) {
	if !streamEdges[s.state][next] {
		panic("http2: illegal change of a stream's state")
	}
	s.state = next
}

// endLocal and endRemote end one side.
func (s *Stream) endLocal() {
	if s.state == streamOpen {
		s.become(streamLocalEnded)
	} else {
		s.become(streamClosed)
	}
}

func (s *Stream) endRemote() {
	if s.state == streamOpen {
		s.become(streamRemoteEnded)
	} else {
		s.become(streamClosed)
	}
}

func (s *Stream) is(f streamFlags) bool { return s.flags&f != 0 }

func (s *Stream) localEnded() bool { return s.state == streamLocalEnded || s.state == streamClosed }

// ID returns the stream identifier; 0 once the stream is over.
func (s *Stream) ID() uint32 { return s.id }

// Length returns the Content-Length that the peer declared, or -1.
func (s *Stream) Length() int64 { return s.length }

// ExpectsContinue reports whether the peer waits for an interim response (Conn.Interim, 100) before
// it sends the body.
func (s *Stream) ExpectsContinue() bool { return s.is(expects) }

// Held returns the bytes of memory that the unsent part of our message takes.
func (s *Stream) Held() int {
	if s.owner != nil {
		return s.owner.Buffered()
	}
	return max(len(s.data), protocol.Held(s.buf)) + s.copied
}

// Unsent returns the bytes of the message that wait to be sent for s.
func (s *Stream) Unsent() int { return len(s.data) }

// Ended reports whether the peer's message has ended.
func (s *Stream) Ended() bool { return s.state == streamRemoteEnded || s.state == streamClosed }
