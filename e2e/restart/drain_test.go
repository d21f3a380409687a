package restart

import (
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

// TestDrainWithInput: requests that have arrived before a signal to end get their responses, also if the loop has
// not read them when it drains.
func TestDrainWithInput(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	addr := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: web, address: %q, protocol: http}]
routes: [{respond: {body: served}}]`, addr))
	p.Ready()
	clients := make([]*harness.PlainSocket, 400)
	exchange := func(do func(c *harness.PlainSocket) error) {
		t.Helper()
		for i, c := range clients {
			if err := do(c); err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
		}
	}
	send := func(c *harness.PlainSocket) error { _, err := io.WriteString(c, request); return err }
	receive := func(c *harness.PlainSocket) error {
		resp, err := http.ReadResponse(c.In, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && string(body) != "served" {
			err = fmt.Errorf("%s %q", resp.Status, body)
		}
		return err
	}
	for i := range clients {
		clients[i] = harness.DialPlain(t, addr)
	}
	exchange(send)
	exchange(receive)
	p.Signal(syscall.SIGSTOP)
	exchange(send)
	p.Signal(syscall.SIGTERM)
	p.Signal(syscall.SIGCONT)
	exchange(receive)
	for _, c := range clients {
		c.Close()
	}
	p.Ends()
}
