package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// messageLimit is limits.message by default.
const messageLimit = 4 << 20

// receivedRequest is what the application received.
type receivedRequest struct {
	Target, Host string
	Trailers     http.Header
	Body         int
}

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
			_ = json.NewEncoder(w).Encode(receivedRequest{r.RequestURI, r.Host, r.Trailer, len(body)})
		default:
			n, _ := strconv.Atoi(size)
			_, _ = w.Write(bytes.Repeat([]byte("x"), n))
		}
	}))
	t.Cleanup(app.Close)
	return app.Listener.Addr().String()
}

// plainSocket is a client's connection that sends exactly what a test says.
type plainSocket struct {
	t *testing.T
	*net.TCPConn
	in *bufio.Reader
}

// say sends text, of which each line ends with CR LF, and then body.
func (s *plainSocket) say(text string, body ...byte) {
	s.t.Helper()
	if _, err := s.Write(append([]byte(strings.ReplaceAll(text, "\n", "\r\n")), body...)); err != nil {
		s.t.Fatal(err)
	}
}

// response reads a response with its body. The body ends with the connection if the
// response says so.
func (s *plainSocket) response(status int, body string) *http.Response {
	s.t.Helper()
	r, err := http.ReadResponse(s.in, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	b, err := io.ReadAll(r.Body)
	if err != nil || r.Proto != "HTTP/1.1" || r.StatusCode != status || body != anyBody && string(b) != body {
		s.t.Fatalf("%s %s, %d bytes %.100q, %v", r.Proto, r.Status, len(b), b, err)
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	return r
}

// anyBody is a body that is not compared.
const anyBody = "any"

// request reads the response to /request.
func (s *plainSocket) request() (got receivedRequest) {
	s.t.Helper()
	if err := json.NewDecoder(s.response(200, anyBody).Body).Decode(&got); err != nil {
		s.t.Fatal(err)
	}
	return got
}

// ends fails if anything but the end of the connection follows.
func (s *plainSocket) ends() {
	s.t.Helper()
	if b, err := io.ReadAll(s.in); len(b) > 0 || err != nil {
		s.t.Fatalf("%.100q follows, %v", b, err)
	}
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
	run  func(s *plainSocket)
}{
	{"HTTP/1.0", func(s *plainSocket) {
		s.say("POST /echo HTTP/1.0\nContent-Length: 5\n\nhello")
		s.response(200, "hello")
		s.ends()
	}},
	{"HTTP/1.0 gets no chunks", func(s *plainSocket) {
		body := strings.Repeat("z", 30_000)
		s.say("POST /echo?chunked HTTP/1.0\nHost: compute\nContent-Length: 30000\n\n" + body)
		if r := s.response(200, body); len(r.TransferEncoding) > 0 {
			s.t.Error(r.TransferEncoding)
		}
	}},
	{"HTTP/1.0 keep-alive", func(s *plainSocket) {
		for _, body := range []string{"0", "1", "2"} {
			s.say("POST /echo HTTP/1.0\nHost: compute\nConnection: keep-alive\nContent-Length: 1\n\n" + body)
			s.response(200, body)
		}
	}},
	{"pipeline", func(s *plainSocket) {
		var bodies []string
		var all []byte
		for i, size := range []int{0, 1, 300, 20_000, 300, 0, 20_000, 1, 1, 300, 20_000, 0} {
			bodies = append(bodies, randomBody(size))
			all = fmt.Appendf(all, "POST /echo HTTP/1.1\r\nHost: c\r\nX-Nonce: n%d\r\nContent-Length: %d\r\n\r\n%s", i, size, bodies[i])
		}
		s.say("", all...)
		for i, body := range bodies {
			s.numbered(i, body)
		}
	}},
	{"pipeline byte by byte", func(s *plainSocket) {
		var all string
		for i := range 8 {
			all += fmt.Sprintf("POST /echo HTTP/1.1\nHost: c\nX-Nonce: n%d\nTransfer-Encoding: chunked\n\n3\nabc\n0\n\n", i)
		}
		for _, b := range []byte(strings.ReplaceAll(all, "\n", "\r\n")) {
			s.say("", b)
		}
		for i := range 8 {
			s.numbered(i, "abc")
		}
	}},
	{"pipeline that ends with close", func(s *plainSocket) {
		s.say("GET /size/3 HTTP/1.1\nHost: c\n\nGET /size/4 HTTP/1.1\nHost: c\nConnection: close\n\nGET /size/5 HTTP/1.1\nHost: c\n\n")
		s.response(200, "xxx")
		s.response(200, "xxxx")
		s.ends()
	}},
	{"trailers up", func(s *plainSocket) {
		s.say("POST /request HTTP/1.1\nHost: c\nTransfer-Encoding: chunked\nTrailer: X-Sum\n\n")
		s.say("4\nabcd\n0\nX-Sum: 17\nX-Other: o\n\n")
		got := s.request()
		if got.Body != 4 || len(got.Trailers) != 2 || got.Trailers.Get("X-Sum") != "17" || got.Trailers.Get("X-Other") != "o" {
			s.t.Errorf("%+v", got)
		}
	}},
	{"trailers down", func(s *plainSocket) {
		body := randomBody(50_000)
		s.say("POST /echo?trailers HTTP/1.1\nHost: c\nTE: trailers\nContent-Length: 50000\n\n", []byte(body)...)
		r := s.response(200, body)
		if sum := sha256.Sum256([]byte(body)); len(r.Trailer) != 1 || r.Trailer.Get("X-Sha256") != hex.EncodeToString(sum[:]) {
			s.t.Errorf("trailers %v", r.Trailer)
		}
	}},
	{"Expect", func(s *plainSocket) {
		body := randomBody(messageLimit)
		s.say(fmt.Sprintf("POST /echo HTTP/1.1\nHost: c\nExpect: 100-continue\nContent-Length: %d\n\n", len(body)))
		s.response(100, "")
		s.say("", []byte(body)...)
		s.response(200, body)
	}},
	{"Expect past the limit", func(s *plainSocket) {
		body := randomBody(messageLimit + 1)
		s.say(fmt.Sprintf("POST /echo HTTP/1.1\nHost: c\nExpect: 100-continue\nContent-Length: %d\n\n", len(body)))
		s.response(100, "")
		s.say("", []byte(body)...)
		s.response(200, body)
		s.ends()
	}},
	{"absolute-form", func(s *plainSocket) {
		s.say("GET http://compute.example:8080/request?q HTTP/1.1\nHost: other\n\n")
		if got := s.request(); got.Target != "/request?q" || got.Host != "compute.example:8080" {
			s.t.Errorf("%+v", got)
		}
	}},
	{"half-closed", func(s *plainSocket) {
		s.say("GET /size/10 HTTP/1.1\nHost: c\n\n")
		s.response(200, "xxxxxxxxxx")
		_ = s.CloseWrite()
		s.ends()
	}},
}

// numbered reads the response to request i of a pipeline.
func (s *plainSocket) numbered(i int, body string) {
	s.t.Helper()
	if got, want := s.response(200, body).Header.Get("X-Nonce"), fmt.Sprintf("n%d", i); got != want {
		s.t.Errorf("X-Nonce %q, want %q", got, want)
	}
}

// TestPlainSocket sends by plain sockets through two sidecars. What is ambiguous is
// refused, never guessed, and its connection is closed.
func TestPlainSocket(t *testing.T) {
	ingress := freeAddrs(t, 1)[0]
	startRemora(t, fmt.Sprintf(`
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}}`, ingress, socketApp(t))).ready()
	egress := freeAddrs(t, 1)[0]
	startRemora(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: compute}]
services: {compute: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s}}`, egress, ingress)).ready()
	dial := func(t *testing.T) *plainSocket {
		t.Helper()
		nc, err := net.Dial("tcp", egress)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(patience))
		return &plainSocket{t, nc.(*net.TCPConn), bufio.NewReader(nc)}
	}
	for _, c := range socketCases {
		t.Run(c.name, func(t *testing.T) {
			s := dial(t)
			s.t = t
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
			s := dial(t)
			s.say(c.text)
			if got := s.response(c.status, anyBody).Header.Get("X-Remora-Error"); !code.MatchString(got) {
				t.Errorf("X-Remora-Error %q", got)
			}
			s.ends()
		})
	}
}
