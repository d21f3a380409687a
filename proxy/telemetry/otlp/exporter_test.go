package otlp

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// timeout bounds each wait of a test.
const timeout = time.Minute

// collector is a receiver whose responses the test chooses.
type collector struct {
	*httptest.Server
	t       *testing.T
	respond func(n int, w http.ResponseWriter, r *http.Request) // to the n-th export, from 1
	exports atomic.Int32
	got     chan *tracepb.TracesData
	header  chan http.Header
}

func newCollector(t *testing.T, respond func(n int, w http.ResponseWriter, r *http.Request)) *collector {
	c := &collector{t: t, respond: respond, got: make(chan *tracepb.TracesData, 64), header: make(chan http.Header, 64)}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	data := &tracepb.TracesData{}
	if err = errors.Join(err, proto.Unmarshal(body, data)); err != nil || r.Method != "POST" || r.URL.Path != "/v1/traces" {
		c.t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	n := c.exports.Add(1)
	c.got <- data
	c.header <- r.Header
	if c.respond != nil {
		c.respond(int(n), w, r)
	}
}

// config returns a configuration with which each record is exported at once.
func (c *collector) config() *config.Tracing {
	return &config.Tracing{Endpoint: c.URL, ServiceName: "shop", Queue: 1, Timeout: timeout}
}

func newExporter(t *testing.T, c *config.Tracing) *Exporter {
	e := New(Options{Node: "n1", Version: "v1", Logger: slog.New(slog.DiscardHandler)})
	e.Configure(c)
	return e
}

// closeExporter closes e, which must finish its exports in time.
func closeExporter(t *testing.T, e *Exporter) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		t.Error(err)
	}
}

func (c *collector) next() *tracepb.TracesData {
	c.t.Helper()
	select {
	case d := <-c.got:
		return d
	case <-time.After(timeout):
		c.t.Fatal("timeout waiting for an export")
		panic("not reached")
	}
}

// awaitStats waits until the counts of spans are as given.
func awaitStats(t *testing.T, e *Exporter, exported, full, lost uint64) {
	t.Helper()
	want := Stats{exported, full, lost}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(timeout); e.Stats() != want; <-look.C {
		if time.Now().After(end) {
			t.Fatalf("%+v, want %+v", e.Stats(), want)
		}
	}
}

// record returns a request without a sent attempt: it has one span.
func record(n byte) *trace.Record {
	return &trace.Record{
		Context: trace.Context{Trace: trace.TraceID{n, 1}, Span: trace.SpanID{n, 2}, Flags: 1},
		Method:  "GET", Path: "/", Status: 200, Attempts: make([]trace.Attempt, 3)[:3:3],
	}
}

func sent(r *trace.Record, span byte) *trace.Attempt {
	a := &r.Attempts[span-1]
	a.Span = trace.SpanID{span}
	return a
}

func one() *trace.Record {
	r := record(1)
	sent(r, 1)
	return r
}

func TestExport(t *testing.T) {
	c := newCollector(t, nil)
	cfg := c.config()
	cfg.Headers, cfg.Queue = map[string]string{"Authorization": "Bearer x", "Content-Type": "text/plain"}, 100
	cfg.Endpoint += "/"
	e := newExporter(t, cfg)
	for i := range byte(3) {
		e.Put(record(i + 1))
	}
	closeExporter(t, e)
	if st := e.Stats(); st != (Stats{Exported: 3}) {
		t.Errorf("at the end: %+v", st)
	}
	d := c.next()
	if n := len(d.ResourceSpans[0].ScopeSpans[0].Spans); n != 3 {
		t.Errorf("%d spans in one export, want 3", n)
	}
	h := <-c.header
	if h.Get("Authorization") != "Bearer x" || h.Get("Content-Type") != "application/x-protobuf" {
		t.Errorf("headers %v", h)
	}
	e.Put(record(1))
	awaitStats(t, e, 3, 1, 0)
}

// TestBatchDelay: the first record of a batch waits for others, but not long, and not when the batch is full.
func TestBatchDelay(t *testing.T) {
	c := newCollector(t, nil)
	c.Config.SetKeepAlivesEnabled(false) // the clock stands still while there is a connection
	synctest.Test(t, func(t *testing.T) {
		cfg := c.config()
		cfg.Queue = 100
		e := newExporter(t, cfg)
		sent := uint64(0)
		for _, batch := range []struct {
			records int
			wait    time.Duration
		}{{1, batchDelay}, {99, batchDelay}, {100, 0}, {1, batchDelay}} {
			began := time.Now()
			for range batch.records {
				e.Put(record(1))
			}
			sent += uint64(batch.records)
			awaitStats(t, e, sent, 0, 0)
			if waited := time.Since(began).Truncate(10 * time.Millisecond); waited != batch.wait {
				t.Errorf("%d records are exported after %v, want %v", batch.records, waited, batch.wait)
			}
		}
		closeExporter(t, e)
	})
}

