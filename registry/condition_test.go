package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
	"github.com/remora-proxy/remora/proxy/certs"
)

// TestJoin: a source of several parts is up if all are. It is up since the last part came back, and down since the first
// part was lost.
func TestJoin(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	bad := errors.New("bad")
	for _, c := range []struct {
		name  string
		parts []Condition
		want  Condition
	}{
		{"no part", nil, Condition{Up: true, Since: at(6)}},
		{"all are up", []Condition{{Up: true, Since: at(2), Services: 1}, {Up: true, Since: at(3)}, {Up: true, Since: at(1), Services: 2}}, Condition{Up: true, Since: at(3), Services: 3}},
		{"some are down", []Condition{
			{Up: true, Since: at(9)}, {Since: at(5), Code: CodeDenied, Err: bad, Kept: 1, Unusable: 3},
			{Since: at(4), Code: CodeFailed, Err: errors.New("other"), Kept: 2, Doubted: 1}, {Up: true, Since: at(1), Doubted: 4, Unusable: 2},
		}, Condition{Since: at(4), Code: CodeDenied, Err: bad, Kept: 3, Doubted: 5, Unusable: 5}},
		{"one has not responded yet", []Condition{{Since: at(7)}, {Up: true, Since: at(8)}}, Condition{Since: at(7)}},
	} {
		if got := Join(at(6), c.parts...); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestContact: the state changes with the first failure and the first success. Each code is news once in an outage,
// whatever the text.
func TestContact(t *testing.T) {
	c := NewContact()
	if now := c.Condition(); now.Up || now.Code != "" || now.Since.IsZero() {
		t.Errorf("before the first response: %+v", now)
	}
	if before := c.Succeed(); before.Up || before.Err != nil {
		t.Errorf("before the first response: %+v", before)
	}
	up := c.Condition()
	if c.Succeed(); c.Condition() != up || !up.Up {
		t.Errorf("%+v, and after another response %+v", up, c.Condition())
	}
	for outage := range 2 {
		news := ""
		var began time.Time
		for i, code := range []string{CodeUnreachable, CodeUnreachable, CodeDenied, CodeUnreachable, CodeDenied} {
			err := fmt.Errorf("failure %d", i)
			if c.Fail(code, err) {
				news += code + " "
			}
			now := c.Condition()
			if i == 0 {
				began = now.Since
			}
			if now.Up || now.Code != code || now.Err != err || now.Since != began {
				t.Errorf("outage %d: %+v after %s", outage, now, code)
			}
		}
		if news != "unreachable denied " {
			t.Errorf("outage %d: news are %q", outage, news)
		}
		if before := c.Succeed(); before.Code != CodeDenied || !c.Condition().Up || c.Condition().Code != "" {
			t.Errorf("outage %d: %+v, and before %+v", outage, c.Condition(), before)
		}
	}
}

// TestCodeOf: errors of the system, of TLS and of HTTP clients have codes.
func TestCodeOf(t *testing.T) {
	read := func(path string) error {
		_, err := os.ReadFile(path)
		return err
	}
	file := filepath.Join(t.TempDir(), "file")
	must.WriteFile(t, file, "")
	ca, other := testcerts.New(t), testcerts.New(t)
	_, unlistened := net.Dial("tcp", closedPort(t))
	_, unknownName := (&net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, unlistened
	}}).LookupHost(t.Context(), "name.test")
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"no file", read(file + "2"), CodeMissing},
		{"a folder as a file", read(t.TempDir()), "other"},
		{"a file as a folder", read(file + "/a"), "other"},
		{"a bad disk", &fs.PathError{Op: "read", Path: file, Err: syscall.EIO}, "other"},
		{"too many files", &fs.PathError{Op: "open", Path: file, Err: syscall.EMFILE}, "other"},
		{"no permission", &fs.PathError{Op: "open", Path: file, Err: syscall.EACCES}, CodeDenied},

		{"nobody listens", unlistened, CodeUnreachable},
		{"no name server", unknownName, CodeUnreachable},
		{"no network", fmt.Errorf("dial: %w", syscall.ENETUNREACH), CodeUnreachable},
		{"a lost connection", fmt.Errorf("read: %w", io.EOF), CodeUnreachable},
		{"no response in time", fmt.Errorf("get: %w", context.DeadlineExceeded), CodeUnreachable},
		{"nobody listens for HTTP", get(t, closedPort(t), &tls.Config{}), CodeUnreachable},
		{"the server ends the handshake", get(t, serve(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }), &tls.Config{}), CodeUnreachable},

		{"the server has an unknown authority", get(t, serveTLS(t, ca, nil), &tls.Config{RootCAs: pool(other)}), CodeDenied},
		{"the server has another name", get(t, serveTLS(t, ca, nil), &tls.Config{RootCAs: pool(ca), ServerName: "other.test"}), CodeDenied},
		{"the server wants a certificate", get(t, serveTLS(t, ca, ca), &tls.Config{RootCAs: pool(ca)}), CodeDenied},
		{"the server wants another certificate, by TLS 1.2", get(t, serveTLS(t, ca, ca),
			&tls.Config{RootCAs: pool(ca), MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair(t, other)}}), CodeDenied},
		{"package certs refuses the server", &url.Error{Op: "Get", Err: &certs.VerifyError{Code: certs.CodeWrongPeer, Err: errors.New("x")}}, CodeDenied},
		{"a name that the certificate lacks", fmt.Errorf("tls: %w", x509.HostnameError{Certificate: &x509.Certificate{}, Host: "x"}), CodeDenied},
		{"an unknown authority", fmt.Errorf("tls: %w", x509.UnknownAuthorityError{}), CodeDenied},
		{"a certificate that is too old", fmt.Errorf("tls: %w", x509.CertificateInvalidError{Reason: x509.Expired}), CodeDenied},
		{"an alert", fmt.Errorf("tls: %w", tls.AlertError(42)), CodeDenied},
		{"an alert of the server", &net.OpError{Op: "remote error", Err: errors.New("x")}, CodeDenied},
		{"the server has no TLS", get(t, serve(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }), &tls.Config{}), "other"},
		{"the server has another protocol", get(t, serve(t, func(c net.Conn) { _, _ = io.WriteString(c, "220 mail.test\r\n") }), &tls.Config{}), "other"},
		{"something else", errors.New("x"), "other"},
	} {
		if got := CodeOf(c.err, "other"); c.err == nil || got != c.want {
			t.Errorf("%s: %v: %s, want %s", c.name, c.err, got, c.want)
		}
	}
}

