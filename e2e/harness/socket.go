package harness

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
)

// Dial connects to addr. The connection has Patience for all that is sent on it, and closes when the test ends.
func Dial(t *testing.T, network, addr string) net.Conn {
	t.Helper()
	nc := must.Dial(t, network, addr)
	_ = nc.SetDeadline(time.Now().Add(Patience))
	return nc
}

// DialPlain is Dial for a PlainSocket.
func DialPlain(t *testing.T, addr string) *PlainSocket {
	t.Helper()
	nc := Dial(t, "tcp", addr)
	return &PlainSocket{T: t, TCPConn: nc.(*net.TCPConn), In: bufio.NewReader(nc)}
}

// ConnectTo opens a tunnel by a CONNECT to a proxy, and returns the status of the response.
func ConnectTo(t *testing.T, proxy, authority, more string) (s *PlainSocket, status int) {
	t.Helper()
	s = DialPlain(t, proxy)
	s.Say("CONNECT " + authority + " HTTP/1.1\nHost: " + authority + "\n\n" + more)
	resp, err := http.ReadResponse(s.In, &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatal(err)
	}
	return s, resp.StatusCode
}

// ReceivedRequest is what an application received. It responds with that to /request.
type ReceivedRequest struct {
	Target, Host string
	Trailers     http.Header
	Body         int
}

// PlainSocket is a client's connection that sends exactly what a test says.
type PlainSocket struct {
	T *testing.T
	*net.TCPConn
	In *bufio.Reader
}

// Say sends text, of which each line ends with CR LF, and then body.
func (s *PlainSocket) Say(text string, body ...byte) {
	s.T.Helper()
	if _, err := s.Write(append([]byte(strings.ReplaceAll(text, "\n", "\r\n")), body...)); err != nil {
		s.T.Fatal(err)
	}
}

// Response reads a response with its body. The body ends with the connection if the
// response says so.
func (s *PlainSocket) Response(status int, body string) *http.Response {
	s.T.Helper()
	r, err := http.ReadResponse(s.In, nil)
	if err != nil {
		s.T.Fatal(err)
	}
	b, err := io.ReadAll(r.Body)
	if err != nil || r.Proto != "HTTP/1.1" || r.StatusCode != status || body != AnyBody && string(b) != body {
		s.T.Fatalf("%s %s, %d bytes %.100q, %v", r.Proto, r.Status, len(b), b, err)
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	return r
}

// AnyBody is a body that is not compared.
const AnyBody = "any"

// Request reads a response whose body is a ReceivedRequest.
func (s *PlainSocket) Request() (got ReceivedRequest) {
	s.T.Helper()
	if err := json.NewDecoder(s.Response(200, AnyBody).Body).Decode(&got); err != nil {
		s.T.Fatal(err)
	}
	return got
}

// Ends fails if anything but the end of the connection follows.
func (s *PlainSocket) Ends() {
	s.T.Helper()
	if b, err := io.ReadAll(s.In); len(b) > 0 || err != nil {
		s.T.Fatalf("%.100q follows, %v", b, err)
	}
}

// Numbered reads the response to request i of a pipeline, which says so in X-Nonce.
func (s *PlainSocket) Numbered(i int, body string) {
	s.T.Helper()
	if got, want := s.Response(200, body).Header.Get("X-Nonce"), fmt.Sprintf("n%d", i); got != want {
		s.T.Errorf("X-Nonce %q, want %q", got, want)
	}
}

// StatusAndBody describes a response: its status, and its body if the status is 200.
func StatusAndBody(status int, body io.Reader) string {
	text, _ := io.ReadAll(body)
	if status == 200 {
		return "200 " + string(text)
	}
	return fmt.Sprint(status)
}