// The connection to a receiver closes when another takes its place, and when the Exporter closes.
func TestConnectionsClose(t *testing.T) {
	e := New(Options{Logger: slog.New(slog.DiscardHandler)})
	var closed [2]chan struct{}
	for i := range closed {
		c := newCollector(t, nil)
		c.Close()
		c.Server = httptest.NewUnstartedServer(c)
		closed[i] = make(chan struct{})
		c.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				close(closed[i])
			}
		}
		c.Start()
		t.Cleanup(c.Close)
		e.Configure(c.config())
		e.Put(record(1))
		awaitStats(t, e, uint64(i+1), 0, 0)
	}
	closeExporter(t, e)
	const idleTimeout = time.Minute // of connections, which close then in any case
	for i, c := range closed {
		select {
		case <-c:
		case <-time.After(idleTimeout / 2):
			t.Errorf("the connection to receiver %d is open", i)
		}
	}
}

// The log says when exports begin to fail, and when they are accepted again.
func TestLogs(t *testing.T) {
	var log bytes.Buffer
	e := New(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	failed := errors.New("failed")
	for _, err := range []error{nil, failed, failed, failed, nil, nil, failed} {
		e.logResult(err)
	}
	var got []string
	for line := range strings.Lines(log.String()) {
		_, message, _ := strings.Cut(line, "level=")
		got = append(got, strings.TrimSpace(message))
	}
	want := []string{
		`WARN msg="spans are not exported" error=failed`, `INFO msg="spans are exported again"`, `WARN msg="spans are not exported" error=failed`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// The log says when spans are not exported, and when they are exported again.
func TestLogOfExports(t *testing.T) {
	var log bytes.Buffer
	c := newCollector(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	e := New(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	e.Configure(c.config())
	for i := range uint64(2) {
		e.Put(record(1))
		awaitStats(t, e, i, 0, 1)
	}
	closeExporter(t, e)
	for _, text := range []string{"spans are not exported", "spans are exported again"} {
		if n := strings.Count(log.String(), text); n != 1 {
			t.Errorf("the log has %q %d times: %s", text, n, log.String())
		}
	}
}

// Exports use HTTP/1.1 even if the receiver offers HTTP/2. A certificate of one of
// the system's authorities is accepted.
func TestHTTPS(t *testing.T) {
	version := make(chan string, 1)
	c := newCollector(t, func(_ int, _ http.ResponseWriter, r *http.Request) { version <- r.Proto })
	c.Close()
	c.Server = httptest.NewUnstartedServer(c)
	c.EnableHTTP2 = true
	c.StartTLS()
	t.Cleanup(c.Close)
	authorities := filepath.Join(t.TempDir(), "authorities.pem")
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw})
	must.WriteFile(t, authorities, authority)
	t.Setenv("SSL_CERT_FILE", authorities) // the process reads it once; no other test needs it
	e := newExporter(t, c.config())
	e.Put(one())
	awaitStats(t, e, 2, 0, 0)
	if got := <-version; got != "HTTP/1.1" {
		t.Errorf("exported by %s", got)
	}
	closeExporter(t, e)
}

// A receiver that hangs costs spans, but Put does not wait.
func TestHungReceiver(t *testing.T) {
	hang := make(chan struct{})
	c := newCollector(t, func(int, http.ResponseWriter, *http.Request) { <-hang })
	cfg := c.config()
	cfg.Queue = 2
	e := newExporter(t, cfg)
	e.Put(one())
	e.Put(one())
	c.next() // the receiver has both
	for range 5 {
		e.Put(one()) // must not hang
	}
	awaitStats(t, e, 0, 6, 0)
	close(hang)
	awaitStats(t, e, 8, 6, 0)
	closeExporter(t, e)
}

func TestTimeout(t *testing.T) {
	c := newCollector(t, func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	cfg := c.config()
	cfg.Timeout = 50 * time.Millisecond
	e := newExporter(t, cfg)
	e.Put(one())
	awaitStats(t, e, 0, 0, 2)
	closeExporter(t, e)
}

// If no receiver listens, retries end with the timeout.
func TestNoReceiver(t *testing.T) {
	c := newCollector(t, nil)
	c.Close()
	cfg := c.config()
	cfg.Timeout = 300 * time.Millisecond
	e := newExporter(t, cfg)
	e.Put(one())
	awaitStats(t, e, 0, 0, 2)
	closeExporter(t, e)
}

func TestResponses(t *testing.T) {
	for _, c := range []struct {
		name           string
		status         int // of the first response; later ones are 200
		header         string
		body           []byte
		exports        int32
		exported, lost uint64
	}{
		{"accepted", 200, "", nil, 1, 2, 0},
		{"accepted in part", 200, "", []byte{0x0a, 2, 8, 1}, 1, 1, 1},
		{"more rejected than sent", 200, "", []byte{0x0a, 2, 8, 99}, 1, 0, 2},
		{"invalid body", 200, "", []byte{0x0a, 9, 8}, 1, 2, 0},
		{"busy", 503, "", nil, 2, 2, 0},
		{"too many", 429, "0", nil, 2, 2, 0},
		{"gateway", 502, "", nil, 2, 2, 0},
		{"gateway timeout", 504, "", nil, 2, 2, 0},
		{"accepted, with another status", 202, "", nil, 1, 2, 0},
		{"refused", 400, "", nil, 1, 0, 2},
		{"server error", 500, "", nil, 1, 0, 2},
		{"redirect", 307, "", nil, 1, 0, 2},
		{"no response", 0, "", nil, 2, 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newCollector(t, func(n int, w http.ResponseWriter, _ *http.Request) {
				switch {
				case n > 1:
					return
				case c.status == 0:
					panic(http.ErrAbortHandler) // closes the connection
				}
				if c.header != "" {
					w.Header().Set("Retry-After", c.header)
				}
				w.Header().Set("Location", "/v1/traces")
				w.WriteHeader(c.status)
				_, _ = w.Write(c.body)
			})
			e := newExporter(t, r.config())
			e.Put(one())
			awaitStats(t, e, c.exported, 0, c.lost)
			closeExporter(t, e)
			r.Close() // waits for the handlers
			if n := r.exports.Load(); n != c.exports {
				t.Errorf("%d exports, want %d", n, c.exports)
			}
		})
	}
}

// A receiver may say how long the pause before a retry is at least.
func TestRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{"": 0, "10": 10 * time.Second, "65535": 65535 * time.Second, "65536": 0, "soon": 0} {
		c := newCollector(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", value)
			w.WriteHeader(503)
		})
		_, err := newReceiver(c.config()).try(t.Context(), nil)
		var f *failure
		if !errors.As(err, &f) || !f.retryable || f.after != want {
			t.Errorf("%q: %+v, want a pause of %s", value, f, want)
		}
	}
}

// TestRetryPause: an export is sent again after the pause that the receiver demands, or else soon.
func TestRetryPause(t *testing.T) {
	for value, want := range map[string]time.Duration{"": 0, "0": 0, "10": 10 * time.Second, "30": 30 * time.Second} {
		c := newCollector(t, func(n int, w http.ResponseWriter, _ *http.Request) {
			if n == 1 {
				w.Header().Set("Retry-After", value)
				w.WriteHeader(503)
			}
		})
		c.Config.SetKeepAlivesEnabled(false) // the clock stands still while there is a connection
		synctest.Test(t, func(t *testing.T) {
			e := newExporter(t, c.config())
			began := time.Now()
			e.Put(record(1))
			awaitStats(t, e, 1, 0, 0)
			if waited := time.Since(began); waited < max(want, firstPause/2) || waited > want+2*firstPause {
				t.Errorf("%q: the export is accepted after %v, want %v or a little later", value, waited, want)
			}
			closeExporter(t, e)
		})
	}
}

// Close returns in time if the receiver hangs, or demands a long pause before a retry.
func TestCloseTimeout(t *testing.T) {
	for _, respond := range []func(int, http.ResponseWriter, *http.Request){
		func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(503)
		},
	} {
		c := newCollector(t, respond)
		cfg := c.config()
		cfg.Timeout = time.Hour
		e := newExporter(t, cfg)
		e.Put(one())
		c.next()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_ = e.Close(ctx) // must not hang
		cancel()
		awaitStats(t, e, 0, 0, 2)
	}
}

