package downstream

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
)

// TestAppendFailure: a response of the sidecar says the code of the failure, and when a later try may succeed. A client that
// speaks TLS gets an alert.
func TestAppendFailure(t *testing.T) {
	for _, c := range []struct {
		f        *fault.Failure
		date, id string
		want     string // the headers behind the code
	}{
		{fault.Overloaded, "now", "7", "Retry-After: 1\r\nDate: now\r\nX-Request-Id: 7\r\n"},
		{fault.Overloaded, "", "", "Retry-After: 1\r\n"},
		{fault.RateLimited, "now", "", "Retry-After: 1\r\nDate: now\r\n"},
		{fault.NoRoute, "", "7", "X-Request-Id: 7\r\n"},
		{fault.Deadline, "now", "", "Date: now\r\n"},
	} {
		var given [2][]byte
		for i, s := range []string{c.date, c.id} {
			if s != "" {
				given[i] = []byte(s)
			}
		}
		if res := FailureResponse(nil, c.f, given[0], given[1]); res.DeclaredLength != -1 {
			t.Errorf("%s: the length %d is declared", c.f.Code, res.DeclaredLength)
		}
		got := string(AppendFailure([]byte("before "), c.f, given[0], given[1], http1.ResponseFlags{Minor: 1}))
		want := fmt.Sprintf("before HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nX-Remora-Error: %s\r\n%sContent-Length: %d\r\n\r\n%s\n",
			c.f.Status, http.StatusText(c.f.Status), c.f.Code, c.want, len(c.f.Text)+1, c.f.Text)
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := string(AppendFailure(nil, fault.TLSNotServed, []byte("now"), nil, http1.ResponseFlags{})); got != "\x15\x03\x03\x00\x02\x02\x28" {
		t.Errorf("%q is no alert handshake_failure", got)
	}
}

// TestWithHost: only the failure of a request that no route took names the host.
func TestWithHost(t *testing.T) {
	ex, routed := &exchange.Exchange{}, &exchange.Exchange{}
	routed.Route = &exchange.Route{}
	for _, c := range []struct {
		ex    *exchange.Exchange
		f     *fault.Failure
		names bool
	}{{ex, fault.NoRoute, true}, {routed, fault.NoRoute, false}, {ex, fault.Deadline, false}, {routed, fault.Deadline, false}} {
		if got := WithHost(c.ex, c.f); (got != c.f) != c.names || got.Code != c.f.Code {
			t.Errorf("%s with the route %v: %q", c.f.Code, c.ex.Route, got.Text)
		}
	}
}

// TestShownHost: a failure shows the host that no route has, as far as it is short.
func TestShownHost(t *testing.T) {
	long := strings.Repeat("a", maxShownHost)
	for host, want := range map[string]string{
		"": ", which names no host", "a:80": `, whose host is "a:80"`, "\xff\"": `, whose host is "\xff\""`,
		long: `, whose host is "` + long + `"`, long + "b": `, whose host begins with "` + long + `"`,
	} {
		ex := &exchange.Exchange{}
		ex.Request.Authority = []byte(host)
		if got := WithHost(ex, fault.NoRoute).Text; got != fault.NoRoute.Text+want {
			t.Errorf("%q: %s", host, got)
		}
	}
}

// TestGRPCFailure: a gRPC caller gets a response of headers alone, from which it reads the code.
func TestGRPCFailure(t *testing.T) {
	late, unavailable := *fault.Deadline, *fault.Connect
	late.Text, unavailable.Text = "100% late", "100% late"
	for _, c := range []struct {
		id     string
		f      *fault.Failure
		status string
		code   protocol.GRPCCode
	}{{"", &late, "4", protocol.GRPCDeadlineExceeded}, {"7", &unavailable, "14", protocol.GRPCUnavailable}} {
		var given []byte
		if c.id != "" {
			given = []byte(c.id)
		}
		res := GRPCFailure(c.f, given)
		for name, want := range map[string]string{
			"content-type": "application/grpc", "grpc-status": c.status, "grpc-message": "100%25 late", "x-remora-error": c.f.Code, "x-request-id": c.id,
		} {
			if got := string(protocol.Find(res.Headers, name)); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if len(res.Headers) != 4+len(c.id) || res.Status != 200 || res.DeclaredLength != -1 || len(res.Body) > 0 {
			t.Errorf("%d, length %d, %s", res.Status, res.DeclaredLength, res.Headers)
		}
		if code, ok := protocol.GRPCStatus(&res); !ok || code != c.code || !protocol.IsGRPC(res.Headers) {
			t.Errorf("code %v, %v", code, ok)
		}
	}
}
