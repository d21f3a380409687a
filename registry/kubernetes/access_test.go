package kubernetes

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// TestTLS: the API server must prove that it is the one that was dialled, by the authority of the cluster. Certificates may
// change at any time.
func TestTLS(t *testing.T) {
	ca, other := testcerts.New(t), testcerts.New(t)
	serverCert, serverKey := ca.Issue(testcerts.Leaf{Names: []string{"127.0.0.1"}})
	elsewhereCert, elsewhereKey := ca.Issue(testcerts.Leaf{Names: []string{"127.0.0.2"}})
	clientCert, clientKey := ca.Issue(testcerts.Leaf{Names: []string{"client"}})
	dir := t.TempDir()
	rotated := filepath.Join(dir, "ca.pem")
	server := func(cert, key []byte, clients tls.ClientAuthType) string {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca.PEM)
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor != 2 || r.Header.Get("Authorization") != "Bearer abc" {
				w.WriteHeader(http.StatusForbidden)
			}
		}))
		s.EnableHTTP2 = true
		s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: clients, ClientCAs: pool}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s.URL
	}
	right, elsewhere := server(serverCert, serverKey, tls.NoClientCert), server(elsewhereCert, elsewhereKey, tls.NoClientCert)
	asks := server(serverCert, serverKey, tls.RequireAndVerifyClientCert)
	good := material{data: ca.PEM}
	for _, c := range []struct {
		name string
		at   string
		access
		ok bool
	}{
		{"right", right, access{ca: good}, true},
		{"an authority in a file", right, access{ca: material{file: rotated}}, true},
		{"another authority", right, access{ca: material{data: other.PEM}}, false},
		{"the authorities of the system", right, access{}, false},
		{"no authority in the file", right, access{ca: material{data: []byte("x")}}, false},
		{"no file", right, access{ca: material{file: filepath.Join(dir, "none")}}, false},
		{"another server", elsewhere, access{ca: good}, false},
		{"a client with a certificate", asks, access{ca: good, cert: material{data: clientCert}, key: material{data: clientKey}}, true},
		{"a client without", asks, access{ca: good}, false},
		{"the key of another certificate", asks, access{ca: good, cert: material{data: clientCert}, key: material{data: serverKey}}, false},
		{"no file with a certificate", asks, access{ca: good, cert: material{file: filepath.Join(dir, "none")}, key: material{data: clientKey}}, false},
		{"no file with a key", asks, access{ca: good, cert: material{data: clientCert}, key: material{file: filepath.Join(dir, "none")}}, false},
	} {
		must.WriteFile(t, rotated, ca.PEM)
		c.token = material{data: []byte("abc\n")}
		client := c.client(t.Context(), 10*time.Second)
		r := must.Request(t, http.MethodGet, c.at, nil)
		if err := c.authorize(r); err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(r)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("%s: status %d", c.name, res.StatusCode)
			}
		}
		client.CloseIdleConnections()
	}
	if _, err := (&access{}).tls("127.0.0.1"); err == nil {
		t.Error("an address without a port")
	}
}

// TestAuthorize: without a token nothing is added to a request, and without its file there is no request.
func TestAuthorize(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	for _, c := range []struct {
		text, want string
		isError    bool
	}{{"abc\n", "Bearer abc", false}, {"a", "Bearer a", false}, {"", "", false}, {"none", "", true}} {
		a := access{token: material{file: file}}
		if c.isError {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		} else {
			must.WriteFile(t, file, c.text)
		}
		r := &http.Request{Header: http.Header{}, URL: &url.URL{}}
		if err := a.authorize(r); (err != nil) != c.isError || r.Header.Get("Authorization") != c.want || len(r.Header) > 0 != (c.want != "") {
			t.Errorf("token %q: %v, %v", c.text, r.Header, err)
		}
	}
}

// TestKubeconfigUsers: of several contexts, clusters and users those of the current context count, and a token before its file.
func TestKubeconfigUsers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	must.WriteFile(t, path, `
current-context: c
contexts: [{name: b, context: {cluster: y, user: v}}, {name: c, context: {cluster: x, user: u}}, {name: d, context: {cluster: y, user: v}}]
clusters: [{name: y, cluster: {server: "https://y"}}, {name: x, cluster: {server: "https://x", certificate-authority-data: YQ==}}, {name: z, cluster: {server: "https://z"}}]
users: [{name: v, user: {token: wrong}}, {name: u, user: {token: right, tokenFile: t, client-certificate: /c, client-key-data: Yg==}}, {name: w, user: {token: wrong}}]`)
	a, err := fromKubeconfig(path)
	if err != nil {
		t.Fatal(err)
	}
	if a.server.String() != "https://x" || a.namespace != "default" || string(a.ca.data) != "a" || string(a.token.data) != "right" || a.token.file != "" ||
		a.cert.file != "/c" || string(a.key.data) != "b" {
		t.Errorf("%+v at %s", a, a.server)
	}
	r, err := New(Options{Kubeconfig: path})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.access.server.String() != "https://x" {
		t.Errorf("the server is %s", r.access.server)
	}
	if _, err := New(Options{Kubeconfig: path + "2"}); !os.IsNotExist(err) {
		t.Errorf("without the file: %v", err)
	}
}

// TestIdleConnections: after requests at once over HTTP/1.1, one connection stays for the next request.
func TestIdleConnections(t *testing.T) {
	const requests = 3
	var all sync.WaitGroup
	all.Add(requests)
	server := count(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		all.Done()
		all.Wait()
	}), false)
	client := new(access).client(t.Context(), time.Minute)
	defer client.CloseIdleConnections()
	var asked sync.WaitGroup
	for range requests {
		asked.Go(func() {
			if resp, err := client.Get(server.URL); err != nil {
				t.Error(err)
			} else {
				_ = resp.Body.Close()
			}
		})
	}
	asked.Wait()
	for range requests - 1 {
		server.waitClosed(t)
	}
	all.Add(1)
	resp, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if n := server.opened.Load(); n != requests {
		t.Errorf("%d connections were opened, want %d", n, requests)
	}
}
