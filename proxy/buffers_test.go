package proxy_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// TestMain poisons what was given back, so that a message whose memory is used after
// that is not what a test expects. Benchmarks count instructions and do without.
func TestMain(m *testing.M) {
	flag.Parse()
	protocol.PoisonBuffers = flag.Lookup("test.bench").Value.String() == ""
	os.Exit(m.Run())
}

// long are requests, and answers, with bodies of n bytes, in pieces of what one read
// brings; the last of the bytes are not the others'.
func long(n int, chunked bool) (request [][]byte, answer, body []byte) {
	body = append(bytes.Repeat([]byte{'x'}, n-8), "the end."...)
	head := fmt.Sprintf("Content-Length: %d\r\n\r\n", n)
	sent := body
	if chunked {
		head = "Transfer-Encoding: chunked\r\n\r\n"
		sent = fmt.Appendf(nil, "%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", n/2, body[:n/2], n-n/2, body[n/2:])
	}
	whole := append([]byte("POST / HTTP/1.1\r\nHost: compute\r\n"+head), sent...)
	for len(whole) > 0 {
		piece := min(64<<10, len(whole))
		request, whole = append(request, whole[:piece]), whole[piece:]
	}
	return request, append([]byte("HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n"+head), sent...), body
}

// A long body, there and back, is kept in memory that was used before. At rest that
// is given up.
func TestLongBodiesUseTheirBuffersAgain(t *testing.T) {
	for hops := 1; hops <= 2; hops++ {
		for _, size := range []int{20 << 10, 128 << 10, 300 << 10} {
			for _, chunked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d hops/%d/chunked=%t", hops, size, chunked), func(t *testing.T) {
					request, answer, body := long(size, chunked)
					m := newAllocMesh(t, allocMeshOptions{hops: hops, clients: 2, answer: string(answer)})
					end := body[len(body)-200:]
					if chunked {
						end = []byte("the end.")
					}
					m.allocates(0, func() { m.call(end, request...) })
					m.rests()
				})
			}
		}
	}
}

// So is one that is hedged: its buffers are those of two attempts.
func TestHedgedLongBodiesUseTheirBuffersAgain(t *testing.T) {
	request, answer, body := long(128<<10, false)
	m := newAllocMesh(t, allocMeshOptions{hops: 2, clients: 2, answer: string(answer), late: true,
		service: ", idempotent: true, hedge: {mode: on, delay: 5ms, budget: 1}"})
	m.allocates(0, func() { m.call(body[len(body)-200:], request...) })
	m.rests()
}

// rests sees that what is kept is given up in time, and that nothing is held.
func (m *allocMesh) rests() {
	m.t.Helper()
	if m.consumer.Kept() == 0 {
		m.t.Error("nothing was kept")
	}
	for range 3 {
		m.net.skip(time.Second)
		m.net.pump()
	}
	if kept, held := m.consumer.Kept(), m.consumer.Held(); kept != 0 || held != 0 {
		m.t.Errorf("%d bytes kept and %d held at rest", kept, held)
	}
}

// A burst of long bodies leaves no more behind than the bound, however many they
// were.
func TestKeptIsBounded(t *testing.T) {
	const buffered, share = 16 << 20, 8
	request, _, _ := long(512<<10, false)
	m := newAllocMesh(t, allocMeshOptions{hops: 1, clients: 24, answer: shapeAnswerHead + shapeAnswer,
		top: "limits: {buffered: 16MiB}"})
	for range 3 {
		m.call([]byte(shapeAnswer), request...)
		if n := m.consumer.Kept(); n == 0 || n > buffered/share {
			t.Errorf("%d bytes kept, at most %d are to be", n, buffered/share)
		}
	}
}

// BenchmarkLong is the whole way of a long body through one sidecar or two, with no
// kernel in between.
func BenchmarkLong(b *testing.B) {
	for hops := 1; hops <= 2; hops++ {
		for _, size := range []int{300, 16 << 10, 64 << 10, 128 << 10, 512 << 10} {
			b.Run(fmt.Sprintf("%d hops/%d", hops, size), func(b *testing.B) {
				request, _, _ := long(size, false)
				m := newAllocMesh(b, allocMeshOptions{hops: hops, clients: 8, answer: shapeAnswerHead + shapeAnswer})
				m.call([]byte(shapeAnswer), request...)
				runtime.GC()
				b.ReportAllocs()
				b.ResetTimer()
				for n := 0; n < b.N; n += len(m.clients) {
					m.call([]byte(shapeAnswer), request...)
				}
			})
		}
	}
}
