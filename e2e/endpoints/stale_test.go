package endpoints

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// startStaleApp starts an application that reads the second request of each connection, and closes it
// without a response. It counts the requests.
func startStaleApp(t *testing.T, serve func(c net.Conn, seen *atomic.Int32)) (addr string, seen *atomic.Int32) {
	t.Helper()
	seen = new(atomic.Int32)
	return harness.ServeTCP(t, func(c net.Conn) { serve(c, seen) }), seen
}

func serveStaleHTTP1(c net.Conn, seen *atomic.Int32) {
	in := bufio.NewReader(c)
	for turn := range 2 {
		if _, err := http.ReadRequest(in); err != nil {
			return
		}
		if seen.Add(1); turn == 0 {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	}
}

func serveStaleHTTP2(c net.Conn, seen *atomic.Int32) {
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	frames := http2.NewFramer(c, c)
	_ = frames.WriteSettings()
	for turn := 0; turn < 2; {
		frame, err := frames.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = frames.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			if seen.Add(1); turn == 0 {
				const status200 = 0x88 // RFC 7541, appendix A
				_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: f.StreamID, BlockFragment: []byte{status200}, EndHeaders: true, EndStream: true})
			}
			turn++
		}
	}
}

// TestReplaysArePaid: an application that closes each reused connection after it has read a request gets
// few requests twice, and none if retries are off.
func TestReplaysArePaid(t *testing.T) {
	const asked, burst, perRequest = 400, 10 + 2, 0.05
	for _, on := range []string{"connect, refused, reset", "connect", ""} {
		for _, way := range []struct {
			protocol string
			linked   bool
			serve    func(c net.Conn, seen *atomic.Int32)
		}{{"http", false, serveStaleHTTP1}, {"http", true, serveStaleHTTP1}, {"http2", false, serveStaleHTTP2}} {
			addr, seen := startStaleApp(t, way.serve)
			app := fmt.Sprintf("{discover: static, endpoints: [%q], protocol: %s, connect_timeout: 15s, timeout: 2m, retry: {on: [%s]}, outlier: {consecutive: 1000}}",
				addr, way.protocol, on)
			addrs := harness.FreeAddrs(t, 2)
			if way.linked {
				harness.Start(t, fmt.Sprintf("loops: 1\nlisteners: [{name: ingress, address: %q, protocol: link, service: local}]\nservices: {local: %s}", addrs[1], app)).Ready()
				app = fmt.Sprintf("{discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m, retry: {on: []}}", addrs[1])
			}
			harness.Start(t, fmt.Sprintf("loops: 1\nlisteners: [{name: egress, address: %q, protocol: http, service: app}]\nservices: {app: %s}", addrs[0], app)).Ready()
			began, failed := time.Now(), 0
			for range asked {
				resp, _ := must.Get(t, http.DefaultClient, "http://"+addrs[0])
				if resp.StatusCode != http.StatusOK {
					failed++
				}
			}
			most := 0
			if on != "" {
				free := int(time.Since(began)/time.Second) + 1 // one a second
				most = burst + int(perRequest*asked) + free
			}
			if again := int(seen.Load()) - asked; again > most || again < 0 || on != "" && again < burst-2 {
				t.Errorf("retry.on [%s], %s, linked %t: %d requests came again, want at most %d; %d failed", on, way.protocol, way.linked, again, most, failed)
			}
		}
	}
}
