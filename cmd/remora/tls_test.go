package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// Names in the certificates of a test.
const (
	providerName = "spiffe://test/provider"
	consumerName = "spiffe://test/consumer"
)

// block returns a tls block of the configuration.
func block(d testcerts.Dir, peer string) string {
	return fmt.Sprintf("{cert: %q, key: %q, ca: %q, peers: [%q]}", d.Cert, d.Key, d.CA, peer)
}

// identityOf issues a certificate with this name, and writes its files.
func identityOf(t *testing.T, ca *testcerts.CA, name string) testcerts.Dir {
	t.Helper()
	cert, key := ca.Issue(testcerts.Leaf{Names: []string{name}})
	return testcerts.NewDir(t, ca, cert, key)
}

// secureProvider starts the sidecar of an application, with TLS on its link.
func secureProvider(t *testing.T, app string, d testcerts.Dir) (*process, string) {
	ingress := freeAddrs(t, 1)[0]
	p := startRemora(t, fmt.Sprintf(`
loops: 2
limits: {message: 16MiB}
timeouts: {body: 2m, write: 2m}
listeners: [{name: ingress, address: %q, protocol: link, service: local, tls: %s}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`, ingress, block(d, consumerName), app))
	p.ready()
	return p, ingress
}

// secureConsumer starts a sidecar that sends requests to a provider over TLS.
func secureConsumer(t *testing.T, ingress string, d testcerts.Dir) (*process, string) {
	egress := freeAddrs(t, 1)[0]
	p := startRemora(t, fmt.Sprintf(`
loops: 2
limits: {message: 16MiB}
timeouts: {body: 2m, write: 2m}
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: compute}]
services: {compute: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m, tls: %s}}`,
		egress, ingress, block(d, providerName)))
	p.ready()
	return p, egress
}

// metric returns the sum of the series whose name and first labels are those of series, or 0 if
// there are none.
func (p *process) metric(series string) (sum int) {
	_, body := p.get("/metrics")
	pattern := regexp.QuoteMeta(series)
	if labels, ok := strings.CutSuffix(pattern, `\}`); ok {
		pattern = labels + `[,}].*`
	}
	for _, found := range regexp.MustCompile(`(?m)^`+pattern+` (\S+)$`).FindAllStringSubmatch(body, -1) {
		n, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			p.t.Errorf("%s: %v", series, err)
		}
		sum += int(n)
	}
	return sum
}

// awaitMetric waits until a series is at least n.
func (p *process) awaitMetric(series string, n int) {
	p.t.Helper()
	eventually.Nil(p.t, fmt.Sprintf("%s to be %d", series, n), func() error {
		if got := p.metric(series); got < n {
			return fmt.Errorf("it is %d", got)
		}
		return nil
	})
}

