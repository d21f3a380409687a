package http1

import (
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// TestAppendInterim checks that an interim response is forwarded without hop-by-hop
// fields. Other responses and unsafe ones are not.
func TestAppendInterim(t *testing.T) {
	header := func(name, value string) []protocol.Header {
		return []protocol.Header{{Name: []byte(name), Value: []byte(value)}}
	}
	for _, c := range []struct {
		resp protocol.Response
		want string
	}{
		{protocol.Response{Status: 100}, "HTTP/1.1 100 Continue\r\n\r\n"},
		{protocol.Response{Status: 103, Reason: []byte("Early Hints"), Headers: header("Link", "</a>")},
			"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"},
		{protocol.Response{Status: 103, Headers: header("Connection", "close")}, "HTTP/1.1 103 Early Hints\r\n\r\n"},
		{protocol.Response{Status: 199}, "HTTP/1.1 199 \r\n\r\n"},
		{protocol.Response{Status: 99}, ""},
		{protocol.Response{Status: 101}, ""},
		{protocol.Response{Status: 200}, ""},
		{protocol.Response{Status: 100, Reason: []byte("a\nb")}, ""},
		{protocol.Response{Status: 100, Headers: header("A", "b\r\nc")}, ""},
	} {
		if got := string(AppendInterim(nil, &c.resp)); got != c.want {
			t.Errorf("%d %s: %q, want %q", c.resp.Status, c.resp.Reason, got, c.want)
		}
	}
}