// closedPort returns an address on which nobody listens.
func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// serve has each connection served, and what the client sends after that read, so that it gets all bytes of the server.
func serve(t *testing.T, with func(c net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var tasks sync.WaitGroup
	t.Cleanup(tasks.Wait)
	t.Cleanup(func() { _ = l.Close() })
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() {
				defer c.Close()
				with(c)
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, c)
			})
		}
	})
	return l.Addr().String()
}

// serveTLS serves with a certificate of ca for 127.0.0.1. It wants one of clients, unless that is nil.
func serveTLS(t *testing.T, ca, clients *testcerts.CA) string {
	cfg := &tls.Config{Certificates: []tls.Certificate{pair(t, ca)}}
	if clients != nil {
		cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, pool(clients)
	}
	return serve(t, func(c net.Conn) { _ = tls.Server(c, cfg).Handshake() })
}

func pair(t *testing.T, ca *testcerts.CA) tls.Certificate {
	p, err := tls.X509KeyPair(ca.Issue(testcerts.Leaf{Names: []string{"127.0.0.1"}}))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func pool(ca *testcerts.CA) *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(ca.PEM)
	return p
}

// get returns the error of an HTTP client.
func get(t *testing.T, addr string, cfg *tls.Config) error {
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}}
	r, err := c.Get("https://" + addr)
	if err == nil {
		_ = r.Body.Close()
		t.Errorf("%s responds", addr)
	}
	return err
}
