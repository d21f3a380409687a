package endpoints

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// worker is an application that stops its work when its client has left, as net/http tells.
type worker struct {
	addr     string
	begun    chan struct{} // gets a value at each request
	stopped  chan struct{} // at each request whose client left
	finished chan struct{} // at each request that responds
	release  chan struct{} // lets a request respond
}

func startWorker(t *testing.T) *worker {
	some := func() chan struct{} { return make(chan struct{}, 1000) }
	w := &worker{begun: some(), stopped: some(), finished: some(), release: some()}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		w.begun <- struct{}{}
		select {
		case <-r.Context().Done():
			w.stopped <- struct{}{}
		case <-w.release:
			w.finished <- struct{}{}
		}
	}))
	t.Cleanup(func() {
		for range cap(w.release) {
			w.respond()
		}
		server.Close()
	})
	w.addr = server.Listener.Addr().String()
	return w
}

// respond lets one request respond, or the next one.
func (w *worker) respond() {
	select {
	case w.release <- struct{}{}:
	default:
	}
}

// served is the metric of its responses that have reached the sidecar.
func (w *worker) served() string {
	return fmt.Sprintf(`remora_endpoint_attempts_total{endpoint=%q,result="served"}`, w.addr)
}

// leave sends a request, and leaves once the application has it.
func (w *worker) leave(t *testing.T, egress string) {
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+egress+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}()
	harness.Receive(t, "the request to arrive", w.begun)
	leave()
	harness.Receive(t, "the client to leave", ended)
}

// sidecars starts one in front of the application, or two with a link between them. It returns the address of the
// listener, and the sidecar that calls the application.
func (w *worker) sidecars(t *testing.T, cancel string, linked bool) (egress string, calls *harness.Process) {
	addrs := harness.FreeAddrs(t, 2)
	const settings = "connect_timeout: 15s, timeout: 2m"
	app := fmt.Sprintf("{discover: static, endpoints: [%q], protocol: http, cancel: %s, %s}", w.addr, cancel, settings)
	if linked {
		calls = harness.Start(t, fmt.Sprintf("loops: 1\nlisteners: [{name: ingress, address: %q, protocol: link, service: app}]\nservices: {app: %s}", addrs[1], app))
		calls.Ready()
		app = fmt.Sprintf("{discover: static, endpoints: [%q], protocol: link, %s}", addrs[1], settings)
	}
	consumer := harness.Start(t, fmt.Sprintf("loops: 1\ntimeouts: {half_close: 0s}\nlisteners: [{name: egress, address: %q, protocol: http}]\nroutes: [{service: app}]\nservices: {app: %s}", addrs[0], app))
	consumer.Ready()
	if !linked {
		calls = consumer
	}
	return addrs[0], calls
}

func unwanted(end string) string {
	return fmt.Sprintf(`remora_unwanted_attempts_total{end=%q}`, end)
}

// TestUnwantedWork: an application that notices the end of its connection stops the work for a client that has left, if
// the setting says so.
func TestUnwantedWork(t *testing.T) {
	for _, linked := range []bool{false, true} {
		t.Run(fmt.Sprintf("linked %t", linked), func(t *testing.T) {
			t.Run("close", func(t *testing.T) {
				w := startWorker(t)
				egress, calls := w.sidecars(t, "close", linked)
				w.leave(t, egress)
				harness.Receive(t, "the application to stop", w.stopped)
				calls.AwaitMetric(unwanted("closed"), 1)
			})
			t.Run("finish", func(t *testing.T) {
				w := startWorker(t)
				egress, calls := w.sidecars(t, "finish", linked)
				w.leave(t, egress)
				calls.AwaitMetric(unwanted("finished"), 1)
				w.respond()
				calls.AwaitMetric(w.served(), 1)
				if len(w.stopped) > 0 {
					t.Error("the application was told that its client has left")
				}
			})
			t.Run("auto", func(t *testing.T) {
				w := startWorker(t)
				egress, calls := w.sidecars(t, "auto", linked)
				told := false
				for requests := 0; !told && requests < 100; requests++ {
					w.leave(t, egress)
					works := time.AfterFunc(300*time.Millisecond, w.respond)
					select {
					case <-w.stopped:
						if told = works.Stop(); !told {
							<-w.release // the request has no use for it
						}
					case <-w.finished:
						// One request at a time: a silent endpoint with several in flight counts as stalled.
						eventually.True(t, "the request to end", func() bool {
							return calls.Metric(w.served())+calls.Metric(unwanted("closed")) > requests
						})
					}
				}
				if n := calls.Metric(unwanted("finished")); !told || n < 8 {
					t.Errorf("an application that works on for long was told: %t, after %v requests that it finished, want at least 8", told, n)
				}
			})
		})
	}
}
