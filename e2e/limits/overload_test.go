package limits

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

// TestOverload: clients that hold all connections open lose idle ones, so that others are served
// soon. A request in progress is not one of them, and probes are answered.
func TestOverload(t *testing.T) {
	const limit = 100
	app := harness.NewApp(t)
	p, egress := harness.Consumer(t, app, fmt.Sprintf("limits: {connections: %d}", limit))
	p.Ready()
	slow := must.Dial(t, "tcp", egress)
	_, _ = io.WriteString(slow, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
	harness.Receive(t, "the slow request", app.Arrived)
	for range limit - 1 {
		if keepOpen(t, egress, "/") != nil { // it refuses already
			break
		}
	}
	eventually.Nil(t, "the state refusing", func() error {
		status, body := p.Get("/readyz?verbose")
		if status != 200 || !strings.HasPrefix(body, "ready\noverload: refusing because of connections\n") {
			return fmt.Errorf("%d %q", status, body)
		}
		return nil
	})
	eventually.Nil(t, "a new client to be served", func() error {
		if status := askOnce(t, egress); status != 200 {
			return fmt.Errorf("status %d", status)
		}
		return nil
	})
	p.AwaitMetric("remora_shed_idle_connections_total", 5)
	eventually.Nil(t, "the end of the overload", func() error {
		if n := p.Metric("remora_overload_state"); n != 0 {
			return fmt.Errorf("state %d", n)
		}
		return nil
	})
	if n := p.Metric(`remora_reactor_connections{direction="in"}`); n < limit/2 {
		t.Errorf("%d connections are left, far fewer than were too many", n)
	}
	close(app.Release)
	_ = slow.SetDeadline(time.Now().Add(harness.Patience))
	got := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(slow, got); err != nil || string(got) != "HTTP/1.1 200" {
		t.Errorf("the request in progress got %q, %v", got, err)
	}
	p.AwaitLog(`msg="overload is over"`)
	log := p.Output.String()
	for _, line := range []string{"overload state=refusing was=", "resource=connections used=", `msg="overload is over"`} {
		if n := strings.Count(log, line); n == 0 || n > 5 {
			t.Errorf("the log has %q %d times", line, n)
		}
	}
}

// TestBatchInOverload: while a resource runs out, batch requests are refused and others are not.
func TestBatchInOverload(t *testing.T) {
	const limit, busy = 40, 35 // 87%, and 90% with one more
	app := harness.NewApp(t)
	egress := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
limits: {connections: %d}
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}
`, limit, egress, app.Addr))
	p.Ready()
	for range busy {
		nc := must.Dial(t, "tcp", egress)
		defer nc.Close()
		_, _ = io.WriteString(nc, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
		harness.Receive(t, "a slow request", app.Arrived)
	}
	ask := func(priority string) int {
		req := must.Request(t, "GET", "http://"+egress, nil)
		req.Header.Set("x-remora-priority", priority)
		req.Close = true
		resp, err := (&http.Client{Timeout: harness.Patience}).Do(req)
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for priority, want := range map[string]int{"batch": 503, "online": 200} {
		eventually.Nil(t, "the response to "+priority, func() error {
			if status := ask(priority); status != want {
				return fmt.Errorf("status %d, want %d", status, want)
			}
			return nil
		})
	}
}
