package stream

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
)

// TestContinueBehindMany: the 100 that a client waits for with its body is passed on, also behind more interim responses
// than are passed on. Those that follow it are not.
func TestContinueBehindMany(t *testing.T) {
	const many = http1.MaxInterim + 8
	const processing = "HTTP/1.1 102 Processing\r\n\r\n"
	for _, protocol := range []string{config.ProtocolHTTP, config.ProtocolHTTP2} {
		t.Run(protocol, func(t *testing.T) {
			a := newApp(t)
			s := newSidecar(t, options{})
			s.proc.SetStreams(s.srv)
			s.update(registry.Endpoint{Addr: a.addr, Weight: 1, Protocol: protocol})
			client := s.dialTo(s.entry.requestAddr())
			_, _ = io.WriteString(client, "PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
			if protocol == config.ProtocolHTTP {
				server := receive(t, a.conns, "the connection")
				defer server.Close()
				_, _ = io.WriteString(server, strings.Repeat(processing, many)+strings.Repeat(http1.Continue, 3)+"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			} else {
				h := a.acceptHTTP2(t)
				stream := h.next(http2.FrameHeaders).Header().StreamID
				for i := range many + 4 {
					status := "102"
					switch {
					case i == many+3:
						status = "200"
					case i >= many:
						status = "100"
					}
					var b bytes.Buffer
					_ = hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: ":status", Value: status})
					_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: b.Bytes(), EndHeaders: true})
				}
			}
			wantRead(t, "the client", client, strings.Repeat(processing, http1.MaxInterim)+http1.Continue+"HTTP/1.1 200 ")
		})
	}
}
