package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/accesslog"
	"github.com/remora-proxy/remora/registry"
)

// accessLine is a line of the access log.
type accessLine struct {
	Time       time.Time `json:"time"`
	Listener   string    `json:"listener"`
	Client     string    `json:"client"`
	Protocol   string    `json:"protocol"`
	Stream     string    `json:"stream"`
	RequestID  string    `json:"request_id"`
	TraceID    string    `json:"trace_id"`
	Method     string    `json:"method"`
	Authority  string    `json:"authority"`
	Path       string    `json:"path"`
	Service    string    `json:"service"`
	Endpoint   string    `json:"endpoint"`
	Outcome    string    `json:"outcome"`
	Status     int       `json:"status"`
	Error      string    `json:"error"`
	BytesIn    int       `json:"bytes_in"`
	BytesOut   int       `json:"bytes_out"`
	DurationMS float64   `json:"duration_ms"`
	QueuedMS   float64   `json:"queued_ms"`
	Attempts   int       `json:"attempts"`
	Retries    int       `json:"retries"`
	Hedges     int       `json:"hedges"`
	HedgeWon   bool      `json:"hedge_won"`
}

// accessFile is the access log of a node.
type accessFile struct {
	path   string
	writer *accesslog.Writer
	counts accesslog.Counts
}

// openAccessLog gives the node the access log that its configuration asks for, in a
// file of the test's.
func (n *node) openAccessLog() {
	if n.cfg.AccessLog.Path == "" {
		return
	}
	n.log = &accessFile{path: filepath.Join(n.m.t.TempDir(), "access.log")}
	q := accesslog.NewQueue(n.cfg.AccessLog.Buffer, n.m.loops, &n.log.counts)
	var err error
	if n.log.writer, err = accesslog.Open(n.log.path, q, nil); err != nil {
		n.m.t.Fatal(err)
	}
	n.proc.Generation().LogTo(q)
}

// lines ends the node's access log and returns what it has.
func (n *node) lines() (all []accessLine) {
	t := n.m.t
	t.Helper()
	n.proc.FlushAccessLog()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := n.log.writer.Close(ctx); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(n.log.path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		var l accessLine
		if err := d.Decode(&l); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		all = append(all, l)
	}
	if c := &n.log.counts; c.Lines.Load() != uint64(len(all)) || c.Overflow.Load()+c.Lost.Load() > 0 {
		t.Errorf("%d lines, counted %d, %d dropped, %d lost", len(all), c.Lines.Load(), c.Overflow.Load(), c.Lost.Load())
	}
	return all
}

// line is the only one.
func (n *node) line() accessLine {
	n.m.t.Helper()
	all := n.lines()
	if len(all) != 1 {
		n.m.t.Fatalf("%d lines, want one: %+v", len(all), all)
	}
	return all[0]
}

const logAll = "access_log: {path: /log}"

// TestAccessLogBothSides: a request is a line on the consumer's side and one on the
// provider's, with one id.
func TestAccessLogBothSides(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, limits: logAll, match: "match: {path: /}, rewrite: {path: /v2/}, "})
	c := m.get("/x?y=%22", "X-Request-Id: abc", "Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	m.do(c)
	m.finish(c)
	m.ok(c)
	m.settled()
	want := accessLine{
		Listener: "egress", Protocol: "http", RequestID: "abc", TraceID: "4bf92f3577b34da6a3ce929d0e0e4736",
		Method: "GET", Authority: "compute", Path: "/x?y=%22", Service: "compute", Endpoint: "10.0.1.1:15006",
		Outcome: "2xx", Status: 200, Attempts: 1,
	}
	for i, n := range m.nodes {
		if i == 1 {
			want.Listener, want.Protocol, want.Service, want.Endpoint = "ingress", "link", "local", "10.0.1.1:8080"
			want.Path = "/v2/x?y=%22"
		}
		got := n.line()
		if since := got.Time.Sub(epoch); since < 0 || since > time.Second || got.Time.Location() != time.UTC {
			t.Errorf("%s: the time is %v", n.host, got.Time)
		}
		if !strings.Contains(got.Client, ":") || got.BytesIn < 20 || got.BytesOut < 20 {
			t.Errorf("%s: client %s, %d bytes in, %d out", n.host, got.Client, got.BytesIn, got.BytesOut)
		}
		if got.DurationMS < 1 || got.DurationMS > c.took.Seconds()*1e3 {
			t.Errorf("%s: took %v ms, of %v", n.host, got.DurationMS, c.took)
		}
		got.Time, got.Client, got.BytesIn, got.BytesOut, got.DurationMS = time.Time{}, "", 0, 0, 0
		if got != want {
			t.Errorf("%s: got\n%+v\nwant\n%+v", n.host, got, want)
		}
	}
}

