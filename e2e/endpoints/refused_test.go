package endpoints

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

// sendRaw sends bytes to addr on a connection of their own, and returns the response.
func sendRaw(t *testing.T, addr, sent string) string {
	t.Helper()
	nc := harness.Dial(t, "tcp", addr)
	defer nc.Close()
	must.Write(t, nc, sent)
	got, err := io.ReadAll(nc)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

const refusingConfig = `
loops: 1
listeners:
  - {name: egress, address: %q, protocol: http}
  - {name: other, address: %q, protocol: http}
routes: [{match: {host: compute}, service: compute}]
services: {compute: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`

// startRefusing starts a sidecar with one loop, two listeners and one service.
func startRefusing(t *testing.T) (p *harness.Process, egress, other string) {
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(app.Close)
	addrs := harness.FreeAddrs(t, 2)
	p = harness.Start(t, fmt.Sprintf(refusingConfig, addrs[0], addrs[1], app.Listener.Addr()))
	p.Ready()
	return p, addrs[0], addrs[1]
}

// TestRefusedRequests: requests that are refused before they have a route are counted by code and
// listener, in the rates of top, and in the log with an example.
func TestRefusedRequests(t *testing.T) {
	p, egress, other := startRefusing(t)
	for i := range 3 {
		in := fmt.Sprintf("GET /a%d?key=secret HTTP/1.1\r\nHost: first\r\nHost: second\r\n\r\n", i)
		if got := sendRaw(t, egress, in); !strings.Contains(got, "Error: duplicate-host") {
			t.Fatal(got)
		}
	}
	for range 2 {
		if got := sendRaw(t, other, "GET /b HTTP/1.1\r\nHost: nobody\r\nConnection: close\r\n\r\n"); !strings.Contains(got, "no-route") {
			t.Fatal(got)
		}
	}
	if got := sendRaw(t, egress, "GET / HTTP/1.1\r\nHost: evil\x1b[2J\r\n\r\n"); !strings.Contains(got, "bad-field-value") {
		t.Fatal(got)
	}
	if got := sendRaw(t, egress, "GET /c HTTP/1.1\r\nHost: compute\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Fatal(got)
	}
	for series, want := range map[string]int{
		`remora_errors_total{code="duplicate-host",listener="egress"}`: 3,
		`remora_errors_total{code="no-route",listener="other"}`:        2,
		`remora_errors_total{code="no-route",listener="egress"}`:       0,
		`remora_requests_unrouted_total{listener="egress"}`:            4,
		`remora_requests_unrouted_total{listener="other"}`:             2,
		`remora_requests_total{outcome="2xx",service="compute"}`:       1,
		`remora_requests_total{outcome="failed",service="compute"}`:    0,
	} {
		if got := p.Metric(series); got != want {
			t.Errorf("%s is %d, want %d", series, got, want)
		}
	}
	s := p.Stats()
	if l := s.Listeners["egress"]; l == nil || l.Errors["duplicate-host"] != 3 || l.Unrouted != 4 || s.Errors["no-route"] != 2 {
		t.Errorf("/stats has %+v", s.Listeners)
	}
	lines := []string{
		`msg="request refused" listener=egress code=duplicate-host reason=.* peer=127\.0\.0\.1:\d+ method=GET host=first path=/a0 omitted=0`,
		`code=bad-field-value reason=.* peer=127\.0\.0\.1:\d+ method=GET host="evil�\[2J" path=/ omitted=0`,
		`msg="request refused" listener=other code=no-route reason=.* peer=127\.0\.0\.1:\d+ method=GET host=nobody path=/b omitted=0`,
	}
	p.AwaitLog(lines...)
	log := p.Output.String()
	for _, want := range lines {
		if found := regexp.MustCompile(want).FindAllString(log, -1); len(found) != 1 {
			t.Errorf("%d lines in the log match %s", len(found), want)
		}
	}
	if strings.Contains(log, "secret") || strings.Contains(log, "\x1b") {
		t.Error("the log has a query, or a control character")
	}
}

// TestRefusedInTop: top counts refused requests in its rates, and says what they were refused for.
func TestRefusedInTop(t *testing.T) {
	p, egress, _ := startRefusing(t)
	harness.Repeat(t, func() (ok bool) {
		if nc, err := net.Dial("tcp", egress); err == nil {
			_, _ = io.WriteString(nc, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
			_, _ = io.ReadAll(nc)
			nc.Close()
		}
		return true
	})
	eventually.Nil(t, "refused requests in top", func() error {
		code, text := harness.Run("top", "--once", "--admin", p.Admin)
		if code != 0 {
			return fmt.Errorf("exit code %d: %s", code, text)
		}
		for _, want := range []string{`(?m)^\(no service\) +[1-9]\S* .* [1-9]\S* `, `(?m)^egress +duplicate-host +[1-9]`} {
			if !regexp.MustCompile(want).MatchString(text) {
				return fmt.Errorf("%s does not match\n%s", want, text)
			}
		}
		return nil
	})
}

// TestDeadEndpoint: an endpoint that fails each request is failing, and its quick failures have
// no latency.
func TestDeadEndpoint(t *testing.T) {
	addrs := harness.FreeAddrs(t, 2)
	p := harness.Start(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http, service: dead}]
services: {dead: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`, addrs[0], addrs[1]))
	p.Ready()
	for range 5 {
		if got := sendRaw(t, addrs[0], "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 502") {
			t.Fatal(got)
		}
	}
	svc := p.Stats().Services["dead"]
	for i, n := range svc.Counts {
		if n != 0 {
			t.Errorf("%d failures have a latency, in bucket %d", n, i)
		}
	}
	if e := svc.Endpoints[0]; !e.Failing || e.State != "failing" || e.Failed < 5 || e.Failed != e.Attempts || svc.Outcomes["failed"] != 5 {
		t.Errorf("%+v", svc)
	}
	p.Counts(`remora_request_duration_seconds_count{service="dead"}`, 0) // failures have no latency
	code, text := harness.Run("top", "--once", "--admin", p.Admin)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, text)
	}
	if !strings.Contains(text, " failing ") || strings.Contains(text, " 0 µs") {
		t.Errorf("top shows\n%s", text)
	}
}

// TestTLSNotServed: a client of TLS gets an alert, and the log says so.
func TestTLSNotServed(t *testing.T) {
	p, egress, _ := startRefusing(t)
	nc := harness.Dial(t, "tcp", egress)
	if err := tls.Client(nc, &tls.Config{ServerName: "compute"}).Handshake(); err == nil || !strings.Contains(err.Error(), "remote error: tls: handshake failure") {
		t.Errorf("the client of TLS got %v", err)
	}
	if rest, err := bufio.NewReader(nc).ReadByte(); err != io.EOF {
		t.Errorf("after the alert come %#x, %v", rest, err)
	}
	checkOtherProtocol(t, p, "tls-not-served")
}

// checkOtherProtocol checks that one connection of another protocol was counted and logged.
func checkOtherProtocol(t *testing.T, p *harness.Process, code string) {
	t.Helper()
	p.AwaitMetric(fmt.Sprintf(`remora_errors_total{code=%q,listener="egress"}`, code), 1)
	p.AwaitLog(`msg="request refused" listener=egress code=` + code + ` reason="the client speaks .*" peer=127\.0\.0\.1:\d+ omitted=0`)
}
