package tls

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
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// TestTLSRefused: a peer without a valid certificate can't send one request
// through an ingress.
func TestTLSRefused(t *testing.T) {
	var served atomic.Int64
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	defer app.Close()
	ca, other := testcerts.New(t), testcerts.New(t)
	names := []string{harness.ConsumerName}
	provider, ingress := harness.SecureProvider(t, app.Listener.Addr().String(), harness.CertFiles(t, ca, harness.ProviderName))

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
			before := provider.Metric(series)
			_, egress := harness.SecureConsumer(t, ingress, c.dir)
			resp, _ := must.Get(t, http.DefaultClient, "http://"+egress+"/x")
			if resp.StatusCode < 500 {
				t.Errorf("%s", resp.Status)
			}
			provider.AwaitMetric(series, before+1)
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
		provider.AwaitMetric(`remora_tls_failures_total{code="tls_no_certificate"}`, 1)
	})
	t.Run("plain text", func(t *testing.T) {
		egress := harness.FreeAddrs(t, 1)[0]
		p := harness.Start(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http, service: compute}]
services: {compute: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}}`, egress, ingress))
		p.Ready()
		resp, _ := must.Get(t, http.DefaultClient, "http://"+egress+"/x")
		if resp.StatusCode < 500 {
			t.Error(resp.Status)
		}
		provider.AwaitMetric(`remora_tls_failures_total{code="tls_plaintext"}`, 1)
	})
	for _, code := range []string{"tls_expired", "tls_wrong_peer", "tls_unknown_ca", "tls_no_certificate", "tls_plaintext"} {
		provider.AwaitLog("code=" + code)
	}
	if n := served.Load(); n != 0 {
		t.Errorf("%d requests reached the application", n)
	}
	// A consumer with a valid certificate gets a response.
	_, egress := harness.SecureConsumer(t, ingress, harness.CertFiles(t, ca, harness.ConsumerName))
	resp, _ := must.Get(t, http.DefaultClient, "http://"+egress+"/x")
	if resp.StatusCode != http.StatusOK || served.Load() != 1 {
		t.Errorf("with a good certificate: %s, %d served", resp.Status, served.Load())
	}
}

// TestTLSImpostor: a consumer sends nothing to a provider with a wrong name.
func TestTLSImpostor(t *testing.T) {
	a := harness.NewApp(t)
	ca := testcerts.New(t)
	_, ingress := harness.SecureProvider(t, a.Addr, harness.CertFiles(t, ca, "spiffe://test/impostor"))
	c, egress := harness.SecureConsumer(t, ingress, harness.CertFiles(t, ca, harness.ConsumerName))
	resp, _ := must.Post(t, http.DefaultClient, "http://"+egress+"/x", "text/plain", strings.NewReader("secret"))
	if resp.StatusCode < 500 {
		t.Error(resp.Status)
	}
	c.AwaitMetric(`remora_tls_failures_total{code="tls_wrong_peer"}`, 1)
}

// TestTLSBig: a request and a response of 10 MiB.
func TestTLSBig(t *testing.T) {
	a := harness.NewApp(t)
	ca := testcerts.New(t)
	_, ingress := harness.SecureProvider(t, a.Addr, harness.CertFiles(t, ca, harness.ProviderName))
	_, egress := harness.SecureConsumer(t, ingress, harness.CertFiles(t, ca, harness.ConsumerName))
	body := make([]byte, 10<<20)
	for i := range body {
		body[i] = byte(i ^ i>>8 ^ i>>16)
	}
	resp, got := must.Post(t, http.DefaultClient, "http://"+egress+"/x", "text/plain", bytes.NewReader(body))
	if got != "POST "+string(body) {
		t.Errorf("%s, %d bytes", resp.Status, len(got))
	}
}

// TestTLSRotation: both sides' certificates change twice while 8 clients send
// requests that must not be sent twice. No request fails; links that open
// afterwards use the new certificates, and the old links stay.
func TestTLSRotation(t *testing.T) {
	t.Parallel() // it mostly waits
	a := harness.NewApp(t)
	ca := testcerts.New(t)
	pd, cd := harness.CertFiles(t, ca, harness.ProviderName), harness.CertFiles(t, ca, harness.ConsumerName)
	provider, ingress := harness.SecureProvider(t, a.Addr, pd)
	consumer, egress := harness.SecureConsumer(t, ingress, cd)

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
	loads := func(p *harness.Process, name string, n int) {
		t.Helper()
		p.AwaitMetric(fmt.Sprintf("remora_tls_certificate_loads_total{identity=%q}", name), n)
	}
	served := func() string {
		pair, err := tls.LoadX509KeyPair(cd.Cert, cd.Key)
		if err != nil {
			t.Fatal(err)
		}
		d := tls.Dialer{NetDialer: &net.Dialer{Timeout: harness.Patience},
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
		pd.Rotate(ca.Issue(testcerts.Leaf{Names: []string{harness.ProviderName}}))
		cd.Rotate(ca.Issue(testcerts.Leaf{Names: []string{harness.ConsumerName}}))
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
	if _, body := consumer.Get("/metrics"); strings.Contains(body, "remora_tls_failures_total") {
		t.Error("TLS failures on the consumer's side")
	}
	if n := consumer.Metric("remora_reactor_dialed_total"); n > 2 {
		t.Errorf("%d links were dialled by two loops: one was dropped", n)
	}
}

// TestTLSFiles: a start fails if files are missing, and the error names them.
func TestTLSFiles(t *testing.T) {
	ca := testcerts.New(t)
	d := harness.CertFiles(t, ca, harness.ProviderName)
	d.Key = "/none/key.pem"
	p := harness.Start(t, fmt.Sprintf(`
listeners: [{name: ingress, address: "127.0.0.1:0", protocol: link, service: s, tls: %s}]
services: {s: {discover: static, endpoints: ["127.0.0.1:1"], protocol: http}}`, harness.Block(d, harness.ConsumerName)))
	if code := p.ExitCode(); code != harness.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	if out := p.Output.String(); !strings.Contains(out, "listeners.ingress.tls") || !strings.Contains(out, "/none/key.pem") {
		t.Errorf("output %s", out)
	}
}
