package proxy_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy"
)

// Whatever part of a message is here is counted against limits.buffered, whether
// its head or its body is still to end.
func TestPartsOfMessagesAreCounted(t *testing.T) {
	const n, head, slack = 64, 60 << 10, 64
	pad := bytes.Repeat([]byte{'x'}, head-200)
	post := "POST / HTTP/1.1\r\nHost: a\r\na: %s"
	for name, c := range map[string]struct {
		text string
		more int // bytes besides the head
	}{
		"head":         {post, 0},
		"no body":      {post + "\r\nContent-Length: 10\r\n\r\n", 0},
		"half a body":  {post + "\r\nContent-Length: 4000\r\n\r\n" + string(make([]byte, 2000)), 2000},
		"no chunks":    {post + "\r\nTransfer-Encoding: chunked\r\n\r\n", 0},
		"half a chunk": {post + "\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n" + string(make([]byte, 1000)), 1000},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 1, direct: true})
			for range n {
				m.do(m.raw(fmt.Sprintf(c.text, pad)))
			}
			m.w.Run(time.Second)
			want := int64(n * (len(pad) + c.more))
			if held := m.consumer.proc.Held(); held < want || held > want+n*(head-int64(len(pad))) {
				t.Errorf("%d bytes held of %d requests of which %d are here", held, n, want/n)
			}
			m.w.Run(time.Minute)
			m.settled()
		})
	}
	for name, text := range map[string]string{
		"head of an answer": "HTTP/1.1 200 OK\r\na: %s",
		"no body of it":     "HTTP/1.1 200 OK\r\na: %s\r\nContent-Length: 10\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 1, direct: true})
			m.apps[0].stop()
			m.w.Listen(m.apps[0].addr, m.apps[0].loop, func() proxy.Stream {
				return &peer{says: nil, reply: func(heard []byte) []byte {
					if !bytes.HasSuffix(heard, []byte("\r\n\r\n")) {
						return nil
					}
					return fmt.Appendf(nil, text, pad)
				}}
			})
			for range n {
				m.do(m.get("/"))
			}
			m.w.Run(time.Second)
			want := int64(n * len(pad))
			if held := m.consumer.proc.Held(); held < want || held > want+n*1000 {
				t.Errorf("%d bytes held of %d answers of which %d are here", held, n, want/n)
			}
			m.w.Run(time.Minute)
			m.settled()
		})
	}
}
