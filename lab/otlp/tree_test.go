package otlp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

// startReceiver starts the collector's OTLP receiver, with HTTP alone.
func startReceiver(t *testing.T) (url string, got *consumertest.TracesSink) {
	t.Helper()
	addr := freeAddr(t)
	factory, sink := otlpreceiver.NewFactory(), new(consumertest.TracesSink)
	cfg := factory.CreateDefaultConfig()
	conf := confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{"http": map[string]any{"endpoint": addr}}})
	if err := conf.Unmarshal(cfg); err != nil {
		t.Fatal(err)
	}
	r, err := factory.CreateTraces(t.Context(), receivertest.NewNopSettings(factory.Type()), cfg, sink)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context(), componenttest.NewNopHost()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return "http://" + addr, sink
}

// app responds at once, apart from a primary attempt to /slow, which it holds until released.
func app(t *testing.T, release <-chan struct{}) (addr string, parents chan string) {
	parents = make(chan string, 64)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/slow" {
			return
		}
		parents <- r.Header.Get("x-remora-attempt") + " " + r.Header.Get("traceparent") + " " + r.Header.Get("tracestate")
		if r.Header.Get("x-remora-attempt") == "" {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String(), parents
}

const (
	theirTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	theirSpan  = "00f067aa0ba902b7"
)

// TestHedgeSpans checks that the spans of a hedged request are one tree in the collector: the
// caller's span, the exchange, its two attempts side by side, and below each the provider's
// exchange and its attempt at the application.
func TestHedgeSpans(t *testing.T) {
	url, sink := startReceiver(t)
	release := make(chan struct{})
	tracing := fmt.Sprintf("\ntracing: {endpoint: %q, sample: 0}\n", url)
	var links, admins []string
	parents := map[string]chan string{} // by the application
	for i := range 2 {
		addr, seen := app(t, release)
		parents[addr] = seen
		link := freeAddr(t)
		admin := start(t, fmt.Sprintf(`
node: {id: provider-%d}
loops: 1
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`, i, link, addr)+tracing)
		links, admins = append(links, fmt.Sprintf("%q", link)), append(admins, admin)
	}
	egress := freeAddr(t)
	start(t, fmt.Sprintf(`
node: {id: consumer}
loops: 1
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: compute}]
services:
  compute:
    {discover: static, endpoints: [%s], protocol: link, connect_timeout: 15s, timeout: 2m, hedge: {mode: on, delay: 20ms, budget: 1}}`,
		egress, strings.Join(links, ", "))+tracing)

	// Responses now and then show that the endpoints are alive. POST is not hedged.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	pulse := time.NewTicker(5 * time.Millisecond)
	defer pulse.Stop()
	go func() {
		for ctx.Err() == nil {
			_ = send(http.MethodPost, egress, "/quick", "00")
			<-pulse.C
		}
	}()
	if err := send(http.MethodGet, egress, "/slow", "01"); err != nil { // the hedge's answer
		t.Fatal(err)
	}
	eventually(t, "the primary to be withdrawn", func() error { return cancelled(admins) })
	close(release)
	spans := await(t, sink, 7)

	root := spans.only(t, "the request at the consumer", func(s span) bool { return s.parent == theirSpan })
	root.is(t, ptrace.SpanKindServer, "consumer", "")
	attempts := spans.below(root)
	if len(attempts) != 2 {
		t.Fatalf("%d attempts:\n%v", len(attempts), spans)
	}
	for _, a := range attempts {
		outcome, number := "cancelled", ""
		if a.text("remora.hedge") == "true" {
			outcome, number = "won", "1"
		}
		a.is(t, ptrace.SpanKindClient, "consumer", outcome)
		below := spans.below(a)
		if len(below) != 1 {
			t.Fatalf("%d spans below an attempt:\n%v", len(below), spans)
		}
		beside := below[0]
		beside.is(t, ptrace.SpanKindServer, "provider-", map[string]string{"cancelled": "cancelled"}[outcome])
		calls := spans.below(beside)
		if len(calls) != 1 {
			t.Fatalf("%d calls of the application:\n%v", len(calls), spans)
		}
		calls[0].is(t, ptrace.SpanKindClient, "provider-", outcome)
		want := number + " 00-" + theirTrace + "-" + calls[0].id + "-01 a=b"
		if outcome == "won" {
			want = strings.Replace(want, "a=b", "remora=h,a=b", 1)
		}
		select {
		case got := <-parents[calls[0].text("server.address")+":"+calls[0].text("server.port")]:
			if got != want {
				t.Errorf("the application got %q, want %q", got, want)
			}
		default: // what its spans tell of has happened
			t.Errorf("the application got nothing, want %q", want)
		}
	}
}

// cancelled reports whether a request at one of the sidecars was cancelled.
func cancelled(admins []string) error {
	for _, admin := range admins {
		resp, err := http.Get("http://" + admin + "/metrics")
		if err != nil {
			return err
		}
		page, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || strings.Contains(string(page), `remora_requests_total{outcome="cancelled",service="local"} 1`) {
			return err
		}
	}
	return errors.New("none was")
}

// send sends a request. The trace flags say whether it is sampled.
func send(method, egress, path, flags string) error {
	req, err := http.NewRequest(method, "http://"+egress+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("traceparent", "00-"+theirTrace+"-"+theirSpan+"-"+flags)
	req.Header.Set("tracestate", "a=b")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
		return fmt.Errorf("%s: %s %s, %v", path, resp.Status, resp.Header.Get("x-remora-error"), err)
	}
	return nil
}
