package peers

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// scripts/http2.sh sets it.
var http2Peers = flag.String("http2-peers", "", "test HTTP/2 with other programs: --all, or --direct: without Remora")

const mirrorName = "mirror.test"

// mirror is an application that sends back bodies and trailers, by HTTP/1.1 and HTTP/2.
type mirror struct {
	ca           *testcerts.CA
	certificate  testcerts.Dir
	plain, coded string // addresses: without and with TLS
}

func newMirror(t *testing.T) *mirror {
	t.Helper()
	if *http2Peers == "" {
		t.Skip("needs other programs: see scripts/http2.sh")
	}
	m := &mirror{ca: testcerts.New(t)}
	m.certificate = harness.CertFiles(t, m.ca, mirrorName, "localhost")
	for _, addr := range []*string{&m.plain, &m.coded} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(sendBack))
		s.Config.Protocols = bothHTTP()
		if addr == &m.coded {
			s.TLS = &tls.Config{Certificates: []tls.Certificate{harness.Pair(t, m.certificate)}, NextProtos: []string{"h2", "http/1.1"}}
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
		*addr = s.Listener.Addr().String()
	}
	return m
}

func bothHTTP() *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// sendBack sends back the body, then its SHA-256 and the request's x-after as trailers.
func sendBack(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/text" {
		_, _ = io.WriteString(w, "a response with some bytes")
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("x-proto", r.Proto)
	w.Header().Set("trailer", "x-sum, x-after")
	if r.URL.RawQuery == "pieces" {
		_ = http.NewResponseController(w).Flush() // or a short response by HTTP/2 has a content-length
	}
	_, _ = w.Write(body)
	w.Header().Set("x-sum", sum(body))
	w.Header().Set("x-after", r.Trailer.Get("x-after"))
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// bodySizes are 0, 1, what fills a window, and what is longer than limits.message.
var bodySizes = []int{0, 1, 64 << 10, 10 << 20}

func mirrored(n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = rng.Read(b)
	return b
}

// hop starts a sidecar, and returns the address of its listener. Without Remora it is the endpoint itself.
func (m *mirror) hop(t *testing.T, listener, service, endpoint string) (addr string) {
	t.Helper()
	if *http2Peers == "--direct" {
		return endpoint
	}
	addr = harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: in, address: %q, %s, service: mirror}]
