package peers

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

// messageLimit is limits.message by default.
const messageLimit = 4 << 20

// socketApp returns the address of an application with three resources: /echo returns
// the body, in chunks and with a trailer where the query asks for it, /request
// describes the request, and /size/N returns N bytes.
func socketApp(t *testing.T) string {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.Header().Set("X-Nonce", r.Header.Get("X-Nonce"))
		path, size, _ := strings.Cut(r.URL.Path, "/size/")
		switch path {
		case "/echo":
			if r.URL.RawQuery != "" {
				_ = http.NewResponseController(w).Flush()
			}
			_, _ = w.Write(body)
			if r.URL.RawQuery == "trailers" {
				sum := sha256.Sum256(body)
				w.Header().Set(http.TrailerPrefix+"X-Sha256", hex.EncodeToString(sum[:]))
			}
		case "/request":
			_ = json.NewEncoder(w).Encode(harness.ReceivedRequest{Target: r.RequestURI, Host: r.Host, Trailers: r.Trailer, Body: len(body)})
		default:
			n, _ := strconv.Atoi(size)
			_, _ = w.Write(bytes.Repeat([]byte("x"), n))
		}
	}))
	t.Cleanup(app.Close)
	return app.Listener.Addr().String()
}

func randomBody(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return string(b)
}

// socketCases are what only a plain socket sends: old versions, pipelines, trailers and
// odd splits.
var socketCases = []struct {
	name string
	run  func(s *harness.PlainSocket)
}{
	{"HTTP/1.0", func(s *harness.PlainSocket) {
		s.Say("POST /echo HTTP/1.0\nContent-Length: 5\n\nhello")
		s.Response(200, "hello")
		s.Ends()
	}},
	{"HTTP/1.0 gets no chunks", func(s *harness.PlainSocket) {
		body := strings.Repeat("z", 30_000)
		s.Say("POST /echo?chunked HTTP/1.0\nHost: compute\nContent-Length: 30000\n\n" + body)
		if r := s.Response(200, body); len(r.TransferEncoding) > 0 {
			s.T.Error(r.TransferEncoding)
		}
	}},
	{"HTTP/1.0 keep-alive", func(s *harness.PlainSocket) {
		for _, body := range []string{"0", "1", "2"} {
			s.Say("POST /echo HTTP/1.0\nHost: compute\nConnection: keep-alive\nContent-Length: 1\n\n" + body)
			s.Response(200, body)
		}
	}},
	{"pipeline", func(s *harness.PlainSocket) {
		var bodies []string
		var all []byte
		for i, size := range []int{0, 1, 300, 20_000, 300, 0, 20_000, 1, 1, 300, 20_000, 0} {
			bodies = append(bodies, randomBody(size))
			all = fmt.Appendf(all, "POST /echo HTTP/1.1\r\nHost: c\r\nX-Nonce: n%d\r\nContent-Length: %d\r\n\r\n%s", i, size, bodies[i])
		}
		s.Say("", all...)
		for i, body := range bodies {
			s.Numbered(i, body)
		}
	}},
	{"pipeline byte by byte", func(s *harness.PlainSocket) {
		var all string
		for i := range 8 {
			all += fmt.Sprintf("POST /echo HTTP/1.1\nHost: c\nX-Nonce: n%d\nTransfer-Encoding: chunked\n\n3\nabc\n0\n\n", i)
		}
		for _, b := range []byte(strings.ReplaceAll(all, "\n", "\r\n")) {
			s.Say("", b)
		}
		for i := range 8 {
			s.Numbered(i, "abc")
		}
	}},
	{"pipeline that ends with close", func(s *harness.PlainSocket) {
		s.Say("GET /size/3 HTTP/1.1\nHost: c\n\nGET /size/4 HTTP/1.1\nHost: c\nConnection: close\n\nGET /size/5 HTTP/1.1\nHost: c\n\n")
		s.Response(200, "xxx")
		s.Response(200, "xxxx")
		s.Ends()
	}},
	{"trailers up", func(s *harness.PlainSocket) {
		s.Say("POST /request HTTP/1.1\nHost: c\nTransfer-Encoding: chunked\nTrailer: X-Sum\n\n")
		s.Say("4\nabcd\n0\nX-Sum: 17\nX-Other: o\n\n")
		got := s.Request()
		if got.Body != 4 || len(got.Trailers) != 2 || got.Trailers.Get("X-Sum") != "17" || got.Trailers.Get("X-Other") != "o" {
			s.T.Errorf("%+v", got)
		}
	}},
	{"trailers down", func(s *harness.PlainSocket) {
		body := randomBody(50_000)
		s.Say("POST /echo?trailers HTTP/1.1\nHost: c\nTE: trailers\nContent-Length: 50000\n\n", []byte(body)...)
		r := s.Response(200, body)
		if sum := sha256.Sum256([]byte(body)); len(r.Trailer) != 1 || r.Trailer.Get("X-Sha256") != hex.EncodeToString(sum[:]) {
			s.T.Errorf("trailers %v", r.Trailer)
		}
	}},
	{"Expect", func(s *harness.PlainSocket) {
		body := randomBody(messageLimit)
		s.Say(fmt.Sprintf("POST /echo HTTP/1.1\nHost: c\nExpect: 100-continue\nContent-Length: %d\n\n", len(body)))
		s.Response(100, "")
		s.Say("", []byte(body)...)
		s.Response(200, body)
	}},
	{"Expect past the limit", func(s *harness.PlainSocket) {
		body := randomBody(messageLimit + 1)
		s.Say(fmt.Sprintf("POST /echo HTTP/1.1\nHost: c\nExpect: 100-continue\nContent-Length: %d\n\n", len(body)))
		s.Response(100, "")
		s.Say("", []byte(body)...)
		s.Response(200, body)
		s.Ends()
	}},
	{"absolute-form", func(s *harness.PlainSocket) {
		s.Say("GET http://compute.example:8080/request?q HTTP/1.1\nHost: other\n\n")
		if got := s.Request(); got.Target != "/request?q" || got.Host != "compute.example:8080" {
			s.T.Errorf("%+v", got)
		}
	}},
	{"half-closed", func(s *harness.PlainSocket) {
		s.Say("GET /size/10 HTTP/1.1\nHost: c\n\n")
		s.Response(200, "xxxxxxxxxx")
		_ = s.CloseWrite()
		s.Ends()
	}},
}

