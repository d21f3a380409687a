package strictness

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// strictnessPage has the table of well-formed messages.
const strictnessPage = "../../docs/strictness.md"

// wellFormed is a message that is valid, and that proxies treat differently. Its outcome is a cell of the table.
type wellFormed struct {
	message string
	rfc     string // of RFC 9110, unless it says otherwise
	outcome func(t *testing.T, f *front) string
}

// proxyPatience is how long a proxy may take. A later response counts as none.
const proxyPatience = 10 * time.Second

var wellFormedMessages = []wellFormed{
	{"`GET`, then the end of the client's sending side", "9112, 9.6", halfClosed("GET /slow HTTP/1.1\r\nHost: name.test\r\n\r\n")},
	{"`POST` with all of its body, then that", "9112, 9.6", halfClosed("POST /slow HTTP/1.1\r\nHost: name.test\r\nContent-Length: 2\r\n\r\nab")},
	{"103 before the response", "15.2", interim("/hints", false)},
	{"103, to a client of HTTP/2", "15.2", interim("/hints", true)},
	{"102 before the response", "15.2", interim("/processing", false)},
	{"`Expect: 100-continue`", "10.1.1", expectation("/expect")},
	{"the same, and the application refuses with 403", "10.1.1", expectation("/refuse")},
	{"`Host: name.test.` where a route has `name.test`", "RFC 3986, 3.2.2", host("name.test.")},
	{"`Upgrade: websocket` with `Content-Length: 0`", "7.8", upgrading("GET", "websocket", "")},
	{"`POST` with a body and `Upgrade: tcp`", "7.8", upgrading("POST", "tcp", "{}")},
	{"150 cookie pairs of HTTP/2, each a field", "9113, 8.2.3", crumbs},
	{"`GET https://name.test/` on a listener with TLS", "9112, 3.2.2", absolute("https", true)},
	{"`GET http://name.test/` there", "7.4", absolute("http", true)},
	{"`GET https://name.test/` on one without", "7.4", absolute("https", false)},
	{"`Via` to the application", "7.6.3", via},
	{"NTLM: a stranger after a login on a pooled connection", "RFC 4559, 6", strangers},
	{"an endpoint `localhost` that listens at `::1` only", "RFC 8305", host("six.test")},
}

// TestStrictnessOfWellFormed sends valid messages through Remora and three other proxies at their defaults, and
// compares the outcomes with the table in docs/strictness.md.
func TestStrictnessOfWellFormed(t *testing.T) {
	if !*withProxies {
		t.Skip("needs nginx, HAProxy and Envoy: see scripts/strictness.sh")
	}
	columns := make([][]string, len(products))
	head := "| message | RFC |"
	t.Run("products", func(t *testing.T) {
		for i := range products {
			f := products[i].startFront(t)
			head += " " + strings.TrimSpace(products[i].name+" "+products[i].installed(t)) + " |"
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				for _, m := range wellFormedMessages {
					columns[i] = append(columns[i], m.outcome(t, f))
				}
			})
		}
	})
	var table strings.Builder
	fmt.Fprintf(&table, "%s\n|---|---|%s\n", head, strings.Repeat("---|", len(products)))
	for i, m := range wellFormedMessages {
		fmt.Fprintf(&table, "| %s | %s |", m.message, m.rfc)
		for _, c := range columns {
			fmt.Fprintf(&table, " %s |", c[i])
		}
		table.WriteByte('\n')
	}
	compareWithPage(t, table.String())
}

var wellFormedTable = regexp.MustCompile(`(?s)(<!-- generated: scripts/strictness.sh -update -->\n).*?(<!-- end -->)`)

// compareWithPage fails unless the page has the table, which -update writes.
func compareWithPage(t *testing.T, table string) {
	t.Helper()
	page := must.ReadFile(t, strictnessPage)
	now := wellFormedTable.ReplaceAll(page, []byte("${1}"+strings.ReplaceAll(table, "$", "$$")+"${2}"))
	withoutVersions := func(page []byte) []byte { return versionNumber.ReplaceAll(page, nil) }
	switch {
	case bytes.Equal(now, page):
	case !*updateTable && bytes.Equal(withoutVersions(now), withoutVersions(page)):
	case *updateTable && !t.Failed():
		must.WriteFile(t, strictnessPage, now)
	default:
		t.Errorf("%s has another table; scripts/strictness.sh -update writes this one:\n%s", strictnessPage, table)
	}
}

// open connects to a listener of f.
func (f *front) open(t *testing.T, secure bool) net.Conn {
	t.Helper()
	addr := f.plain
	if secure {
		addr = f.secure
	}
	nc := must.Dial(t, "tcp", addr)
	_ = nc.SetDeadline(time.Now().Add(proxyPatience))
	if secure {
		config := harness.Trusting(f.trusted)
		config.ServerName = "name.test"
		return tls.Client(nc, config)
	}
	return nc
}

