package names

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// TestAbsoluteFormOfTLS: an absolute-form target may have the scheme of its listener, or http as a client
// sends it to a proxy. A server name with a dot at its end is none (RFC 6066 section 3).
func TestAbsoluteFormOfTLS(t *testing.T) {
	ca, addr := testcerts.New(t), harness.FreeAddrs(t, 1)[0]
	web := harness.CertFiles(t, ca, "web.test")
	app := nameApp(t)
	harness.Start(t, fmt.Sprintf(`
listeners: [{name: web, address: %q, protocol: http, tls: {cert: %q, key: %q}, unrouted: direct, direct: {allow: [127.0.0.0/8]}}]
routes: [{match: {host: web.test}, service: app, request_headers: {set: {x-route: web}}}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`, addr, web.Cert, web.Key, app)).Ready()
	for target, want := range map[string]string{
		"/":                      "200 web web.test",
		"https://web.test/":      "200 web web.test",
		"HTTPS://WEB.test.:443":  "200 web WEB.test.:443",
		"http://web.test/":       "200 web web.test",
		"https://other.test/":    "404",
		"https://" + app + "/":   "404", // direct would be in plain text
		"http://" + app + "/":    "200  " + app,
		"https:///":              "400",
		"ftp://web.test/":        "400",
		"https://user@web.test/": "400",
	} {
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: harness.Patience}, "tcp", addr, harness.Trusting(ca))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(harness.Patience))
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: web.test\r\n\r\n", target)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		if got := harness.StatusAndBody(resp.StatusCode, resp.Body); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
		conn.Close()
	}
	if alert := alertFor(t, addr, "web.test"); alert != "" {
		t.Errorf("the server name web.test: %s", alert)
	}
	if alert := alertFor(t, addr, "WEB.test"); alert != "" {
		t.Errorf("the server name WEB.test: %s", alert)
	}
	if alert := alertFor(t, addr, "web.test."); alert == "" {
		t.Error("the server name web.test. is taken")
	}
}

// alertFor sends a ClientHello with a server name as it is, and returns how it is refused, or "" for a
// handshake that goes on.
func alertFor(t *testing.T, addr, name string) string {
	t.Helper()
	s := harness.DialPlain(t, addr)
	s.Say("", helloFor(t, name)...)
	head := make([]byte, 7)
	if _, err := io.ReadFull(s.In, head); err != nil {
		return err.Error() // a reset
	}
	if head[0] == 21 {
		return fmt.Sprintf("alert %d", head[6])
	}
	return ""
}

// helloFor returns the record of a ClientHello. Package tls would cut the dot of the name off, so that
// is put in place of an x.
func helloFor(t *testing.T, name string) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	placed := name
	if strings.HasSuffix(name, ".") {
		placed = strings.TrimSuffix(name, ".") + "x"
	}
	go func() { _ = tls.Client(client, &tls.Config{ServerName: placed}).Handshake() }()
	head := must.Read(t, server, 5)
	body := must.Read(t, server, int(head[3])<<8|int(head[4]))
	return append(head, bytes.Replace(body, []byte(placed), []byte(name), 1)...)
}

// TestServerNames: a tcp listener finds a route by the server name in any case, and refuses a name with
// a dot at its end.
func TestServerNames(t *testing.T) {
	ca, addr := testcerts.New(t), harness.FreeAddrs(t, 1)[0]
	web := harness.CertFiles(t, ca, "web.test")
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{harness.Pair(t, web)}})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go harness.Accept(ln, func(nc net.Conn) { _ = nc.(*tls.Conn).Handshake() })
	harness.Start(t, fmt.Sprintf(`
listeners: [{name: tls, address: %q, protocol: tcp}]
routes: [{match: {sni: Web.test}, service: web}]
services: {web: {discover: static, endpoints: [%q], protocol: tcp, connect_timeout: 15s}}`, addr, ln.Addr())).Ready()
	for name, taken := range map[string]bool{"web.test": true, "WEB.TEST": true, "web.test.": false, "x.web.test": false} {
		if alert := alertFor(t, addr, name); (alert == "") != taken {
			t.Errorf("%s: %q, want it to be taken: %t", name, alert, taken)
		}
	}
}
