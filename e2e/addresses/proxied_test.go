package addresses

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

// TestProxiedHTTP: the client of the header is the one of the application, the access log and
// limits.per_source, and is not trusted as those of loopback are.
func TestProxiedHTTP(t *testing.T) {
	dir := harness.SocketDir(t)
	unixApp(t, filepath.Join(dir, "app"))
	free := harness.FreeAddrs(t, 1)[0]
	conf := fmt.Sprintf(`
loops: 1
limits: {per_source: 2}
access_log: {path: %[2]s/log}
listeners: [{name: in, address: %[1]q, protocol: http, service: app, proxy_protocol: {trust: [TRUST]}}]
services: {app: {discover: static, protocol: http, endpoints: ["unix:%[2]s/app"], connect_timeout: 15s}}`, free, dir)
	p := harness.Start(t, strings.ReplaceAll(conf, "TRUST", "127.0.0.0/8"))
	p.Ready()
	ask := func(header string) (string, error) {
		nc := harness.Dial(t, "tcp", free)
		_, _ = io.WriteString(nc, header+"GET /x HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n") // may be reset already
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			return "", err
		}
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	const header = "PROXY TCP4 192.0.2.1 198.51.100.2 56324 80\r\n"
	for range 2 {
		if got, err := ask(header); got != "/x  for 192.0.2.1" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	tr := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			_, err = io.WriteString(nc, strings.Replace(header, "2.1", "2.9", 1))
		}
		return nc, err
	}}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr, Timeout: harness.Patience}).Get("http://" + free + "/x")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(resp.Body); string(got) != "/x  for 192.0.2.9" || resp.ProtoMajor != 2 || err != nil {
		t.Errorf("over %s: %q, %v", resp.Proto, got, err)
	}
	resp.Body.Close()
	if got, err := ask(header); err == nil {
		t.Errorf("a third connection of the client got %q", got)
	}
	if got, err := ask(""); err == nil {
		t.Errorf("without a header: %q", got)
	}
	p.Says(t, "no header of the PROXY protocol")
	p.Await("/readyz", http.StatusOK, "")
	p.Counts(`remora_errors_total{code="bad-proxy-header",listener="in"}`, 1)
	logged(t, filepath.Join(dir, "log"), `"client":"192.0.2.1:56324"`)
	p.Write(strings.ReplaceAll(conf, "TRUST", "10.0.0.1"))
	p.Signal(syscall.SIGHUP)
	p.Says(t, "outcome=applied")
	if got, err := ask("PROXY TCP4 192.0.2.2 198.51.100.2 56324 80\r\n"); err == nil {
		t.Errorf("from a proxy that is not trusted any more: %q", got)
	}
}