// send writes a message to f, and returns the reader of the response.
func (f *front) send(t *testing.T, secure bool, message string) (net.Conn, *bufio.Reader) {
	t.Helper()
	nc := f.open(t, secure)
	must.Write(t, nc, message)
	return nc, bufio.NewReader(nc)
}

// client returns a client of HTTP/1.1 or HTTP/2 whose every connection goes to f.
func (f *front) client(version2 bool) *http.Client {
	tr := &http.Transport{
		Protocols: new(http.Protocols),
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, f.plain)
		},
	}
	tr.Protocols.SetHTTP1(!version2)
	tr.Protocols.SetUnencryptedHTTP2(version2)
	return &http.Client{Transport: tr, Timeout: proxyPatience}
}

// final reads one response, and returns its status, or what happened instead, and its body.
func final(in *bufio.Reader) (status, body string) {
	resp, err := http.ReadResponse(in, nil)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "no response", ""
	case err != nil:
		return "closed", ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode), string(b)
}

func halfClosed(message string) func(*testing.T, *front) string {
	return func(t *testing.T, f *front) string {
		nc, in := f.send(t, false, message)
		if err := nc.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		status, _ := final(in)
		return status
	}
}

func interim(path string, version2 bool) func(*testing.T, *front) string {
	return func(t *testing.T, f *front) string {
		req := must.Request(t, http.MethodGet, "http://name.test"+path, http.NoBody)
		var got []string
		req = req.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
				got = append(got, fmt.Sprint(code))
				return nil
			},
		}))
		resp, err := f.client(version2).Do(req)
		if err != nil {
			return "no response"
		}
		resp.Body.Close()
		if len(got) == 0 {
			return "dropped"
		}
		return "passed on"
	}
}

// expectation asks for a 100, and says who sends it. The application waits longer than a proxy that sends one.
func expectation(path string) func(*testing.T, *front) string {
	return func(t *testing.T, f *front) string {
		nc, in := f.send(t, false, "POST "+path+" HTTP/1.1\r\nHost: name.test\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
		_ = nc.SetReadDeadline(time.Now().Add(proxyPause))
		status, _ := final(in)
		_ = nc.SetReadDeadline(time.Now().Add(proxyPatience))
		f.app.resume <- struct{}{}
		if status != "100" {
			status, _ = final(in)
			if status == "100" {
				return "the application's 100"
			}
			return status
		}
		must.Write(t, nc, "ab")
		status, _ = final(in)
		return "100 of its own, then " + status
	}
}

func host(name string) func(*testing.T, *front) string {
	return func(t *testing.T, f *front) string {
		_, in := f.send(t, false, "GET / HTTP/1.1\r\nHost: "+name+"\r\n\r\n")
		status, _ := final(in)
		return status
	}
}

func upgrading(method, protocol, body string) func(*testing.T, *front) string {
	return func(t *testing.T, f *front) string {
		_, in := f.send(t, false, fmt.Sprintf("%s /upgrade HTTP/1.1\r\nHost: name.test\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"+
			"Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\nContent-Length: %d\r\n\r\n%s",
			method, protocol, webSocketKey, len(body), body))
		status, got := final(in)
		if status == "200" {
			return "200: `" + got + "`"
		}
		return status
	}
}

func crumbs(t *testing.T, f *front) string {
	req := must.Request(t, http.MethodGet, "http://name.test/", http.NoBody)
	pairs := slices.Repeat([]string{"a=b"}, 150)
	req.Header.Set("Cookie", strings.Join(pairs, "; ")) // net/http makes a field of each
	resp, err := f.client(true).Do(req)
	if err != nil {
		return "reset"
	}
	resp.Body.Close()
	return fmt.Sprint(resp.StatusCode)
}

func absolute(scheme string, secure bool) func(*testing.T, *front) string {
	return func(t *testing.T, f *front) string {
		_, in := f.send(t, secure, "GET "+scheme+"://name.test/ HTTP/1.1\r\nHost: name.test\r\n\r\n")
		status, _ := final(in)
		return status
	}
}

func via(t *testing.T, f *front) string {
	_, in := f.send(t, false, "GET / HTTP/1.1\r\nHost: name.test\r\n\r\n")
	_, body := final(in)
	if _, value, _ := strings.Cut(body, "Via="); value != "" {
		return "`" + value + "`"
	}
	return "none"
}

// strangers says what clients without credentials get after another one has logged in.
func strangers(t *testing.T, f *front) string {
	login := &loginCase{header: "Authorization", path: "quiet", requests: []string{"NTLM TlRMTVNTUAABfirst", "NTLM TlRMTVNTUAADNONCE"}}
	if got := logIn(t, "http://"+f.plain, "1.1", login); got != loginServed {
		return "the login gets " + got[:3]
	}
	for range 30 {
		if got := logIn(t, "http://"+f.plain, "1.1", &loginCase{header: "X-Stranger", requests: []string{"yes"}}); got == loginServed {
			return "**is served as the user**"
		}
	}
	return "401"
}
