package tls

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
	openloop "github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/replica"
)

// shortIdentity issues a certificate that ends soon, but not before its successor, which
// may take 5 s, is in use.
func shortIdentity(t *testing.T, ca *testcerts.CA, name string) testcerts.Dir {
	t.Helper()
	cert, key := ca.Issue(testcerts.Leaf{Names: []string{name}, Lasts: 15 * time.Second})
	return testcerts.NewDir(t, ca, cert, key)
}

// TestTLSCertificateEnds: a link ends when the certificate of either end does. The certificates
// were replaced before, so no request fails.
func TestTLSCertificateEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("a certificate needs time to end; proxy/reactor has a shorter form")
	}
	for _, short := range []string{harness.ConsumerName, harness.ProviderName} {
		t.Run(short, func(t *testing.T) {
			t.Parallel()
			app, err := replica.Start(replica.Options{Mode: replica.Stall, Median: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = app.Close(context.Background()) })
			ca := testcerts.New(t)
			dirs := map[string]testcerts.Dir{harness.ConsumerName: harness.CertFiles(t, ca, harness.ConsumerName), harness.ProviderName: harness.CertFiles(t, ca, harness.ProviderName)}
			dirs[short] = shortIdentity(t, ca, short)
			provider, ingress := harness.SecureProvider(t, app.Addr(), dirs[harness.ProviderName])
			consumer, egress := harness.SecureConsumer(t, ingress, dirs[harness.ConsumerName])
			resp, err := http.Get("http://" + egress + "/compute") // opens a link
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			dirs[short].Rotate(ca.Issue(testcerts.Leaf{Names: []string{short}}))
			notices := map[string]*harness.Process{harness.ConsumerName: provider, harness.ProviderName: consumer}[short]
			ended := make(chan struct{})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go func() {
				defer stop()
				defer close(ended)
				notices.AwaitMetric(`remora_tls_failures_total{code="tls_expired"}`, 1)
			}()
			for last := false; !last; { // the last one is all on links of the new certificates
				last = ctx.Err() != nil
				r, err := openloop.Run(t.Context(), openloop.Options{
					Targets: []string{"http://" + egress + "/compute"}, Rate: 100, Duration: time.Second, Timeout: 20 * time.Second,
				})
				if err != nil {
					t.Fatal(err)
				}
				if c := r.Counts; c.Failed() > 0 || c.Statuses[200] != c.Requests {
					t.Errorf("requests failed: %+v", c)
				}
			}
			<-ended
		})
	}
}

// TestTLSRevoked: a new list ends the link of a peer that is on it, and refuses the next one.
func TestTLSRevoked(t *testing.T) {
	t.Parallel() // it mostly waits
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(app.Close)
	ca := testcerts.New(t)
	own := harness.CertFiles(t, ca, harness.ProviderName)
	own.Write(own.CRL, testcerts.ListPEM(ca.List(nil)))
	ingress := harness.FreeAddrs(t, 1)[0]
	provider := harness.Start(t, fmt.Sprintf(`
listeners: [{name: ingress, address: %q, protocol: link, service: local, tls: {cert: %q, key: %q, ca: %q, crl: %q, peers: [%q]}}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}}`,
		ingress, own.Cert, own.Key, own.CA, own.CRL, harness.ConsumerName, app.Listener.Addr()))
	provider.Ready()
	cert, key := ca.Issue(testcerts.Leaf{Names: []string{harness.ConsumerName}})
	_, egress := harness.SecureConsumer(t, ingress, testcerts.NewDir(t, ca, cert, key))
	status := func() int {
		resp, _ := must.Get(t, http.DefaultClient, "http://"+egress+"/x")
		return resp.StatusCode
	}
	if got := status(); got != http.StatusOK {
		t.Fatalf("status %d", got)
	}
	const refused = `remora_tls_failures_total{code="tls_revoked"}`
	own.Write(own.CRL, testcerts.ListPEM(ca.List(nil, cert)))
	provider.AwaitMetric(refused, 1) // the link
	if got := status(); got < 500 {
		t.Errorf("status %d", got)
	}
	provider.AwaitMetric(refused, 2) // the handshake
	if provider.Metric(`remora_tls_crl_next_update_timestamp_seconds{identity="listeners.ingress.tls"}`) == 0 {
		t.Error("no metric of the list")
	}
}

// TestTLSPeerWithdrawn: a reload that no longer accepts a peer ends its links. A request in
// flight has timeouts.drain to end.
func TestTLSPeerWithdrawn(t *testing.T) {
	started, release := make(chan string, 2), make(chan struct{})
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/quick" {
			started <- r.URL.Path
			<-release
		}
		_, _ = io.WriteString(w, "done")
	}))
	t.Cleanup(app.Close)
	for _, c := range []struct {
		drain  string
		status int
	}{{"1m", http.StatusOK}, {"100ms", http.StatusBadGateway}} {
		t.Run(c.drain, func(t *testing.T) {
			ca := testcerts.New(t)
			own := harness.CertFiles(t, ca, harness.ProviderName)
			ingress := harness.FreeAddrs(t, 1)[0]
			config := func(peer string) string {
				return fmt.Sprintf(`
loops: 2
timeouts: {drain: %s}
listeners: [{name: ingress, address: %q, protocol: link, service: local, tls: %s}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`,
					c.drain, ingress, harness.Block(own, peer), app.Listener.Addr())
			}
			provider := harness.Start(t, config(harness.ConsumerName))
			provider.Ready()
			_, egress := harness.SecureConsumer(t, ingress, harness.CertFiles(t, ca, harness.ConsumerName))
			slow := make(chan *http.Response, 1)
			go func() {
				resp, err := http.Get("http://" + egress + "/slow")
				if err != nil {
					t.Error(err)
				}
				slow <- resp
			}()
			harness.Receive(t, "the request to reach the application", started)
			provider.Reload(config("spiffe://test/other"), "applied")
			provider.AwaitMetric(`remora_tls_failures_total{code="tls_wrong_peer"}`, 1)
			if c.status == http.StatusOK {
				resp, _ := must.Get(t, http.DefaultClient, "http://"+egress+"/quick")
				if resp.StatusCode < 500 {
					t.Errorf("a peer that is not accepted any more got %s", resp.Status)
				}
				release <- struct{}{}
			}
			resp := harness.Receive(t, "the response", slow)
			if resp == nil {
				return
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != c.status || c.status == http.StatusOK && !strings.Contains(string(b), "done") {
				t.Errorf("%s %q, want %d", resp.Status, b, c.status)
			}
			if c.status != http.StatusOK {
				release <- struct{}{}
			}
		})
	}
}