// TestPlainSocket sends by plain sockets through two sidecars. What is ambiguous is
// refused, never guessed, and its connection is closed.
func TestPlainSocket(t *testing.T) {
	ingress := harness.FreeAddrs(t, 1)[0]
	harness.Start(t, fmt.Sprintf(`
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}}`, ingress, socketApp(t))).Ready()
	egress := harness.FreeAddrs(t, 1)[0]
	harness.Start(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: compute}]
services: {compute: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s}}`, egress, ingress)).Ready()
	for _, c := range socketCases {
		t.Run(c.name, func(t *testing.T) {
			s := harness.DialPlain(t, egress)
			s.T = t
			c.run(s)
		})
	}
	code := regexp.MustCompile(`^[a-z0-9-]+$`)
	for _, c := range []struct {
		text   string
		status int
	}{
		{"GET / HTTP/1.1\n\n", 400},
		{"GET / HTTP/1.1\nHost: a\nHost: b\n\n", 400},
		{"POST / HTTP/1.1\nHost: c\nContent-Length: 1\nContent-Length: 2\n\nx", 400},
		{"POST / HTTP/1.1\nHost: c\nContent-Length: 3\nTransfer-Encoding: chunked\n\n0\n\n", 400},
		{"POST / HTTP/1.1\nHost: c\nTransfer-Encoding: gzip\n\n", 501},
		{"GET / HTTP/2.0\nHost: c\n\n", 505},
		{"CONNECT c:443 HTTP/1.1\nHost: c:443\nContent-Length: 1\n\nx", 400},
	} {
		t.Run(c.text, func(t *testing.T) {
			s := harness.DialPlain(t, egress)
			s.Say(c.text)
			if got := s.Response(c.status, harness.AnyBody).Header.Get("X-Remora-Error"); !code.MatchString(got) {
				t.Errorf("X-Remora-Error %q", got)
			}
			s.Ends()
		})
	}
}
