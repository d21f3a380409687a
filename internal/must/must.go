// Package must does, in tests, what set-up needs: an error ends the test, and what was opened
// is closed when the test ends. It is test support; no command may import it.
package must

import (
	"io"
	"net"
	"net/http"
	"os"
	"testing"
)

// Listen listens on a free TCP port of 127.0.0.1.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	return ListenOn(t, "tcp", "127.0.0.1:0")
}

// ListenOn listens on an address.
func ListenOn(t testing.TB, network, addr string) net.Listener {
	t.Helper()
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// Dial connects to an address.
func Dial(t testing.TB, network, addr string) net.Conn {
	t.Helper()
	nc, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc
}

// ReadFile returns what is in a file.
func ReadFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// WriteFile writes a file.
func WriteFile[T string | []byte](t testing.TB, name string, content T) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Write writes to a connection.
func Write[T string | []byte](t testing.TB, w io.Writer, content T) {
	t.Helper()
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
}

// Read reads exactly n bytes.
func Read(t testing.TB, r io.Reader, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// Request returns a client's request that ends with the test.
func Request(t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Get is Do for a GET.
func Get(t testing.TB, client *http.Client, url string) (*http.Response, string) {
	t.Helper()
	return Do(t, client, Request(t, http.MethodGet, url, nil))
}

// Post is Do for a POST.
func Post(t testing.TB, client *http.Client, url, contentType string, body io.Reader) (*http.Response, string) {
	t.Helper()
	r := Request(t, http.MethodPost, url, body)
	r.Header.Set("Content-Type", contentType)
	return Do(t, client, r)
}

// Do sends a request, and returns the response and its whole body.
func Do(t testing.TB, client *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v after %d bytes", r.URL, err, len(b))
	}
	return resp, string(b)
}
