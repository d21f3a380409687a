package harness

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

// App is an application. It responds at once, except to /slow, which waits for release.
type App struct {
	Addr    string
	Arrived chan struct{} // gets a value at each request of /slow
	Release chan struct{} // closed to let those respond
}

// BigBody is the size of the response to /big: larger than socket buffers, and just
// within limits.message.
const BigBody = 4<<20 - 1<<10

// NewApp starts an application, until the test ends.
func NewApp(t *testing.T) *App {
	a := &App{Arrived: make(chan struct{}, 64), Release: make(chan struct{})}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			a.Arrived <- struct{}{}
			select {
			case <-a.Release:
			case <-r.Context().Done():
			}
		}
		if r.URL.Path == "/big" {
			_, _ = w.Write(make([]byte, BigBody))
			return
		}
		_, _ = io.Copy(w, io.MultiReader(strings.NewReader(r.Method+" "), r.Body))
	}))
	t.Cleanup(func() {
		select {
		case <-a.Release:
		default:
			close(a.Release)
		}
		srv.Close()
	})
	a.Addr = srv.Listener.Addr().String()
	return a
}

// OneApp returns a configuration with one listener in front of an application.
func OneApp(egress, app, more string) string {
	return fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m%s}}`, egress, app, more)
}

// Consumer starts a sidecar in front of an application, and returns the address of its listener. more is
// further configuration.
func Consumer(t *testing.T, a *App, more string) (*Process, string) {
	egress := FreeAddrs(t, 1)[0]
	p := Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m, max_concurrency: 8}}
%s`, egress, a.Addr, more))
	return p, egress
}

// Provider starts the sidecar of an application, and returns the address of its link.
func Provider(t *testing.T, a *App) (*Process, string) {
	ingress := FreeAddrs(t, 1)[0]
	p := Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`, ingress, a.Addr))
	p.Ready() // it has its addresses before the test looks for other free ones
	return p, ingress
}

// Slow sends a request, and returns when the application has it. Its response waits.
func Slow(t *testing.T, a *App, egress string) <-chan *http.Response {
	t.Helper()
	response := make(chan *http.Response, 1)
	go func() {
		resp, err := http.Get("http://" + egress + "/slow")
		if err != nil {
			t.Errorf("the slow request failed: %v", err)
			resp = &http.Response{Body: http.NoBody}
		}
		response <- resp
	}()
	Receive(t, "the slow request to arrive", a.Arrived)
	return response
}

// Get sends a GET for /, and returns the status, the error code of a sidecar, and the headers of the response.
func Get(addr string) (status int, code string, h http.Header, err error) {
	resp, err := http.Get("http://" + addr + "/")
	if err != nil {
		return 0, "", nil, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, "", nil, err
	}
	return resp.StatusCode, resp.Header.Get("X-Remora-Error"), resp.Header, nil
}

// Post sends a request with a unique body, which net/http does not retry by itself.
func Post(client *http.Client, egress, text string) error {
	resp, err := client.Post("http://"+egress+"/", "text/plain", bytes.NewReader([]byte(text)))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != 200 || string(body) != "POST "+text {
		return fmt.Errorf("request %s: response %d %s %q", text, resp.StatusCode, resp.Header.Get("x-remora-error"), body)
	}
	return nil
}

// CheckedApp is an application whose health check, /healthz, a test can make fail. It responds with its name
// to all other paths.
type CheckedApp struct {
	App    string       // its name
	Down   atomic.Bool  // the check fails
	Checks atomic.Int64 // number of requests
}

// Start serves the application until the test ends.
func (s *CheckedApp) Start(t *testing.T) (addr string) {
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

func (s *CheckedApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Checks.Add(1)
	switch {
	case r.URL.Path != "/healthz":
		_, _ = io.WriteString(w, s.App)
	case s.Down.Load():
		http.Error(w, "down", http.StatusServiceUnavailable)
	}
}

// ServedBy sends a GET, and returns the body of the response. A status other than 200 is an error.
func ServedBy(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, errors.New(resp.Status))
	}
	return string(body), err
}

// ServedByAll waits until each application has responded to a GET. Each letter of apps is the name of one.
func ServedByAll(t *testing.T, url, apps string) {
	t.Helper()
	missing := apps
	eventually.Nil(t, "responses of all applications", func() error {
		by, err := ServedBy(url)
		if missing = strings.ReplaceAll(missing, by, ""); missing != "" {
			return errors.Join(err, fmt.Errorf("nothing of %s", missing))
		}
		return nil
	})
}

// ServeTCP calls talk for each connection to the address that it returns, and then closes
// the connection.
func ServeTCP(t *testing.T, talk func(nc net.Conn)) (addr string) {
	ln := must.Listen(t)
	go Accept(ln, talk)
	return ln.Addr().String()
}

// Accept calls talk for each connection until ln is closed, and then closes the connection.
func Accept(ln net.Listener, talk func(nc net.Conn)) {
	for {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer nc.Close()
			talk(nc)
		}()
	}
}

// Repeat calls do again and again, until the test ends or do reports that it has failed.
func Repeat(t *testing.T, do func() (ok bool)) {
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	all.Go(func() {
		for t.Context().Err() == nil && do() {
		}
	})
}
