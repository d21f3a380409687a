package http1

import (
	"strconv"

	"github.com/remora-proxy/remora/protocol"
)

// statusLines holds the status lines with the registered reason phrases, indexed by status
// code minus 100. It is empty for interim responses, whose reason is passed on as it is, and
// for codes that are not registered.
var statusLines = func() (t [500]string) {
	for code, reason := range protocol.Reasons {
		if code >= 200 {
			t[code-100] = "HTTP/1.1 " + strconv.Itoa(code) + " " + reason + "\r\n"
		}
	}
	return t
}()

const reasonOffset = len("HTTP/1.1 200 ")

// appendStatusLine appends a status line. An empty reason becomes the registered one; the
// version is always HTTP/1.1 (RFC 9110 section 2.5).
func appendStatusLine(dst []byte, status int, reason []byte) []byte {
	line := statusLines[status-100]
	if line != "" && (len(reason) == 0 || line[reasonOffset:len(line)-2] == string(reason)) {
		return append(dst, line...)
	}
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, ' ')
	dst = append(dst, reason...)
	return append(dst, '\r', '\n')
}
