package streams

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/e2e/harness/h2"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// closerApp is an application that responds with the path and the length of the body, and repeats a body of /echo.
// Requests below /held wait until the test has heard of them and lets them go on.
type closerApp struct {
	*httptest.Server
	came chan struct{} // receives for each request below /held
	held chan struct{} // receives from the test
	mu   sync.Mutex
	seen map[string]string // what became of the body of the latest request, by path
}

func newCloserApp(t *testing.T) *closerApp {
	a := &closerApp{came: make(chan struct{}), held: make(chan struct{}), seen: map[string]string{}}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.saw(r.URL.Path, "begun")
		if strings.HasPrefix(r.URL.Path, "/held") {
			select {
			case a.came <- struct{}{}:
				select {
				case <-a.held:
				case <-t.Context().Done(): // the test has failed
				}
			case <-t.Context().Done():
			}
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			a.saw(r.URL.Path, "cut")
			return
		}
		a.saw(r.URL.Path, "whole")
		if r.URL.Path == "/echo" {
			_, _ = w.Write(body)
			return
		}
		fmt.Fprintf(w, "%s %d", r.URL.Path, len(body))
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *closerApp) saw(path, what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen[path] = what
}

// fate returns what became of the request to path; "" means that it has not come.
func (a *closerApp) fate(path string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen[path]
}

// closer is a client that ends its side of the connection.
type closer struct {
	t   *testing.T
	app *closerApp
	nc  interface {
		net.Conn
		CloseWrite() error
	}
	in *bufio.Reader
}

// says sends text, of which each line ends with CR LF, and more.
func (c *closer) says(text, more string) {
	c.t.Helper()
	must.Write(c.t, c.nc, strings.ReplaceAll(text, "\n", "\r\n")+more)
}

// ends ends the client's side. The end of TLS is that of TCP, too. A sidecar that was faster may have closed it.
func (c *closer) ends() {
	_ = c.nc.CloseWrite()
	if over, ok := c.nc.(*tls.Conn); ok {
		_ = over.NetConn().(*net.TCPConn).CloseWrite()
	}
}

// get reads a response.
func (c *closer) get(want string) {
	c.t.Helper()
	r, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if got, err := io.ReadAll(r.Body); string(got) != want || r.StatusCode != 200 || err != nil {
		c.t.Fatalf("%s, %d bytes %.60q, %v", r.Status, len(got), got, err)
	}
}

// gets reads the last responses, and then the end of the connection.
func (c *closer) gets(bodies ...string) {
	c.t.Helper()
	for _, want := range bodies {
		c.get(want)
	}
	if b, err := io.ReadAll(c.in); len(b) > 0 || err != nil {
		c.t.Errorf("%.60q follows, %v", b, err)
	}
}

// beyond is longer than limits.message of the test: such a message is a stream.
var beyond = strings.Repeat("0123456789abcdef", 20<<10)

