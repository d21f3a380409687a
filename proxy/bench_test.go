package proxy_test

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkRequest is a request's whole way through one sidecar or two and back,
// with no kernel in between: what the core and the codecs cost.
func BenchmarkRequest(b *testing.B) {
	body := strings.Repeat("x", 300)
	answer := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 200\r\n\r\n" + body[:200]
	for hops := 1; hops <= 2; hops++ {
		b.Run(fmt.Sprint("hops=", hops), func(b *testing.B) {
			const clients = 64
			m := newAllocMesh(b, allocMeshOptions{answer: answer, hops: hops, clients: clients})
			request := []byte(postHead + body)
			for n := 0; n < b.N; n += clients {
				m.call([]byte(body[:200]), request)
			}
		})
	}
}
