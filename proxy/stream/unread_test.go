package stream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
)

// deafApp returns the address of an application that accepts connections and reads nothing. A Unix socket takes
// fewer bytes than one of TCP before a write to it waits.
func deafApp(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "app"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return "unix:" + ln.Addr().String()
}

// long is a head longer than what a Unix socket takes.
var long = strings.Repeat("X: "+strings.Repeat("x", 8<<10)+"\r\n", 100)

// TestUnreadRequest: an application that reads nothing does not hold a request for ever, whatever is written to it: a
// head that is complete is bounded by the timeout of the request, all else by timeouts.idle.
func TestUnreadRequest(t *testing.T) {
	const limits = "header: 2MiB"
	upgrade := strings.Replace(ask, "\r\n\r\n", "\r\nContent-Length: 5\r\n"+long+"\r\nhello", 1)
	body := fmt.Sprintf("PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: %d\r\n", 10*longest)
	for name, c := range map[string]struct {
		request string
		timeout string // of the request
		more    string
		status  int // 0 means a reset, or that of the sidecar before the one that was reset
	}{
		"upgrade":      {upgrade, "300ms", "", http.StatusGatewayTimeout},
		"head of body": {body + long + "\r\n" + strings.Repeat("x", 10*longest), "", "timeouts: {idle: 300ms}", 0},
		"body":         {body + "\r\n" + strings.Repeat("x", 10*longest), "", "timeouts: {idle: 300ms}", 0},
		"tunnel":       {"CONNECT bytes:1 HTTP/1.1\r\nHost: bytes:1\r\n\r\n" + strings.Repeat("x", 10*longest), "", "timeouts: {idle: 300ms}", 0},
	} {
		for _, sidecars := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, %d sidecars", name, sidecars), func(t *testing.T) {
				chain := newChain(t, chainOptions{sidecars: sidecars, limits: limits, timeout: c.timeout, more: c.more}, deafApp(t))
				client := chain.nodes[0].dial()
				go func() { _, _ = io.WriteString(client, c.request) }()
				if c.status > 0 {
					wantStatus(t, client, c.status)
				} else if _, err := io.ReadAll(client); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("the stream does not end")
				}
				client.Close()
				chain.waitNoStreams()
			})
		}
	}
}

// TestUnreadRepeat: the same holds at another endpoint, after the first one has refused the request.
func TestUnreadRepeat(t *testing.T) {
	c := newChain(t, chainOptions{limits: "header: 2MiB", timeout: "300ms"}, deafApp(t))
	first, draining := c.nodes[0], c.nodes[1]
	first.update(registry.Endpoint{Addr: draining.addr, Weight: 1, Protocol: config.ProtocolLink}, endpoint(deafApp(t)))
	draining.proc.Drain()
	first.eventually("the draining sidecar to be asked", func() error { // a busy machine may let the timeout pass first
		var all sync.WaitGroup
		for range 16 { // the chance that the draining sidecar is never picked is 1 in 65536
			client := first.dial()
			all.Go(func() {
				_, _ = io.WriteString(client, strings.Replace(ask, "\r\n\r\n", "\r\n"+long+"\r\n", 1))
				wantStatus(t, client, http.StatusGatewayTimeout)
				client.Close()
			})
		}
		all.Wait()
		if _, failures := draining.counts.totals(); failures["draining"] == 0 {
			return fmt.Errorf("failures %v", failures)
		}
		return nil
	})
	first.counts.waitNoStreams()
}

// TestUnreadInterim: a client that reads no interim response does not hold its stream for ever either.
func TestUnreadInterim(t *testing.T) {
	a := newApp(t)
	c := newChain(t, chainOptions{sidecars: 1, limits: "header: 2MiB", more: "timeouts: {write: 300ms}"}, a.addr)
	client := c.nodes[0].dial()
	_, _ = io.WriteString(client, ask)
	server := receive(t, a.conns, "the application to get the request")
	_, err := io.WriteString(server, strings.Repeat("HTTP/1.1 103 Early Hints\r\n"+long+"\r\n", 30))
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the application got %v", err)
	}
	client.Close()
	server.Close()
	c.waitNoStreams()
}
