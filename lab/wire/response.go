package wire

import (
	"io"
	"net/http"
	"slices"
	"strconv"
)

// AppendResponse appends a response to m, with its nonce. fields are field lines with their ends.
func (m *Message) AppendResponse(dst []byte, status int, fields, contentType string, body []byte) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(append(dst, ' '), http.StatusText(status)...)
	dst = append(append(dst, "\r\n"...), fields...)
	if len(m.Nonce) > 0 {
		dst = append(append(dst, "x-nonce: "...), m.Nonce...)
		dst = append(dst, "\r\n"...)
	}
	if status != http.StatusNoContent {
		dst = append(append(dst, "content-type: "...), contentType...)
		dst = append(dst, "\r\ncontent-length: "...)
		dst = strconv.AppendInt(dst, int64(len(body)), 10)
		dst = append(dst, "\r\n"...)
	}
	if m.Close {
		dst = append(dst, "connection: close\r\n"...)
	}
	dst = append(dst, "\r\n"...)
	if string(m.Method) != http.MethodHead {
		dst = append(dst, body...)
	}
	return dst
}

// ReadMore appends to b what r has.
func ReadMore(r io.Reader, b []byte) ([]byte, error) {
	if len(b) == cap(b) {
		b = slices.Grow(b, max(4096, len(b)))
	}
	n, err := r.Read(b[len(b):cap(b)])
	return b[:len(b)+n], err
}
