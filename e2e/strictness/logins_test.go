package strictness

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// loginApp is an application that logs in connections. A login takes one request (YIIone) or two: the second
// one repeats a nonce that the connection got by the first one.
type loginApp struct {
	addr   string
	nonces atomic.Int64
	logins atomic.Int64 // that succeeded
}

// loginConn is a connection to a loginApp.
type loginConn struct {
	mu          sync.Mutex
	user, nonce string
}

type loginKey struct{}

func startLoginApp(t *testing.T, http2 bool) *loginApp {
	t.Helper()
	l := must.Listen(t)
	a := &loginApp{addr: l.Addr().String()}
	srv := &http.Server{
		Handler: a, Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, loginKey{}, new(loginConn))
		},
	}
	srv.Protocols.SetHTTP1(!http2)
	srv.Protocols.SetUnencryptedHTTP2(http2)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return a
}

// ServeHTTP says whom the connection belongs to. On /quiet it says nothing of a login that succeeds.
func (a *loginApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	c := r.Context().Value(loginKey{}).(*loginConn)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range []string{"Authorization", "Proxy-Authorization", "X-Login"} {
		for _, credentials := range strings.Split(strings.Join(r.Header[name], ","), ",") {
			a.login(c, credentials, r.URL.Path == "/quiet", w.Header())
		}
	}
	if c.user == "" {
		w.Header().Add("Www-Authenticate", `Basic realm="a, b", NEGOTIATE`)
		w.Header().Add("Www-Authenticate", "NTLM")
		w.WriteHeader(http.StatusUnauthorized)
	}
	fmt.Fprint(w, "user="+c.user)
}

func (a *loginApp) login(c *loginConn, credentials string, quiet bool, to http.Header) {
	fields := strings.Fields(credentials)
	if len(fields) != 2 || !strings.Contains(" ntlm negotiate kerberos nego2 ", " "+strings.ToLower(fields[0])+" ") {
		return
	}
	switch token := fields[1]; {
	case strings.HasSuffix(token, "first"):
		c.nonce = fmt.Sprint("nonce", a.nonces.Add(1))
		to.Add("Www-Authenticate", fields[0]+" TlRMTVNTUAAC"+c.nonce)
	case token == "YIIone" || c.nonce != "" && strings.HasSuffix(token, c.nonce):
		c.user = "alice"
		a.logins.Add(1)
		if !quiet {
			to.Set("Persistent-Auth", "true")
			to.Set("Www-Authenticate", fields[0]+" oYIdone")
		}
	}
}

// loginCase is a way to log in.
type loginCase struct {
	header   string
	requests []string // the lines of the header in each request, separated by semicolons; NONCE is that of the challenge
	body     int
	upgrade  bool
	path     string
	want     string // the last status, and the error or body
}

const (
	loginServed  = "200 user=alice"
	loginRefused = "501 connection-login"
)

var loginCases = []loginCase{
	{header: "Authorization", requests: []string{"NTLM TlRMTVNTUAABfirst", "NTLM TlRMTVNTUAADNONCE"}, want: loginRefused},
	{header: "authorization", requests: []string{"ntlm TlRMTVNTUAABfirst", "ntlm TlRMTVNTUAADNONCE"}, want: loginRefused},
	{header: "Authorization", requests: []string{"Negotiate TlRMTVNTUAABfirst", "Negotiate TlRMTVNTUAADNONCE"}, want: loginRefused},
	{header: "Authorization", requests: []string{"Negotiate YIIfirst", "Negotiate oYINONCE"}, want: loginRefused},
	{header: "Authorization", requests: []string{"Nego2 YIIfirst", "Nego2 oYINONCE"}, want: loginRefused},
	{header: "Proxy-Authorization", requests: []string{"NTLM TlRMTVNTUAABfirst", "NTLM TlRMTVNTUAADNONCE"}, want: loginRefused},
	{header: "Authorization", requests: []string{"Basic eA==;NTLM TlRMTVNTUAABfirst", "Basic eA==;NTLM TlRMTVNTUAADNONCE"}, want: loginRefused},
	{header: "Authorization", requests: []string{"NTLM TlRMTVNTUAABfirst"}, body: 100_000, want: loginRefused},
	{header: "Authorization", requests: []string{"Negotiate YIIone"}, want: loginServed},
	{header: "AUTHORIZATION", requests: []string{"NEGOTIATE\tYIIone"}, want: loginServed},
	{header: "Authorization", requests: []string{"Kerberos YIIone"}, want: loginServed},
	{header: "Authorization", requests: []string{"Basic eA==;Negotiate YIIone"}, want: loginServed},
	{header: "Authorization", requests: []string{`Digest a="b\",c" , negotiate YIIone`}, want: loginServed},
	{header: "Proxy-Authorization", requests: []string{"Negotiate YIIone"}, want: loginServed},
	{header: "Authorization", requests: []string{"Negotiate YIIone"}, path: "quiet", want: loginServed},
	{header: "Authorization", requests: []string{"Negotiate YIIone"}, body: 1000, want: loginServed},
	{header: "Authorization", requests: []string{"Negotiate YIIone"}, body: 100_000, want: loginServed},
	{header: "Authorization", requests: []string{"Negotiate YIIone"}, upgrade: true, want: loginServed},
	{header: "X-Login", requests: []string{"Negotiate YIIone"}, want: loginServed}, // only the response says so
}