// An Exporter that is off drops all records. Records that are queued when it is
// switched off are still exported, and records after a change go to the new receiver.
func TestConfigure(t *testing.T) {
	off := &config.Tracing{}
	e := newExporter(t, off)
	e.Put(one())
	awaitStats(t, e, 0, 2, 0)
	first, second := newCollector(t, nil), newCollector(t, nil)
	e.Configure(first.config())
	e.Put(one())
	first.next()
	awaitStats(t, e, 2, 2, 0)
	other := second.config()
	other.ServiceName, other.Queue = "mill", 100
	e.Configure(other)
	e.Put(one())
	e.Configure(off)
	e.Put(one())
	d := second.next()
	awaitStats(t, e, 4, 4, 0)
	if got := fmt.Sprint(attributes(d.ResourceSpans[0].Resource.Attributes)); got != "[service.name=mill service.instance.id=n1]" {
		t.Errorf("resource %s", got)
	}
	closeExporter(t, e)
}

// An Exporter that was never configured closes at once.
func TestCloseUnconfigured(t *testing.T) {
	e := New(Options{})
	closeExporter(t, e)
	e.Put(one())
	awaitStats(t, e, 0, 2, 0)
}

func BenchmarkPut(b *testing.B) {
	var e Exporter
	e.queued.resize(1 << 16)
	r := one()
	b.ReportAllocs()
	for b.Loop() {
		e.mu.Lock()
		e.queued.n = 0
		e.mu.Unlock()
		e.Put(r)
	}
}
