package streams

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

// streamingApp is an application whose health the test decides. GET /held responds when the test lets it, all else is a
// stream that ends when its connection does.
type streamingApp struct {
	*httptest.Server
	up   atomic.Bool
	came chan struct{} // receives for each GET /held
	held chan struct{} // ends them
}

func newStreamingApp(t *testing.T) *streamingApp {
	a := &streamingApp{came: make(chan struct{}, 64), held: make(chan struct{})}
	a.up.Store(true)
	a.Server = httptest.NewUnstartedServer(a)
	a.Config.Protocols = harness.Protocols("1.1", "2")
	a.Start()
	t.Cleanup(a.Close)
	t.Cleanup(a.CloseClientConnections)
	return a
}

func (a *streamingApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/up":
		if !a.up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	case "/held":
		a.came <- struct{}{}
		select {
		case <-a.held:
		case <-r.Context().Done(): // the test has failed
		}
		_, _ = io.WriteString(w, "held")
	case "/socket":
		nc, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer nc.Close()
		_, _ = io.WriteString(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nx")
		_, _ = io.Copy(io.Discard, both)
	default:
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.WriteString(w, "x")
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
}

// TestCheckCutsStreams: with on_down: close each kind of stream to an endpoint ends when its check fails, and requests
// that are messages go on.
func TestCheckCutsStreams(t *testing.T) {
	app, addrs := newStreamingApp(t), harness.FreeAddrs(t, 6)
	at, names := map[string]string{}, []string{"http", "http2", "linked-http", "linked-http2"}
	var listeners, services strings.Builder
	for i, name := range names {
		at[name] = addrs[i]
		speaks, linked := strings.CutPrefix(name, "linked-")
		fmt.Fprintf(&listeners, "  - {name: %q, address: %q, protocol: http, service: %q}\n", name, addrs[i], name)
		if linked {
			fmt.Fprintf(&services, "  %q: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}\n", name, addrs[2+i])
			continue
		}
		fmt.Fprintf(&listeners, "  - {name: in-%s, address: %q, protocol: link, service: %s}\n", speaks, addrs[4+i], speaks)
		fmt.Fprintf(&services, "  %s: {discover: static, endpoints: [%q], protocol: %s, connect_timeout: 15s, timeout: 2m,\n"+
			"    check: {http: /up, port: %s, on_down: close, interval: 20ms, timeout: 30s, healthy: 1, unhealthy: 1}}\n",
			name, app.Listener.Addr(), speaks, app.URL[strings.LastIndexByte(app.URL, ':')+1:])
	}
	p := harness.Start(t, "loops: 1\nlimits: {message: 64KiB}\nlisteners:\n"+listeners.String()+"services:\n"+services.String())
	p.Ready()

	streams, messages := map[string]io.Reader{}, map[string]chan string{}
	clients := map[string]*http.Client{}
	for _, version := range []string{"1.1", "2"} {
		tr := harness.Transport(t, version)
		clients[version] = &http.Client{Transport: tr, Timeout: harness.Patience}
		for _, name := range names {
			begin := func(kind, method, path string, body io.Reader) {
				req := must.Request(t, method, "http://"+at[name]+path, body)
				if path == "/socket" {
					req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
				}
				resp, err := clients[version].Do(req)
				if err != nil {
					t.Fatalf("HTTP/%s to %s, %s: %v", version, name, kind, err)
				}
				t.Cleanup(func() { resp.Body.Close() })
				in := bufio.NewReader(resp.Body)
				if b, err := in.ReadByte(); b != 'x' || err != nil {
					t.Fatalf("HTTP/%s to %s, %s: %s %s, %v", version, name, kind, resp.Status, resp.Header.Get("X-Remora-Error"), err)
				}
				streams[fmt.Sprintf("HTTP/%s to %s, %s", version, name, kind)] = in
			}
			begin("a response", http.MethodGet, "/endless", nil)
			body, feed := io.Pipe()
			t.Cleanup(func() { feed.Close() })
			go func() { _, _ = feed.Write(make([]byte, 128<<10)) }()
			begin("a body", http.MethodPost, "/upload", body)
			if version == "1.1" && !strings.Contains(name, "http2") {
				begin("a WebSocket", http.MethodGet, "/socket", nil)
			}
			message := make(chan string, 1)
			messages[fmt.Sprintf("HTTP/%s to %s", version, name)] = message
			go func() { message <- statusOf(clients[version], "http://"+at[name]+"/held") }()
			harness.Receive(t, "the message", app.came)
		}
	}
	app.up.Store(false)
	for name, s := range streams {
		ended := make(chan string, 1)
		go func() {
			n, err := io.Copy(io.Discard, s)
			ended <- fmt.Sprint(n, " bytes, timeout: ", os.IsTimeout(err))
		}()
		if got := harness.Receive(t, "the end of "+name, ended); got != "0 bytes, timeout: false" {
			t.Errorf("%s: %s", name, got)
		}
	}
	close(app.held)
	for name, m := range messages {
		if got := harness.Receive(t, name, m); got != "200 held" {
			t.Errorf("%s: %s", name, got)
		}
	}
	app.up.Store(true)
	for _, name := range names {
		eventually.Nil(t, name+" to be used again", func() error {
			if got := statusOf(clients["1.1"], "http://"+at[name]+"/held"); got != "200 held" {
				return errors.New(got)
			}
			return nil
		})
	}
}

// statusOf returns the status and the body of a response, or the error.
func statusOf(c *http.Client, url string) string {
	resp, err := c.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	return harness.StatusAndBody(resp.StatusCode, resp.Body)
}