// TestConnectionLogins: whom an application has logged in on a connection, no other client becomes.
func TestConnectionLogins(t *testing.T) {
	for _, speaks := range []string{"http", "http2"} {
		for _, linked := range []bool{false, true} {
			for _, hedge := range []string{"off", "on"} {
				t.Run(fmt.Sprintf("%s linked=%t hedge=%s", speaks, linked, hedge), func(t *testing.T) {
					testLogins(t, speaks, linked, hedge)
				})
			}
		}
	}
}

func testLogins(t *testing.T, speaks string, linked bool, hedge string) {
	apps := []*loginApp{startLoginApp(t, speaks == "http2"), startLoginApp(t, speaks == "http2")}
	app := fmt.Sprintf("{discover: static, endpoints: [%q, %q], protocol: %s, connect_timeout: 15s, timeout: 2m, idempotent: true, hedge: {mode: %s, delay: 20ms}}",
		apps[0].addr, apps[1].addr, speaks, hedge)
	addrs := harness.FreeAddrs(t, 2)
	if linked {
		harness.Start(t, fmt.Sprintf(`
loops: 1
limits: {message: 64KiB}
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: %s}`, addrs[1], app)).Ready()
		app = fmt.Sprintf("{discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}", addrs[1])
	}
	harness.Start(t, fmt.Sprintf(`
loops: 1
limits: {message: 64KiB}
listeners: [{name: egress, address: %q, protocol: http, service: app}]
services: {app: %s}`, addrs[0], app)).Ready()

	for _, version := range []string{"1.1", "2"} {
		for _, c := range loginCases {
			want := c.want
			switch {
			case c.upgrade && (version == "2" || speaks == "http2"):
				continue
			case speaks == "http2" && c.header == "X-Login": // such a server can't be told from others
				continue
			case speaks == "http2":
				want = loginRefused
			}
			name := fmt.Sprintf("HTTP/%s %s: %q, body %d", version, c.header, c.requests, c.body)
			before := apps[0].logins.Load() + apps[1].logins.Load()
			if got := logIn(t, "http://"+addrs[0], version, &c); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
			if n := apps[0].logins.Load() + apps[1].logins.Load() - before; n > 1 && c.header != "X-Login" {
				t.Errorf("%s: %d logins", name, n)
			}
			leaks := 0
			for range 30 {
				stranger := &loginCase{header: "X-Stranger", requests: []string{"yes"}}
				if got := logIn(t, "http://"+addrs[0], version, stranger); got != "401 user=" {
					leaks++
				}
			}
			if leaks > 0 {
				t.Errorf("%s: %d of 30 strangers were logged in", name, leaks)
			}
		}
	}
}

// logIn sends the requests of c as a new client, and returns the last status with the error or body.
func logIn(t *testing.T, url, version string, c *loginCase) string {
	t.Helper()
	tr := harness.Transport(t, version)
	defer tr.CloseIdleConnections()
	nonce, got := "", ""
	for _, lines := range c.requests {
		method, body := http.MethodGet, io.Reader(nil)
		if c.body > 0 {
			method, body = http.MethodPost, bytes.NewReader(make([]byte, c.body))
		}
		req := must.Request(t, method, url+"/"+c.path, body)
		req.Header[c.header] = strings.Split(strings.ReplaceAll(lines, "NONCE", nonce), ";")
		if c.upgrade {
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", "websocket")
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Errorf("%s: %v", c.header, err)
			return ""
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Error(err)
		}
		if got = fmt.Sprintf("%d %s", resp.StatusCode, text); resp.Header.Get("X-Remora-Error") != "" {
			got = fmt.Sprintf("%d %s", resp.StatusCode, resp.Header.Get("X-Remora-Error"))
		}
		if resp.Header.Get("Persistent-Auth") != "" {
			t.Errorf("%s: the client is told that its connection is logged in", c.header)
		}
		for _, challenge := range resp.Header["Www-Authenticate"] {
			_, nonce, _ = strings.Cut(challenge, "TlRMTVNTUAAC")
			if nonce != "" {
				break
			}
		}
	}
	return got
}
