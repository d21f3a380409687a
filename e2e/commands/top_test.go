package commands

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/cmd/remora/adminclient"
	"github.com/remora-proxy/remora/e2e/harness"
)

const topConfig = `
listeners: [{name: egress, address: "127.0.0.1:0", protocol: http, service: compute}]
services: {compute: {discover: static, endpoints: ["%s"], protocol: http, connect_timeout: 15s}}
`

// TestTopOnce: with --once top prints a frame as plain text.
func TestTopOnce(t *testing.T) {
	app := httptest.NewServer(http.NotFoundHandler())
	defer app.Close()
	t.Setenv("REMORA_TEST_TOKEN", "secret")
	p := harness.Start(t, fmt.Sprintf(topConfig, app.Listener.Addr()))
	p.Ready()
	t.Setenv(adminclient.TokenVariable, "secret")
	code, text := harness.Run("top", "--once", "--admin", p.Admin)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, text)
	}
	if !strings.Contains(text, "compute") || !strings.Contains(text, app.Listener.Addr().String()) || strings.Contains(text, "\x1b") {
		t.Errorf("printed\n%q", text)
	}
	t.Setenv(adminclient.TokenVariable, "wrong")
	if code, text := harness.Run("top", "--once", "--admin", p.Admin); code != harness.ExitFailed || !strings.Contains(text, "401") {
		t.Errorf("with a wrong token: exit code %d: %s", code, text)
	}
	t.Setenv(adminclient.TokenVariable, "")
	if code, text := harness.Run("top", "--once", "-c", p.File); code != 0 || !strings.Contains(text, "compute") {
		t.Errorf("with the configuration: exit code %d: %s", code, text)
	}
	if code, _ := harness.Run("top", "--once", "--admin", harness.FreeAddrs(t, 1)[0]); code != harness.ExitFailed {
		t.Errorf("without a sidecar: exit code %d", code)
	}
}
