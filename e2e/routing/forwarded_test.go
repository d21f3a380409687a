package routing

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

// forgeries are the headers about earlier hops that a client sends in TestForwardedHeaders.
var forgeries = map[string]string{
	"Forwarded": "for=9.9.9.9", "X-Real-IP": "9.9.9.9", "X-Forwarded-Host": "evil", "X-Forwarded-Port": "1",
	"True-Client-IP": "9.9.9.9", "X_Forwarded_For": "9.9.9.9", "X_real-IP": "9.9.9.9", "X-User": "root", "Some_Name": "1",
	"X-Forwarded-For": "9.9.9.9, 198.51.100.7,127.0.0.5", "X-Forwarded-Proto": "https", "X_Remora_Hedge": "off", "Tracestate": "a=b",
}

// TestForwardedHeaders: what clients say about earlier hops reaches the application from those
// whom the listener trusts, and from no others.
func TestForwardedHeaders(t *testing.T) {
	got := make(chan http.Header, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Clone() }))
	defer srv.Close()
	cases := []struct {
		name, listener string
		removed        []string // of forgeries; each listener replaces X-Forwarded-For
		list, proto    string   // what X-Forwarded-For and -Proto say
	}{
		{"on loopback", `address: "127.0.0.1:0"`, []string{"X_Remora_Hedge"}, "9.9.9.9, 198.51.100.7,127.0.0.5, 127.0.0.1", "https"},
		{"elsewhere", `address: "0.0.0.0:0"`,
			[]string{"Forwarded", "X-Real-IP", "X-Forwarded-Host", "X-Forwarded-Port", "True-Client-IP", "X_Forwarded_For", "X_real-IP", "X_Remora_Hedge"},
			"127.0.0.1", "http"},
		{"a list of one's own", `address: "0.0.0.0:0", forwarded: {strip: [X-User, Tracestate]}`,
			[]string{"X-User", "Tracestate", "X_Forwarded_For", "X_Remora_Hedge"}, "127.0.0.1", "http"},
		{"nobody on loopback", `address: "127.0.0.1:0", forwarded: {trust: 0, underscores: drop}`,
			[]string{"Forwarded", "X-Real-IP", "X-Forwarded-Host", "X-Forwarded-Port", "True-Client-IP", "X_Forwarded_For", "X_real-IP", "X_Remora_Hedge", "Some_Name"},
			"127.0.0.1", "http"},
		{"two proxies", `address: "0.0.0.0:0", forwarded: {trust: 2}`,
			[]string{"X_Forwarded_For", "X_Remora_Hedge"}, "198.51.100.7,127.0.0.5, 127.0.0.1", "https"},
		{"proxies by address", `address: "0.0.0.0:0", forwarded: {trust: [127.0.0.0/8, 10.0.0.0/8]}`,
			[]string{"X_Forwarded_For", "X_Remora_Hedge"}, "198.51.100.7,127.0.0.5, 127.0.0.1", "https"},
		{"proxies elsewhere", `address: "0.0.0.0:0", forwarded: {trust: 10.0.0.0/8, strip: []}`,
			[]string{"X_Forwarded_For", "X_Remora_Hedge"}, "127.0.0.1", "http"},
	}
	addrs := harness.FreeAddrs(t, len(cases)+1)
	var listeners []string
	for i, c := range cases {
		_, port, _ := strings.Cut(addrs[i], ":")
		listeners = append(listeners, fmt.Sprintf("{name: l%d, protocol: http, service: app, %s}", i, strings.Replace(c.listener, `:0"`, ":"+port+`"`, 1)))
	}
	strict := addrs[len(cases)]
	p := harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [%s, {name: strict, protocol: http, service: app, address: %q, forwarded: {underscores: reject}}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`,
		strings.Join(listeners, ", "), strict, srv.Listener.Addr()))
	p.Ready()
	send := func(addr string) *http.Response {
		req, _ := http.NewRequest(http.MethodGet, "http://"+addr+"/", nil)
		for name, value := range forgeries {
			req.Header[name] = []string{value}
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return resp
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			send(addrs[i])
			seen := harness.Receive(t, "the request", got)
			for _, name := range slices.Sorted(maps.Keys(forgeries)) {
				want := forgeries[name]
				switch {
				case slices.Contains(c.removed, name):
					want = ""
				case name == "X-Forwarded-For":
					want = c.list
				case name == "X-Forwarded-Proto":
					want = c.proto
				}
				if got := strings.Join(seen[http.CanonicalHeaderKey(name)], " | "); got != want {
					t.Errorf("the application got %s: %q, want %q", name, got, want)
				}
			}
		})
	}
	if resp := send(strict); resp.StatusCode != 400 || resp.Header.Get("X-Remora-Error") != "header-underscore" {
		t.Errorf("an underscore got %d %v", resp.StatusCode, resp.Header)
	}
}

// TestForgedTrailers: what a client may not say in headers reaches the application in no trailer, in a message
// and in a stream, through one sidecar and two. The client gets no header of the sidecar's from an
// application.
func TestForgedTrailers(t *testing.T) {
	forged := []string{
		"X-Remora-Class", "X_Remora_Class", "x-Remora_attempt", "X-Forwarded-For", "x_forwarded_for", "X_Forwarded_Proto", "X-Request-Id",
		"x_real_ip", "X_real-Ip", "True_Client_Ip",
	}
	app := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		maps.DeleteFunc(r.Trailer, func(_ string, values []string) bool { return len(values) == 0 }) // only announced
		w.Header().Set("X-Got", strings.Join(slices.Sorted(maps.Keys(r.Trailer)), " "))
		w.Header().Set("X_Remora_Error", "forged")
		w.(http.Flusher).Flush()
		w.Header().Set(http.TrailerPrefix+"X-Remora-Error", "forged")
		w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
	}))
	app.Config.Protocols = harness.Protocols("1.1", "2")
	app.Start()
	defer app.Close()
	addrs := harness.FreeAddrs(t, 3)
	harness.Start(t, fmt.Sprintf(`
limits: {message: 64KiB}
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], connect_timeout: 15s, timeout: 2m}}`, addrs[2], app.Listener.Addr())).Ready()
	harness.Start(t, fmt.Sprintf(`