services: {mirror: {discover: static, endpoints: [%q], %s, connect_timeout: 15s, timeout: 1m}}`, addr, listener, endpoint, service))
	p.Ready()
	return addr
}

// listens and speaks are what a sidecar's listener and its service can be.
func (m *mirror) listens(coded bool) string {
	if !coded {
		return "protocol: http"
	}
	return fmt.Sprintf("protocol: http, tls: {cert: %q, key: %q}", m.certificate.Cert, m.certificate.Key)
}

func (m *mirror) speaks(protocol string, coded bool) string {
	if !coded {
		return "protocol: " + protocol
	}
	return fmt.Sprintf("protocol: %s, tls: {ca: %q, sni: %s}", protocol, m.certificate.CA, mirrorName)
}

// client returns a client of HTTP/1.1 or HTTP/2 alone, and the URL of an address for it.
func (m *mirror) client(t *testing.T, version string, coded bool, addr string) (*http.Client, string) {
	p := &http.Protocols{}
	p.SetHTTP1(version == "1.1")
	p.SetHTTP2(version == "2")
	p.SetUnencryptedHTTP2(version == "2")
	config := harness.Trusting(m.ca)
	config.ServerName = mirrorName
	transport := &http.Transport{Protocols: p, TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	if coded {
		return &http.Client{Transport: transport}, "https://" + addr
	}
	return &http.Client{Transport: transport}, "http://" + addr
}

// trailers says which trailers arrive.
type trailers int

const (
	noTrailers       trailers = iota
	responseTrailers          // the client sends none
	allTrailers
)

// checkMirror sends bodies of all sizes, and checks the responses. Those in pieces have no
// content-length either way, and have trailers. The application has seen proto, "" for any.
func checkMirror(t *testing.T, client *http.Client, url, contentType, proto string, arrive trailers) {
	t.Helper()
	for _, n := range bodySizes {
		for _, query := range []string{"", "?pieces"} {
			body := mirrored(n)
			req := must.Request(t, "POST", url+"/mirror"+query, io.MultiReader(bytes.NewReader(body)))
			req.Header.Set("content-type", contentType)
			after := ""
			if req.ContentLength = int64(n); query != "" {
				req.ContentLength = -1
				if arrive == allTrailers {
					after = "that's it"
					req.Trailer = http.Header{"X-After": {after}}
				}
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Errorf("%d bytes%s: %v", n, query, err)
				continue
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != 200 || !bytes.Equal(got, body) {
				t.Errorf("%d bytes%s: %v, %s, %d bytes come back, the same: %v; %v",
					n, query, err, resp.Status, len(got), bytes.Equal(got, body), resp.Header)
				continue
			}
			if saw := resp.Header.Get("x-proto"); proto != "" && saw != proto {
				t.Errorf("%d bytes%s: the application saw %s, want %s", n, query, saw, proto)
			}
			if s, a := resp.Trailer.Get("x-sum"), resp.Trailer.Get("x-after"); query != "" && arrive != noTrailers && (s != sum(body) || a != after) {
				t.Errorf("%d bytes%s: trailers %v, want x-sum %s and x-after %q", n, query, resp.Trailer, sum(body), after)
			}
		}
	}
}

// TestHTTP2PeersMirror: HTTP/1.1 and HTTP/2 in, HTTP/1.1 and HTTP/2 out, with and without TLS, by
// one sidecar and by two.
func TestHTTP2PeersMirror(t *testing.T) {
	m := newMirror(t)
	for _, in := range []string{"1.1", "2"} {
		for _, out := range []string{"1.1", "2"} {
			for _, coded := range []bool{false, true} {
				for _, hops := range []int{1, 2} {
					if *http2Peers == "--direct" && (in != out || hops == 2) {
						continue
					}
					t.Run(fmt.Sprintf("%s in, %s out, TLS %v, %d hops", in, out, coded, hops), func(t *testing.T) {
						t.Parallel()
						endpoint, protocol := m.plain, map[string]string{"1.1": "http", "2": "http2"}[out]
						if coded {
							endpoint = m.coded
						}
						last, addr := m.speaks(protocol, coded), endpoint
						if hops == 2 {
							addr, last = m.hop(t, "protocol: link", last, endpoint), "protocol: link"
						}
						client, url := m.client(t, in, coded, m.hop(t, m.listens(coded), last, addr))
						checkMirror(t, client, url, "application/octet-stream", map[string]string{"1.1": "HTTP/1.1", "2": "HTTP/2.0"}[out], allTrailers)
					})
				}
			}
		}
	}
}

// TestHTTP2PeersProxies: nginx and Envoy as proxies in front of Remora, and as its endpoints.
func TestHTTP2PeersProxies(t *testing.T) {
	m := newMirror(t)
	next := func(addr string) map[string]string {
		_, port, _ := net.SplitHostPort(addr)
		return map[string]string{"NEXT": addr, "NEXTPORT": port}
	}
	for _, out := range []string{"http", "http2"} {
		proto := map[string]string{"http": "HTTP/1.1", "http2": "HTTP/2.0"}[out]
		if *http2Peers == "--direct" {
			proto = ""
		}
		t.Run("nginx in front, "+out, func(t *testing.T) {
			t.Parallel()
			front := startConfigured(t, "http2/nginx-front.conf", next(m.hop(t, m.listens(false), m.speaks(out, false), m.plain)))
			client, url := m.client(t, "2", false, front)
			checkMirror(t, client, url, "application/grpc", proto, responseTrailers) // it takes no trailers
		})
		for _, in := range []string{"1.1", "2"} {
			t.Run("Envoy in front, HTTP "+in+", "+out, func(t *testing.T) {
				t.Parallel()
				front := startConfigured(t, "http2/envoy-proxy.yaml", next(m.hop(t, m.listens(false), m.speaks(out, false), m.plain)))
				client, url := m.client(t, in, false, front)
				checkMirror(t, client, url, "application/octet-stream", proto, allTrailers)
			})
		}
	}
	for _, in := range []string{"1.1", "2"} {
		t.Run("nginx behind, HTTP "+in, func(t *testing.T) {
			t.Parallel()
			addr := m.hop(t, m.listens(false), m.speaks("http2", false), startConfigured(t, "http2/nginx-server.conf", next(m.plain)))
			if *http2Peers == "--direct" && in == "1.1" {
				t.Skip("nginx's listener has HTTP/2 alone")
			}
			client, url := m.client(t, in, false, addr)
			checkMirror(t, client, url, "application/octet-stream", "", noTrailers)
		})
		t.Run("Envoy behind, HTTP "+in, func(t *testing.T) {
			t.Parallel()
			addr := m.hop(t, m.listens(false), m.speaks("http2", false), startConfigured(t, "http2/envoy-proxy.yaml", next(m.plain)))
			client, url := m.client(t, in, false, addr)
			checkMirror(t, client, url, "application/octet-stream", "", allTrailers)
		})
	}
}

// TestHTTP2PeersClients: curl, nghttp and h2load call a listener.
func TestHTTP2PeersClients(t *testing.T) {
	m := newMirror(t)
	for _, coded := range []bool{false, true} {
		endpoint, scheme, name := m.plain, "http", "plain"
		if coded {
			scheme, name = "https", "TLS"
			if *http2Peers == "--direct" {
				endpoint = m.coded
			}
		}
		addr := m.hop(t, m.listens(coded), m.speaks("http2", false), endpoint)
		_, port, _ := net.SplitHostPort(addr)
		url := scheme + "://localhost:" + port + "/mirror"
		for _, n := range bodySizes {
			file := filepath.Join(t.TempDir(), "body")
			must.WriteFile(t, file, mirrored(n))
			same := func(t *testing.T, got []byte) {
				t.Helper()
				if !bytes.Equal(got, mirrored(n)) {
					t.Errorf("%d bytes, want those %d that were sent", len(got), n)
				}
			}
			t.Run(fmt.Sprintf("curl, %s, %d bytes", name, n), func(t *testing.T) {
				for option, version := range map[string]string{"--http2-prior-knowledge": "2", "--http2": map[bool]string{true: "2", false: "1.1"}[coded], "--http1.1": "1.1"} {
					out := filepath.Join(t.TempDir(), "out")
					said := mustRun(t, "curl", "-sS", "-m", "60", option, "--cacert", m.certificate.CA, "--data-binary", "@"+file, "-o", out, "-w", "%{http_version} %{http_code}", url)
					if said != version+" 200" {
						t.Errorf("%s: HTTP/%s, want %s 200", option, said, version)
					}
					got, err := os.ReadFile(out)
					if err != nil && n > 0 {
						t.Error(err)
					}
					same(t, got)
				}
			})
			t.Run(fmt.Sprintf("nghttp, %s, %d bytes", name, n), func(t *testing.T) {
				same(t, []byte(mustRun(t, "nghttp", "--no-verify-peer", "-H:method: POST", "--trailer=x-after: x", "-d", file, url)))
			})
		}
		t.Run("h2load, "+name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "body")
			must.WriteFile(t, file, mirrored(300))
			for _, argv := range [][]string{{"-c1", "-m100", "-n5000"}, {"-c16", "-m32", "-n20000"}, {"-c32", "-m1", "-n5000"}} {
				out := mustRun(t, append(append([]string{"h2load", "-d", file}, argv...), url)...)
				want := regexp.MustCompile(strings.TrimPrefix(argv[2], "-n") + ` succeeded, 0 failed, 0 errored`)
				if !want.MatchString(out) {
					t.Errorf("%v: %s", argv, out)
				}
			}
		})
	}
}
