package stream

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol/link"
)

// TestHeadMemory: the bytes of an incomplete head, of a request or a response, count
// against limits.buffered until they were passed on.
func TestHeadMemory(t *testing.T) {
	a := newApp(t)
	const most = 40 << 10
	part := "X: " + strings.Repeat("x", most)
	linked(t, chainOptions{}, func(t *testing.T, c *chain) {
		s := c.nodes[1]
		held := func(what string, least, bound int64) {
			t.Helper()
			s.eventually(what, func() error {
				if n := s.proc.Buffered(); n < least || n > bound {
					return fmt.Errorf("%d bytes count", n)
				}
				return nil
			})
		}
		peer := c.peer()
		_, _ = peer.Write(link.AppendStream(nil, &link.Stream{Kind: link.StreamHTTP}))
		_, _ = io.WriteString(peer, "GET / HTTP/1.1\r\nHost: app\r\n"+part)
		held("half a request to count", most, 4*most)
		peer.Close()
		held("it to be uncounted", 0, 0)

		client := c.dial()
		_, _ = io.WriteString(client, ask)
		server := receive(t, a.conns, "the request")
		readUntil(t, server, "\r\n\r\n")
		_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\n"+part)
		held("half a response to count", most, 4*most)
		_, _ = io.WriteString(server, "\r\nContent-Length: 10\r\n\r\nbegin")
		readUntil(t, client, "\r\n\r\nbegin")
		held("the bytes that were passed on to be uncounted", 0, transferSize+readSize)
		_, _ = io.WriteString(server, "-over")
		readUntil(t, client, "-over")
		server.Close()
		client.Close()
	}, a.addr)
}