// halfCloses are what a client sends before it ends its side, and what it gets.
var halfCloses = []struct {
	name string
	run  func(c *closer)
}{
	{"a request", func(c *closer) {
		c.says("GET /a HTTP/1.1\nHost: a\n\n", "")
		c.ends()
		c.gets("/a 0")
	}},
	{"HTTP/1.0", func(c *closer) {
		c.says("GET /a HTTP/1.0\n\n", "")
		c.ends()
		c.gets("/a 0")
	}},
	{"a body", func(c *closer) {
		c.says("POST /b HTTP/1.1\nHost: a\nContent-Length: 5\n\n", "hello")
		c.ends()
		c.gets("/b 5")
	}},
	{"chunks", func(c *closer) {
		c.says("POST /b HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n", "")
		c.ends()
		c.gets("/b 5")
	}},
	{"while the application works", func(c *closer) {
		c.says("POST /held HTTP/1.1\nHost: a\nContent-Length: 5\n\n", "hello")
		harness.Receive(c.t, "the request", c.app.came)
		c.ends()
		c.app.held <- struct{}{}
		c.gets("/held 5")
	}},
	{"a pipeline", func(c *closer) {
		c.says("GET /held HTTP/1.1\nHost: a\n\nPOST /2 HTTP/1.1\nHost: a\nContent-Length: 2\n\nokGET /3 HTTP/1.1\nHost: a\n\n", "")
		c.ends()
		harness.Receive(c.t, "the request", c.app.came)
		c.app.held <- struct{}{}
		c.gets("/held 0", "/2 2", "/3 0")
	}},
	{"a pipeline cut short in a head", func(c *closer) {
		c.says("GET /held HTTP/1.1\nHost: a\n\nGET /2 HTTP/1.1\nHost: a\n\nGET /never HTTP/1.1\nHost: a\n", "")
		harness.Receive(c.t, "the request", c.app.came)
		c.ends()
		c.app.held <- struct{}{}
		c.gets("/held 0", "/2 0")
	}},
	{"a pipeline cut short in a body", func(c *closer) {
		c.says("GET /held HTTP/1.1\nHost: a\n\nPOST /never HTTP/1.1\nHost: a\nContent-Length: 3\n\nab", "")
		harness.Receive(c.t, "the request", c.app.came)
		c.ends()
		c.app.held <- struct{}{}
		c.gets("/held 0")
	}},
	{"a head cut short", func(c *closer) {
		c.says("GET /never HTTP/1.1\nHost: a\n", "")
		c.ends()
		c.gets()
	}},
	{"a body cut short", func(c *closer) {
		c.says("POST /never HTTP/1.1\nHost: a\nContent-Length: 6\n\n", "hello")
		c.ends()
		c.gets()
	}},
	{"chunks cut short", func(c *closer) {
		c.says("POST /never HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n5\nhello\n0\n", "")
		c.ends()
		c.gets()
	}},
	{"a stream", func(c *closer) {
		c.says(fmt.Sprintf("POST /echo HTTP/1.1\nHost: a\nContent-Length: %d\n\n", len(beyond)), beyond)
		c.ends()
		c.gets(beyond)
	}},
	{"a stream behind a request", func(c *closer) {
		c.says(fmt.Sprintf("GET /held HTTP/1.1\nHost: a\n\nPOST /echo HTTP/1.1\nHost: a\nContent-Length: %d\n\n", len(beyond)), beyond[:100])
		harness.Receive(c.t, "the request", c.app.came)
		c.app.held <- struct{}{}
		c.get("/held 0")
		c.says("", beyond[100:])
		c.ends()
		c.gets(beyond)
	}},
	{"a stream while the application works", func(c *closer) {
		c.says(fmt.Sprintf("POST /held HTTP/1.1\nHost: a\nContent-Length: %d\n\n", len(beyond)), beyond)
		harness.Receive(c.t, "the request", c.app.came)
		c.ends()
		c.app.held <- struct{}{}
		c.gets(fmt.Sprintf("/held %d", len(beyond)))
	}},
	{"a stream cut short", func(c *closer) {
		c.says(fmt.Sprintf("POST /cut HTTP/1.1\nHost: a\nContent-Length: %d\n\n", len(beyond)), beyond[1:])
		eventually.True(c.t, "the request to begin", func() bool { return c.app.fate("/cut") == "begun" })
		c.ends()
		eventually.True(c.t, "the application to see the cut", func() bool { return c.app.fate("/cut") == "cut" })
		c.app.saw("/cut", "")
	}},
}

// TestHalfClose: a client that ends its side after a whole request gets the response. A request that was cut short
// does not reach the application.
func TestHalfClose(t *testing.T) {
	app, ca := newCloserApp(t), testcerts.New(t)
	keys, dir, addrs := harness.CertFiles(t, ca, "web.test"), t.TempDir(), harness.FreeAddrs(t, 4)
	harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}
