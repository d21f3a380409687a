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

	"github.com/remora-proxy/remora/e2e/harness"
)

// startStaleApp starts an application that reads the second request of each connection, and closes it
// without a response. It counts the requests.
func startStaleApp(t *testing.T) (addr string, seen *atomic.Int32) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	seen = new(atomic.Int32)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for turn := range 2 {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					if seen.Add(1); turn == 0 {
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
					}
				}
			}()
		}
	}()
	return ln.Addr().String(), seen
}

// TestReplaysArePaid: an application that closes each reused connection after it has read a request gets
// few requests twice, and none if retries are off.
func TestReplaysArePaid(t *testing.T) {
	const asked, burst, perRequest = 400, 10 + 2, 0.05
	for _, on := range []string{"connect, refused, reset", "connect", ""} {
		for _, linked := range []bool{false, true} {
			addr, seen := startStaleApp(t)
			app := fmt.Sprintf("{discover: static, endpoints: [%q], connect_timeout: 15s, timeout: 2m, retry: {on: [%s]}, outlier: {consecutive: 1000}}", addr, on)
			addrs := harness.FreeAddrs(t, 2)
			if linked {
				harness.Start(t, fmt.Sprintf("loops: 1\nlisteners: [{name: ingress, address: %q, protocol: link, service: local}]\nservices: {local: %s}", addrs[1], app)).Ready()
				app = fmt.Sprintf("{discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m, retry: {on: []}}", addrs[1])
			}
			harness.Start(t, fmt.Sprintf("loops: 1\nlisteners: [{name: egress, address: %q, protocol: http, service: app}]\nservices: {app: %s}", addrs[0], app)).Ready()
			began, failed := time.Now(), 0
			for range asked {
				resp, err := http.Get("http://" + addrs[0])
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
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
				t.Errorf("retry.on [%s], linked %t: %d requests came again, want at most %d; %d failed", on, linked, again, most, failed)
			}
		}
	}
}