// TestTLSRefused: a peer without a valid certificate can't send one request
// through an ingress.
func TestTLSRefused(t *testing.T) {
	var served atomic.Int64
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	defer app.Close()
	ca, other := testcerts.New(t), testcerts.New(t)
	names := []string{consumerName}
	provider, ingress := secureProvider(t, app.Listener.Addr().String(), identityOf(t, ca, providerName))

	files := func(cert, key []byte) testcerts.Dir { return testcerts.NewDir(t, ca, cert, key) }
	for _, c := range []struct {
		name, code string
		dir        testcerts.Dir
	}{
		{"expired", "tls_expired", files(ca.Issue(testcerts.Leaf{Names: names, Expired: true}))},
		{"wrong SAN", "tls_wrong_peer", files(ca.Issue(testcerts.Leaf{Names: []string{"spiffe://test/other"}}))},
		{"self-signed", "tls_unknown_ca", files(testcerts.SelfSigned(t, testcerts.Leaf{Names: names}))},
		{"another authority", "tls_unknown_ca", files(other.Issue(testcerts.Leaf{Names: names}))},
	} {
		t.Run(c.name, func(t *testing.T) {
			series := fmt.Sprintf("remora_tls_failures_total{code=%q}", c.code)
			before := provider.metric(series)
			_, egress := secureConsumer(t, ingress, c.dir)
			resp, err := http.Get("http://" + egress + "/x")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode < 500 {
				t.Errorf("%s", resp.Status)
			}
			provider.awaitMetric(series, before+1)
		})
	}
	t.Run("absent", func(t *testing.T) {
		c, err := tls.Dial("tcp", ingress, &tls.Config{InsecureSkipVerify: true})
		if err == nil {
			_, err = c.Read(make([]byte, 1))
			c.Close()
		}
		if err == nil {
			t.Error("the connection was accepted")
		}
		provider.awaitMetric(`remora_tls_failures_total{code="tls_no_certificate"}`, 1)
	})
	t.Run("plain text", func(t *testing.T) {
		egress := freeAddrs(t, 1)[0]
		p := startRemora(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http, service: compute}]
services: {compute: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}}`, egress, ingress))
		p.ready()
		resp, err := http.Get("http://" + egress + "/x")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode < 500 {
			t.Error(resp.Status)
		}
		provider.awaitMetric(`remora_tls_failures_total{code="tls_plaintext"}`, 1)
	})
	for _, code := range []string{"tls_expired", "tls_wrong_peer", "tls_unknown_ca", "tls_no_certificate", "tls_plaintext"} {
		eventually.Nil(t, "a line in the log with "+code, func() error {
			if !strings.Contains(provider.output.String(), "code="+code) {
				return errors.New("none yet")
			}
			return nil
		})
	}
	if n := served.Load(); n != 0 {
		t.Errorf("%d requests reached the application", n)
	}
	// A consumer with a valid certificate gets a response.
	_, egress := secureConsumer(t, ingress, identityOf(t, ca, consumerName))
	resp, err := http.Get("http://" + egress + "/x")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || served.Load() != 1 {
		t.Errorf("with a good certificate: %s, %d served", resp.Status, served.Load())
	}
}

// TestTLSImpostor: a consumer sends nothing to a provider with a wrong name.
func TestTLSImpostor(t *testing.T) {
	a := newApp(t)
	ca := testcerts.New(t)
	_, ingress := secureProvider(t, a.addr, identityOf(t, ca, "spiffe://test/impostor"))
	c, egress := secureConsumer(t, ingress, identityOf(t, ca, consumerName))
	resp, err := http.Post("http://"+egress+"/x", "text/plain", strings.NewReader("secret"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode < 500 || c.metric(`remora_tls_failures_total{code="tls_wrong_peer"}`) == 0 {
		t.Errorf("%s; not counted", resp.Status)
	}
}

// TestTLSBig: a request and a response of 10 MiB.
func TestTLSBig(t *testing.T) {
	a := newApp(t)
	ca := testcerts.New(t)
	_, ingress := secureProvider(t, a.addr, identityOf(t, ca, providerName))
	_, egress := secureConsumer(t, ingress, identityOf(t, ca, consumerName))
	body := make([]byte, 10<<20)
	for i := range body {
		body[i] = byte(i ^ i>>8 ^ i>>16)
	}
	resp, err := http.Post("http://"+egress+"/x", "text/plain", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(got, append([]byte("POST "), body...)) {
		t.Errorf("%s, %d bytes, %v", resp.Status, len(got), err)
	}
}

// TestTLSRotation: both sides' certificates change twice while 8 clients send
// requests that must not be sent twice. No request fails; links that open
// afterwards use the new certificates, and the old links stay.
func TestTLSRotation(t *testing.T) {
	t.Parallel() // it mostly waits
	a := newApp(t)
	ca := testcerts.New(t)
	pd, cd := identityOf(t, ca, providerName), identityOf(t, ca, consumerName)
	provider, ingress := secureProvider(t, a.addr, pd)
	consumer, egress := secureConsumer(t, ingress, cd)

	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var answered atomic.Int64
	for range 8 {
		clients.Go(func() {
			for ctx.Err() == nil {
				resp, err := http.Post("http://"+egress+"/x", "text/plain", strings.NewReader("hello"))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("%s: %s", resp.Status, resp.Header.Get("x-remora-error"))
				}
				answered.Add(1)
			}
		})
	}
	loads := func(p *process, name string, n int) {
		t.Helper()
		p.awaitMetric(fmt.Sprintf("remora_tls_certificate_loads_total{identity=%q}", name), n)
	}
	served := func() string {
		pair, err := tls.LoadX509KeyPair(cd.Cert, cd.Key)
		if err != nil {
			t.Fatal(err)
		}
		d := tls.Dialer{NetDialer: &net.Dialer{Timeout: patience},
			Config: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}}
		c, err := d.Dial("tcp", ingress)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	last := served()
	for round := range 2 {
		pd.Rotate(ca.Issue(testcerts.Leaf{Names: []string{providerName}}))
		cd.Rotate(ca.Issue(testcerts.Leaf{Names: []string{consumerName}}))
		loads(provider, "listeners.ingress.tls", round+2)
		loads(consumer, "services.compute.tls", round+2)
		if now := served(); now == last {
			t.Error("the provider shows its former certificate")
		} else {
			last = now
		}
		before := answered.Load()
		eventually.Nil(t, "requests after the rotation", func() error {
			if answered.Load() < before+100 {
				return errors.New("too few")
			}
			return nil
		})
	}
	stop()
	clients.Wait()
	if _, body := consumer.get("/metrics"); strings.Contains(body, "remora_tls_failures_total") {
		t.Error("TLS failures on the consumer's side")
	}
	if n := consumer.metric("remora_reactor_dialed_total"); n > 2 {
		t.Errorf("%d links were dialled by two loops: one was dropped", n)
	}
}

// TestTLSFiles: a start fails if files are missing, and the error names them.
func TestTLSFiles(t *testing.T) {
	ca := testcerts.New(t)
	d := identityOf(t, ca, providerName)
	d.Key = "/none/key.pem"
	p := startRemora(t, fmt.Sprintf(`
listeners: [{name: ingress, address: "127.0.0.1:0", protocol: link, service: s, tls: %s}]
services: {s: {discover: static, endpoints: ["127.0.0.1:1"], protocol: http}}`, block(d, consumerName)))
	if code := p.exitCode(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	if out := p.output.String(); !strings.Contains(out, "listeners.ingress.tls") || !strings.Contains(out, "/none/key.pem") {
		t.Errorf("output %s", out)
	}
}
