package stream

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/remora-proxy/remora/proxy/fair/share"
	"github.com/remora-proxy/remora/proxy/reactor"
)

// TestChainNotAllowed: the rules of the last sidecar refuse messages, long bodies and tunnels,
// over one link and over two, and the client gets their code.
func TestChainNotAllowed(t *testing.T) {
	app := handle(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	test := func(t *testing.T, c *chain) {
		for _, q := range []struct {
			method, path string
			size, want   int
		}{
			{"GET", "/v1/a", 0, 200},
			{"GET", "/v1/a?q=/../b", 0, 200},
			{"POST", "/v1/a", 10, 403},
			{"GET", "/v1/%2e%2e/admin", 0, 403},
			{"GET", "/v2/a", 0, 403},
			{"PUT", "/v1/a", 2 * longest, 200},
			{"PUT", "/v2/a", 2 * longest, 403},
			{"POST", "/v1/a", 2 * longest, 403},
		} {
			r, _ := http.NewRequest(q.method, "http://"+c.addr+q.path, bytes.NewReader(make([]byte, q.size)))
			resp, err := c.client.Do(r)
			if err != nil {
				t.Fatal(q, err)
			}
			resp.Body.Close()
			code := map[int]string{403: "not-allowed"}[q.want]
			wantError(t, fmt.Sprint(q), resp, q.want, code)
		}
		client := c.dial()
		_, _ = io.WriteString(client, "CONNECT bytes:80 HTTP/1.1\r\nHost: bytes:80\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, "CONNECT", resp, 403, "not-allowed")
		client.Close()
		last := c.nodes[len(c.nodes)-1]
		last.eventually("all refusals to be counted", func() error {
			if _, failures := last.counts.totals(); failures["not-allowed"] != 6 || len(failures) != 1 {
				return fmt.Errorf("%v", failures)
			}
			return nil
		})
	}
	rules := chainOptions{last: `allow: {rules: [{name: v1, method: [GET, PUT], path: [/v1/*]}]}`}
	linked(t, rules, test, app)
	rules.sidecars = 3
	linked(t, rules, test, app)
}

// TestNotAllowedTCP: a tcp connection meets only rules without a method and a path. Rules that
// are not enforced let it pass.
func TestNotAllowedTCP(t *testing.T) {
	for rules, passes := range map[string]bool{
		`{rules: [{method: [GET]}]}`:                       false,
		`{enforce: false, rules: [{method: [GET]}]}`:       true,
		`{rules: [{method: [GET]}, {service: [i]}, {}]}`:   true,
		`{rules: [{name: a, path: [/a]}, {path: [/b/*]}]}`: false,
	} {
		t.Run(rules, func(t *testing.T) {
			a := newApp(t)
			s := startSidecar(t, `
admin: {address: ""}
limits: {streams: 2}
listeners:
  - {name: in, address: "127.0.0.1:0", protocol: tcp, service: app}
  - {name: link, address: "127.0.0.1:0", protocol: link, service: app}
services: {app: {discover: static, endpoints: ["127.0.0.1:1"], protocol: http, connect_timeout: 15s, allow: `+rules+`}}`, reactor.Options{})
			s.update(endpoint(a.addr))
			s.open()
			if !passes {
				s.srv.places.Resize(2)
				for range 2 {
					place := s.srv.places.Take(share.Source{}, func() { t.Error("it took the place of another") })
					defer place.Release()
				}
				s.wantRefused()
				s.counts.wantFailure("not-allowed")
				s.counts.waitIdle()
				return
			}
			client, server := s.pair(a)
			client.Close()
			server.Close()
			s.counts.waitIdle()
		})
	}
}