// TestAccessLogFailures: what the sidecar answers itself has the code that the
// caller sees, whether it was a request or not.
func TestAccessLogFailures(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     meshOptions
		raw   string // instead of a request
		setup func(m *mesh)
		want  accessLine
	}{
		{"no endpoint", meshOptions{}, "", func(m *mesh) { m.consumer.update("compute") },
			accessLine{Service: "compute", Status: 503, Error: "no-endpoint", Attempts: 1}},
		{"no route", meshOptions{match: "match: {path: /none}, "}, "", nil, accessLine{Status: 404, Error: "no-route"}},
		{"deadline", meshOptions{service: ", timeout: 20ms"}, "",
			func(m *mesh) { m.apps[0].delay = func() time.Duration { return time.Minute } },
			accessLine{Service: "compute", Endpoint: "10.0.1.1:8080", Status: 504, Error: "deadline", Attempts: 1}},
		{"rate limit", meshOptions{listener: ", rate_limit: {rate: 1, burst: 1}"}, "", func(m *mesh) { m.warm(1) },
			accessLine{Status: 429, Error: "rate-limited"}},
		{"no request", meshOptions{}, "GET nonsense\r\n\r\n", nil, accessLine{Status: 400, Error: "bad-request"}},
		{"no service left", meshOptions{service: ", max_pending: 1"}, "", func(m *mesh) {
			m.apps[0].delay = func() time.Duration { return time.Minute }
			m.do(m.post(1))
			m.w.Run(50 * time.Millisecond)
		}, accessLine{Service: "compute", Status: 503, Error: "overloaded"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.apps, c.o.direct, c.o.limits = 1, true, "access_log: {path: /log, sample: 0, failed: true}"
			m := newMesh(t, c.o)
			if c.setup != nil {
				c.setup(m)
			}
			m.w.Run(time.Millisecond)
			k := m.get("/x", "X-Request-Id: "+c.name)
			c.want.Method, c.want.Authority, c.want.Path, c.want.RequestID = "GET", "compute", "/x", strings.ReplaceAll(c.name, " ", "")
			k.raw = bytes.ReplaceAll(k.raw, []byte(c.name), []byte(c.want.RequestID))
			if c.raw != "" {
				k.raw = []byte(c.raw)
				c.want.Method, c.want.Authority, c.want.Path, c.want.RequestID = "", "", "", ""
			}
			m.do(k)
			m.finish(k)
			c.want.Listener, c.want.Protocol, c.want.Outcome = "egress", "http", "failed"
			got := m.consumer.line()
			if c.want.Error == "bad-request" {
				c.want.Error = k.code
			}
			if got.Error != k.code || got.Status != k.status {
				t.Errorf("the line says %d %s, the answer %d %s", got.Status, got.Error, k.status, k.code)
			}
			got.Time, got.Client, got.BytesIn, got.DurationMS = time.Time{}, "", 0, 0
			if got != c.want {
				t.Errorf("got\n%+v\nwant\n%+v", got, c.want)
			}
		})
	}
}

