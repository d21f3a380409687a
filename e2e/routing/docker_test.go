package routing

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// TestDockerExample: docs/examples/docker.yaml passes what its expressions allow, in any case
// and however it is escaped, and refuses all else. An endless response passes as it comes, and so does
// the session of an exec, a POST with a body and an upgrade.
func TestDockerExample(t *testing.T) {
	dir := t.TempDir()
	socket, proxy := filepath.Join(dir, "docker.sock"), filepath.Join(dir, "proxy.sock")
	ln := must.ListenOn(t, "unix", socket)
	next := make(chan string)
	docker := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			body, _ := io.ReadAll(r.Body)
			nc, both, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer nc.Close()
			_, _ = io.WriteString(nc, "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"+string(body))
			_, _ = io.Copy(nc, both)
			return
		}
		if r.URL.Path != "/v1.47/events" {
			_, _ = io.WriteString(w, r.URL.Path)
			return
		}
		w.Header().Set("Content-Type", "application/json") // as the daemon does
		_ = http.NewResponseController(w).Flush()
		for event := range next {
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	docker.Listener = ln
	docker.Start()
	defer docker.Close()
	defer close(next)

	example := must.ReadFile(t, "../../docs/examples/docker.yaml")
	t.Setenv("DOCKER_SOCKET", socket)
	t.Setenv("DOCKER_PROXY", proxy)
	t.Setenv("DOCKER_WRITE", "containers/[^/]+/restart|exec/[^/]+/start")
	harness.Start(t, string(example)).Ready()
	client := &http.Client{Timeout: harness.Patience, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", proxy)
	}}}
	defer client.CloseIdleConnections()
	send := func(method, path string) *http.Response {
		t.Helper()
		req := must.Request(t, method, "http://docker"+path, nil)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/_ping", 200},
		{"HEAD", "/_ping", 200},
		{"GET", "/v1.47/version", 200},
		{"GET", "/v1.47/Containers/JSON?all=1", 200},
		{"GET", "/v1.47/%63ontainers/json", 200},
		{"POST", "/v1.47/containers/web/restart?t=5", 200},
		{"GET", "/v1.47/containers/web/json", 403},
		{"GET", "/v1.47/containers/json/../../secrets", 403},
		{"GET", "/v1.47/containers/json%2f..%2f..%2fsecrets", 400},
		{"POST", "/v1.47/version", 403},
		{"POST", "/v1.47/containers/create", 403},
		{"POST", "/v1.47/containers/web/exec", 403},
		{"GET", "/v1.47/containers/web/restart", 403},
		{"DELETE", "/v1.47/containers/web", 403},
		{"OPTIONS", "/_ping", 403},
	} {
		if resp := send(c.method, c.path); resp.StatusCode != c.status {
			t.Errorf("%s %s: %s, want %d", c.method, c.path, resp.Status, c.status)
		}
	}

	nc := harness.Dial(t, "unix", proxy)
	_, _ = io.WriteString(nc, "POST /v1.47/exec/web/start HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"+
		"Content-Type: application/json\r\nContent-Length: 14\r\n\r\n{\"Tty\": false}typed")
	in := bufio.NewReader(nc)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("a session: %+v, %v", resp, err)
	}
	_ = nc.(*net.UnixConn).CloseWrite()
	if got, err := io.ReadAll(in); string(got) != `{"Tty": false}typed` || err != nil {
		t.Errorf("a session: %q, %v", got, err)
	}

	events := bufio.NewReader(send("GET", "/v1.47/events").Body)
	for _, event := range []string{"started\n", "stopped\n"} {
		next <- event
		if got, err := events.ReadString('\n'); err != nil || got != event {
			t.Fatalf("got %q, %v, want %q", got, err, event)
		}
	}
}
