package routing

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// TestManyCookies: HTTP/2 clients send each pair of cookies as a field of its own (RFC 9113 section 8.2.3).
// They count as a single field, and reach an HTTP/1.1 application in a single field. The value of a pair chooses the
// endpoint.
func TestManyCookies(t *testing.T) {
	var pairs strings.Builder
	for i := range 150 { // limits.headers is 128
		fmt.Fprintf(&pairs, "c%d=%d; ", i, i)
	}
	cookies := pairs.String() + "session=s"

	addrs := harness.FreeAddrs(t, 6)
	var listeners, services, links, local strings.Builder
	for i, speaks := range []string{"http", "http2"} {
		balanced := fmt.Sprintf("{discover: static, endpoints: [%q, %q], protocol: %s, lb: {policy: consistent_hash, hash: {cookie: session}}, connect_timeout: 15s, timeout: 2m}",
			startCookieApp(t, "a", speaks == "http2"), startCookieApp(t, "b", speaks == "http2"), speaks)
		fmt.Fprintf(&services, "  %s: %s\n", speaks, balanced)
		fmt.Fprintf(&local, "  %s: %s\n", speaks, balanced)
		fmt.Fprintf(&services, "  linked-%s: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}\n", speaks, addrs[4+i])
		fmt.Fprintf(&links, "  - {name: %s, address: %q, protocol: link, service: %s}\n", speaks, addrs[4+i], speaks)
		fmt.Fprintf(&listeners, "  - {name: %s, address: %q, protocol: http, service: %s}\n", speaks, addrs[2*i], speaks)
		fmt.Fprintf(&listeners, "  - {name: linked-%s, address: %q, protocol: http, service: linked-%s}\n", speaks, addrs[2*i+1], speaks)
	}
	harness.Start(t, "loops: 1\nlisteners:\n"+links.String()+"services:\n"+local.String()).Ready()
	harness.Start(t, "loops: 1\nlisteners:\n"+listeners.String()+"services:\n"+services.String()).Ready()

	for i, to := range []string{"http", "linked http", "http2", "linked http2"} {
		chosen := ""
		for _, version := range []string{"1.1", "2"} {
			tr := harness.Transport(t, version)
			for _, content := range []string{"text/plain", "application/grpc"} {
				req := must.Request(t, "POST", "http://"+addrs[i], strings.NewReader("12345"))
				req.Header.Set("Cookie", cookies)
				req.Header.Set("Content-Type", content)
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Errorf("HTTP/%s to %s, %s: %v", version, to, content, err)
					continue
				}
				got, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				name, seen, _ := strings.Cut(string(got), " ")
				if chosen == "" {
					chosen = name
				}
				if resp.StatusCode != 200 || seen != cookies || name != chosen {
					t.Errorf("HTTP/%s to %s, %s: status %d of %q, not of %q, with %.40q", version, to, content, resp.StatusCode, name, chosen, seen)
				}
			}
		}
	}
}

// startCookieApp starts an application that responds with its name and the cookies that it has got.
func startCookieApp(t *testing.T, name string, http2 bool) string {
	t.Helper()
	l := must.Listen(t)
	srv := &http.Server{Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0)}
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, name, " ", strings.Join(r.Header["Cookie"], " AND "))
	})
	srv.Protocols.SetHTTP1(!http2)
	srv.Protocols.SetUnencryptedHTTP2(http2)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return l.Addr().String()
}
