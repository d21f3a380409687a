package reload

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// bilingual is an endpoint that speaks HTTP with and without TLS. It says how each request came, and
// responds once it may, on the last request of its connection.
type bilingual struct {
	addr    string
	tls     *tls.Config
	got     chan string
	respond chan struct{}
}

// peeked is a connection of which bytes were read ahead.
type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (p peeked) Read(b []byte) (int, error) { return p.r.Read(b) }

func newBilingual(t *testing.T, d testcerts.Dir) *bilingual {
	pair, err := tls.LoadX509KeyPair(d.Cert, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	b := &bilingual{"", &tls.Config{Certificates: []tls.Certificate{pair}}, make(chan string, 10), make(chan struct{})}
	b.addr = harness.ServeTCP(t, b.serve)
	return b
}

func (b *bilingual) serve(nc net.Conn) {
	p := peeked{nc, bufio.NewReader(nc)}
	first, err := p.r.Peek(1)
	if err != nil {
		return
	}
	var c net.Conn = p
	how := "plain"
	if first[0] == 22 { // a record of a handshake
		how, c = "TLS", tls.Server(p, b.tls)
		defer c.Close()
	}
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		b.got <- fmt.Sprint(how, " ", err)
		return
	}
	b.got <- how + " " + req.URL.Path
	<-b.respond
	_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
}

// TestReloadChangesTLS: a request that began before a reload goes to the endpoint of that time as it would
// have without the reload: with TLS if the service had it, and in plain text if not.
func TestReloadChangesTLS(t *testing.T) {
	ca := testcerts.New(t)
	cert, key := ca.Issue(testcerts.Leaf{Names: []string{"app.test"}})
	d := testcerts.NewDir(t, ca, cert, key)
	const one = ", max_concurrency: 1"
	withTLS := one + fmt.Sprintf(", tls: {ca: %q, sni: app.test}", d.CA)
	for how, c := range map[string]struct{ before, after string }{"TLS": {withTLS, one}, "plain": {one, withTLS}} {
		t.Run(how, func(t *testing.T) {
			b := newBilingual(t, d)
			egress := harness.FreeAddrs(t, 1)[0]
			p := harness.Start(t, harness.OneApp(egress, b.addr, c.before))
			p.Ready()
			done := make(chan error, 2)
			get := func(path string) {
				resp, err := http.Get("http://" + egress + path)
				if err == nil {
					resp.Body.Close()
					if resp.StatusCode != http.StatusNoContent {
						err = fmt.Errorf("%s: status %d", path, resp.StatusCode)
					}
				}
				done <- err
			}
			go get("/first")
			if got := <-b.got; got != how+" /first" {
				t.Errorf("the endpoint got %s", got)
			}
			go get("/second")
			p.AwaitMetric(`remora_requests_queued{service="app"}`, 1)
			p.Reload(harness.OneApp(egress, harness.NewApp(t).Addr, c.after), "applied")
			close(b.respond)
			if got := <-b.got; got != how+" /second" {
				t.Errorf("after the reload the endpoint got %s", got)
			}
			for range 2 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestReloadsBeforeFallback: a request whose service fails after two reloads goes to the fallback of the time when
// it began, with TLS.
func TestReloadsBeforeFallback(t *testing.T) {
	ca := testcerts.New(t)
	cert, key := ca.Issue(testcerts.Leaf{Names: []string{"app.test"}})
	d := testcerts.NewDir(t, ca, cert, key)
	b := newBilingual(t, d)
	close(b.respond)
	arrived, fail := make(chan bool, 1), make(chan bool)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived <- true
		<-fail
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer app.Close()
	egress := harness.FreeAddrs(t, 1)[0]
	config := func(more string) string {
		return fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app, fallback: {service: other, on: [5xx], timeout: 1m}}]
services:
  app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 1m}
  other: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, tls: {ca: %q, sni: app.test}%s}`, egress, app.Listener.Addr(), b.addr, d.CA, more)
	}
	p := harness.Start(t, config(""))
	p.Ready()
	done := make(chan error, 1)
	go func() {
		resp, err := http.Get("http://" + egress + "/")
		if err == nil {
			resp.Body.Close()
		}
		done <- err
	}()
	<-arrived
	p.Reload(config(", max_concurrency: 5"), "applied") // another service
	p.Reload(config(", max_concurrency: 5, timeout: 3s"), "applied")
	close(fail)
	if got := <-b.got; got != "TLS /" {
		t.Errorf("the fallback got %s", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