// TestAccessLogHedge: a line tells that the hedge won, and where; the provider that
// was frozen tells of a caller who went away.
func TestAccessLogHedge(t *testing.T) {
	m := newMesh(t, meshOptions{service: hedgeOn, limits: logAll})
	m.warm(20)
	m.apps[0].frozen = m.w.Now() + 50*time.Millisecond
	calls := m.burst(3, 10) // one of them meets the frozen replica
	m.finish(calls...)
	m.ok(calls...)
	m.settled()
	won := 0
	for _, l := range m.consumer.lines() {
		if !l.HedgeWon {
			continue
		}
		won++
		if l.Endpoint == "" || l.Endpoint == "10.0.1.1:15006" || l.Hedges != 1 || l.Attempts != 2 || l.Retries != 0 || l.Status != 200 || l.DurationMS < 5 {
			t.Errorf("the hedge that won: %+v", l)
		}
	}
	if n := m.consumer.stats("compute").HedgesWon; won == 0 || won != int(n) {
		t.Fatalf("%d lines of hedges that won, %d have", won, n)
	}
	withdrawn := slices.DeleteFunc(m.nodes[1].lines(), func(l accessLine) bool { return l.Outcome != "cancelled" })
	if len(withdrawn) != won || withdrawn[0].Status != 0 || withdrawn[0].Error != "" {
		t.Errorf("the frozen side logged as withdrawn: %+v", withdrawn)
	}
}

// TestAccessLogRetry: endpoints that were asked in vain count as attempts and
// retries, and the one that answered is named.
func TestAccessLogRetry(t *testing.T) {
	m := newMesh(t, meshOptions{direct: true, limits: logAll, service: ", lb: {slow_start: 0s}"})
	m.consumer.update("compute", registry.Endpoint{Addr: m.apps[0].addr, Weight: 1}, registry.Endpoint{Addr: "10.0.1.1:9", Weight: 1})
	m.w.Run(time.Millisecond)
	calls := m.burst(10, 10)
	m.finish(calls...)
	m.ok(calls...)
	retried := 0
	for _, l := range m.consumer.lines() {
		if l.Endpoint != m.apps[0].addr || l.Attempts != l.Retries+1 || l.Status != 200 {
			t.Errorf("%+v", l)
		}
		retried += l.Retries
	}
	if n := m.consumer.stats("compute").Retries; retried == 0 || retried != int(n) {
		t.Errorf("%d retries in the lines, %d were made", retried, n)
	}
}

// TestAccessLogQueue: the time in the queue for the application is told, of requests
// that were given up there too.
func TestAccessLogQueue(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, provider: ", max_concurrency: 1", limits: logAll})
	m.apps[0].delay = func() time.Duration { return 10 * time.Millisecond }
	calls := m.burst(3, 10)
	m.w.Run(2 * time.Millisecond)
	c := m.do(m.post(10))
	m.w.Run(3 * time.Millisecond)
	m.clients.Do(func() { c.conn.Close() })
	m.finish(calls...)
	m.ok(calls...)
	m.settled()
	var queued []float64
	for _, l := range m.nodes[1].lines() {
		if l.Outcome == "cancelled" {
			if l.QueuedMS <= 0 || l.QueuedMS > 5 || l.Endpoint != "" {
				t.Errorf("given up in the queue: %+v", l)
			}
			continue
		}
		queued = append(queued, math.Round(l.QueuedMS/10))
		if l.DurationMS < l.QueuedMS+10 || l.DurationMS > l.QueuedMS+12 {
			t.Errorf("queued %v ms of %v, and the application takes 10", l.QueuedMS, l.DurationMS)
		}
	}
	slices.Sort(queued)
	if !slices.Equal(queued, []float64{0, 1, 2}) {
		t.Errorf("queued for %v times the application's 10 ms", queued)
	}
}

