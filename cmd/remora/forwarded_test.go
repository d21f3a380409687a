package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
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
		{"on loopback", `address: "127.0.0.1:0"`, nil, "9.9.9.9, 198.51.100.7,127.0.0.5, 127.0.0.1", "https"},
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
	addrs := freeAddrs(t, len(cases)+1)
	var listeners []string
	for i, c := range cases {
		_, port, _ := strings.Cut(addrs[i], ":")
		listeners = append(listeners, fmt.Sprintf("{name: l%d, protocol: http, service: app, %s}", i, strings.Replace(c.listener, `:0"`, ":"+port+`"`, 1)))
	}
	strict := addrs[len(cases)]
	p := startRemora(t, fmt.Sprintf(`
loops: 1
listeners: [%s, {name: strict, protocol: http, service: app, address: %q, forwarded: {underscores: reject}}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`,
		strings.Join(listeners, ", "), strict, srv.Listener.Addr()))
	p.ready()
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
			seen := receive(t, "the request", got)
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