`, addrs[0], app.Listener.Addr())).Ready()
	log, socket := filepath.Join(dir, "log"), filepath.Join(dir, "socket")
	harness.Start(t, fmt.Sprintf(`
loops: 1
limits: {message: 64KiB}
timeouts: {half_close: 2m}
access_log: {path: %q}
listeners:
  - {name: one, address: %q, protocol: http, service: app}
  - {name: two, address: %q, protocol: http, service: linked}
  - {name: tls, address: %q, protocol: http, service: app, tls: {cert: %q, key: %q}}
  - {name: unix, address: "unix:%s", protocol: http, service: app}
services:
  app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}
  linked: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}
`, log, addrs[1], addrs[2], addrs[3], keys.Cert, keys.Key, socket, app.Listener.Addr(), addrs[0])).Ready()
	dial := func(t *testing.T, network, addr string, config *tls.Config) *closer {
		t.Helper()
		nc := harness.Dial(t, network, addr)
		c := &closer{t: t, app: app}
		switch nc := nc.(type) {
		case *net.UnixConn:
			c.nc = nc
		case *net.TCPConn:
			if c.nc = nc; config != nil {
				over := tls.Client(nc, config)
				if err := over.Handshake(); err != nil {
					t.Fatal(err)
				}
				c.nc = over
			}
		}
		c.in = bufio.NewReader(c.nc)
		return c
	}
	for _, at := range []struct {
		name, network, addr string
		config              *tls.Config
	}{
		{"one sidecar", "tcp", addrs[1], nil},
		{"two sidecars", "tcp", addrs[2], nil},
		{"TLS", "tcp", addrs[3], harness.Trusting(ca)},
		{"Unix socket", "unix", socket, nil},
	} {
		for _, is := range halfCloses {
			t.Run(at.name+"/"+is.name, func(t *testing.T) { is.run(dial(t, at.network, at.addr, at.config)) })
		}
		t.Run(at.name+"/HTTP2", func(t *testing.T) { halfCloseHTTP2(dial(t, at.network, at.addr, at.config)) })
	}
	if fate := app.fate("/never"); fate != "" {
		t.Errorf("a request that was cut short: %s", fate)
	}
	leaves := func(name, network, addr string, leave func(c *closer)) {
		t.Run(name, func(t *testing.T) {
			path := "/held/" + strings.ReplaceAll(name, " ", "-")
			c := dial(t, network, addr, nil)
			c.says("GET "+path+" HTTP/1.1\nHost: a\n\n", "")
			harness.Receive(t, "the request", app.came)
			leave(c)
			eventually.True(t, "the request to be cancelled", func() bool {
				b, _ := os.ReadFile(log)
				for line := range strings.Lines(string(b)) {
					if strings.Contains(line, path) {
						return strings.Contains(line, `"outcome":"cancelled"`)
					}
				}
				return false
			})
			app.held <- struct{}{}
		})
	}
	leaves("reset after the end", "tcp", addrs[1], func(c *closer) {
		c.ends()
		_ = c.nc.(*net.TCPConn).SetLinger(0)
		c.nc.Close()
	})
	leaves("Unix socket closed", "unix", socket, func(c *closer) { c.nc.Close() })
}

// halfCloseHTTP2 ends the client's side after one whole request, and one whose body is missing.
func halfCloseHTTP2(c *closer) {
	p := h2.NewPeer(c.nc)
	go p.Listen()
	p.Send([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), h2.Settings(), h2.Post(1, "/never"), h2.Heads(3, h2.EndStream, h2.Block(h2.RequestFields("GET", "/held")...)))
	harness.Receive(c.t, "the request", c.app.came)
	c.ends()
	c.app.held <- struct{}{}
	if err := p.UntilEnd(func(h *h2.Heard) bool {
		s := h.Streams[3]
		return s != nil && s.Ended && string(s.Body) == "/held 0" && h.Wrong == nil
	}); err != nil {
		c.t.Error(err)
	}
}
