package http

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// undecoded is the bytes of an input that are not decoded, or that leave with the connection.
type undecoded struct {
	buffer *bytebufferpool.ByteBuffer // nil for none
}

func (u *undecoded) append(buffers *protocol.Buffers, b []byte) {
	if u.buffer == nil {
		u.buffer = buffers.Get(len(b))
	}
	buffers.Append(u.buffer, b, 0)
}

func (u *undecoded) bytes() []byte {
	if u.buffer == nil {
		return nil
	}
	return u.buffer.B
}

// takeBytes removes and returns the bytes. The caller owns the array.
func (u *undecoded) takeBytes() []byte {
	b := u.bytes()
	u.buffer = nil
	return b
}

// takeBuffer removes and returns the buffer. The caller releases it.
func (u *undecoded) takeBuffer() *bytebufferpool.ByteBuffer {
	b := u.buffer
	u.buffer = nil
	return b
}

// blank reports whether there is no byte of a request. There may be an empty line, with which some clients end a body.
// One is ignored (RFC 9112 section 2.2).
func (u *undecoded) blank() bool {
	return u.buffer == nil || len(u.buffer.B) <= len("\r\n") && string(u.buffer.B) == "\r\n"[:len(u.buffer.B)]
}

// held returns the memory of the bytes, 0 if blank.
func (u *undecoded) held() int {
	if u.blank() {
		return 0
	}
	return protocol.Held(u.buffer)
}