limits: {message: 64KiB}
listeners:
- {name: inside, address: %q, protocol: http}
- {name: outside, address: %q, protocol: http, forwarded: {trust: 0}}
routes: [{match: {host: app.test}, service: app}, {match: {host: h2.test}, service: h2}, {service: linked}]
services:
  app: {discover: static, endpoints: [%q], connect_timeout: 15s, timeout: 2m}
  h2: {discover: static, endpoints: [%q], protocol: http2, connect_timeout: 15s, timeout: 2m}
  linked: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}`,
		addrs[0], addrs[1], app.Listener.Addr(), app.Listener.Addr(), addrs[2])).Ready()
	for i, want := range []string{"True_client_ip X-Sum X_forwarded_for X_forwarded_proto X_real-Ip X_real_ip", "X-Sum"} {
		for _, version := range []string{"1.1", "2"} {
			tr := harness.Transport(t, version)
			for _, host := range []string{"app.test", "h2.test", "linked.test"} {
				for _, size := range []int{1, 200_000} {
					req, _ := http.NewRequest(http.MethodPost, "http://"+addrs[i], io.MultiReader(strings.NewReader(strings.Repeat("x", size)))) // chunked
					req.Host, req.Trailer = host, http.Header{"X-Sum": {"1"}}
					for _, name := range forged {
						req.Trailer[name] = []string{"9.9.9.9"}
					}
					resp, err := tr.RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					name := fmt.Sprintf("listener %d, HTTP/%s to %s, body %d", i, version, host, size)
					if got := resp.Header.Get("X-Got"); got != want {
						t.Errorf("%s: the application got %q, want %q", name, got, want)
					}
					if got := fmt.Sprint(slices.Sorted(maps.Keys(resp.Trailer))); got != "[X-Sum]" || resp.Header["X_remora_error"] != nil {
						t.Errorf("%s: the client got trailers %s, headers %q", name, got, resp.Header)
					}
				}
			}
		}
	}
}
