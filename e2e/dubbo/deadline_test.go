package dubbo

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/protocol/dubbo"
)

// TestDeadlineReachesDubbo: the timeout of a Dubbo consumer's call, and that of an HTTP request
// converted to a call, reach the provider shorter.
func TestDeadlineReachesDubbo(t *testing.T) {
	const timeout = 100_000 // milliseconds
	r := newResponder(t)
	_, egress, calls := dubboMesh(t, r)
	attached := regexp.MustCompile(`(?:timeout|_TO)(?:":"|[\x00-\x1f])([0-9]+)`)
	check := func(what string, n int) {
		t.Helper()
		body := harness.Receive(t, "the call", r.bodies)
		found := attached.FindAllSubmatch(body, -1)
		if len(found) != n {
			t.Errorf("%s: the provider got %q", what, body)
		}
		for _, m := range found {
			if left, err := strconv.Atoi(string(m[1])); err != nil || left <= 0 || left >= timeout {
				t.Errorf("%s: the provider has %s of %d ms", what, m[1], timeout)
			}
		}
	}
	body := harness.HessianCall("echo", "x")
	body = append(body[:len(body)-1], "\x07timeout\x06100000\x03_TO\x06100000Z"...)
	c := dialDubbo(t, calls)
	must.Write(t, c, dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, TwoWay: true, Serialization: dubbo.Hessian2, ID: 1, Body: body}))
	check("a consumer's call", 2)
	for _, service := range []string{"Demo", "Straight"} {
		req := must.Request(t, http.MethodPost, egress+"/com.acme."+service+"/echo", strings.NewReader(`{"types":["java.lang.String"],"args":["x"]}`))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Remora-Timeout-Ms", strconv.Itoa(timeout))
		must.Do(t, http.DefaultClient, req)
		check(service, 2)
	}
}