// TestAccessLogCancelled: a caller who goes away gets no status.
func TestAccessLogCancelled(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true, limits: logAll})
	m.apps[0].delay = func() time.Duration { return 20 * time.Millisecond }
	c := m.do(m.post(10))
	m.w.Run(10 * time.Millisecond)
	m.clients.Do(func() { c.conn.Close() })
	m.settled()
	l := m.consumer.line()
	if l.Outcome != "cancelled" || l.Status != 0 || l.Error != "" || l.Endpoint != m.apps[0].addr || l.BytesOut != 0 {
		t.Errorf("%+v", l)
	}
}

// TestAccessLogSampled: a share of the requests is logged, the same ones on both
// sides.
func TestAccessLogSampled(t *testing.T) {
	m := newMesh(t, meshOptions{limits: "access_log: {path: /log, sample: 0.25}"})
	const requests = 1000
	calls := m.crowd(10, requests/10, 10)
	m.finish(calls...)
	m.ok(calls...)
	m.settled()
	ids := func(lines []accessLine) (ids []string) {
		for _, l := range lines {
			ids = append(ids, l.RequestID)
		}
		return ids
	}
	consumer, provider := ids(m.consumer.lines()), []string{}
	for _, n := range m.nodes[1:] {
		provider = append(provider, ids(n.lines())...)
	}
	slices.Sort(consumer)
	slices.Sort(provider)
	if n := len(consumer); n < 200 || n > 300 {
		t.Errorf("%d of %d requests are logged, at a sample of 0.25", n, requests)
	}
	if !slices.Equal(consumer, provider) {
		t.Errorf("the sides log different requests: %d and %d", len(consumer), len(provider))
	}
}

// TestAccessLogSlowAndFailed: without samples there are lines of what was slow, and
// of what failed, alone.
func TestAccessLogSlowAndFailed(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true, limits: "access_log: {path: /log, sample: 0, slow: 30ms, failed: true}"})
	app := m.apps[0]
	m.warm(20)
	one := func(status int, delay time.Duration) {
		app.status, app.delay = status, func() time.Duration { return delay }
		c := m.post(10)
		m.do(c)
		m.finish(c)
	}
	one(200, 25*time.Millisecond)
	one(404, time.Millisecond) // the application's answer, and a good one
	one(500, time.Millisecond)
	one(200, 31*time.Millisecond)
	var got []string
	for _, l := range m.consumer.lines() {
		got = append(got, fmt.Sprintf("%d %s slow=%t", l.Status, l.Outcome, l.DurationMS >= 30))
	}
	if want := []string{"500 5xx slow=false", "200 2xx slow=true"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestAccessLogDubbo: a call has its interface for a path, on both sides, and one
// that can't begin is logged too.
func TestAccessLogDubbo(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, limits: logAll})
	c := m.caller(egressDubbo)
	c.await(c.call(dubbo.Hessian2, hessianCall(demo, "1.0", "g", "echo", "x")))
	c.await(c.call(dubbo.Hessian2, []byte{0xff}))
	m.settled()
	consumer := m.consumer.lines()
	if len(consumer) != 2 {
		t.Fatalf("%+v", consumer)
	}
	for i, l := range []accessLine{consumer[0], m.nodes[1].line()} {
		want := [][3]string{{"calls", "dubbo", "compute"}, {"ingress", "link", "local"}}[i]
		if got := [3]string{l.Listener, l.Protocol, l.Service}; got != want {
			t.Errorf("got %v, want %v", got, want)
		}
		if l.Method != "echo" || l.Path != demo || l.Status != 200 || l.Attempts != 1 || l.RequestID != "" {
			t.Errorf("%+v", l)
		}
	}
	if l := consumer[1]; l.Outcome != "failed" || l.Error == "" || l.Method != "" || l.Listener != "calls" {
		t.Errorf("a call that can't be read: %+v", l)
	}
}
