package health

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// TestNewConnections: each check is on a connection of its own, and says who asks.
func TestNewConnections(t *testing.T) {
	from := make(chan string, 2)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if agent := r.UserAgent(); agent != "remora-check" {
			t.Errorf("asked by %q", agent)
		}
		from <- r.RemoteAddr
	}))
	defer srv.Close()
	a := newAsker(&Check{Path: "/", Timeout: timeout}, nil)
	for range 2 {
		if err := a.ask(t.Context(), srv.Listener.Addr().String(), ""); err != nil {
			t.Fatal(err)
		}
	}
	if first, second := <-from, <-from; first == second {
		t.Errorf("both checks are from %s", first)
	}
}

// TestBodyIsRead: a check reads the body of a response, so that the application can send it.
func TestBodyIsRead(t *testing.T) {
	l := must.Listen(t)
	defer l.Close()
	end := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			end <- err
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 4096))
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", maxBody, strings.Repeat("x", maxBody))
		_, err = io.Copy(io.Discard, c)
		end <- err
	}()
	if err := newAsker(&Check{Path: "/", Timeout: timeout}, nil).ask(t.Context(), l.Addr().String(), ""); err != nil {
		t.Error(err)
	}
	if err := receive(t, "the end of the connection", end); err != nil {
		t.Errorf("the application has %v", err)
	}
}

// TestTLS: a server must prove the name of the configuration, or else the host of its address. The configuration stays as it is.
func TestTLS(t *testing.T) {
	hosts := make(chan string, 1)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hosts <- r.Host }))
	defer srv.Close()
	roots := srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	addr := srv.Listener.Addr().String()
	for _, c := range []struct {
		name, grpc string
		want       string // in the error; "" means no error
		host       string // that the server is asked for
	}{
		{"", "", "", addr},
		{"example.com", "", "", "example.com"},
		{"other.test", "", "not other.test", ""},
		{"example.com", "s", "tls: no application protocol", ""},
	} {
		config := &tls.Config{RootCAs: roots, ServerName: c.name}
		check := Check{Path: "/", GRPC: c.grpc, Timeout: timeout, TLS: func(string, string) *tls.Config { return config }}
		err := newAsker(&check, nil).ask(t.Context(), addr, "")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("name %q, gRPC %q: %v, want %q", c.name, c.grpc, err, c.want)
		} else if err == nil {
			if host := receive(t, "the host", hosts); host != c.host {
				t.Errorf("name %q: asked for %s", c.name, host)
			}
		}
		if config.ServerName != c.name || config.NextProtos != nil {
			t.Errorf("the configuration has the name %q and the protocols %v", config.ServerName, config.NextProtos)
		}
	}
}

// TestNoTLS: a check of a server that does not speak TLS closes the connection.
func TestNoTLS(t *testing.T) {
	l := must.Listen(t)
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			fmt.Fprint(c, "220 mail.test ESMTP\r\n")
			accepted <- c
		}
	}()
	check := Check{Path: "/", Timeout: timeout, TLS: func(string, string) *tls.Config { return &tls.Config{InsecureSkipVerify: true} }}
	if err := newAsker(&check, nil).ask(t.Context(), l.Addr().String(), ""); err == nil || !strings.Contains(err.Error(), "tls") {
		t.Error(err)
	}
	c := receive(t, "the connection", accepted)
	defer c.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, c)
	}()
	receive(t, "the end of the connection", ended)
}
