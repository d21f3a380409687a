package admin

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/proxy/overload"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// scrape returns the parsed families of /metrics.
func (s *sidecar) scrape() map[string]*dto.MetricFamily {
	s.t.Helper()
	status, body := s.get("/metrics")
	if status != 200 {
		s.t.Fatalf("/metrics has status %d %s", status, body)
	}
	return parse(s.t, body)
}

// parse parses a page as Prometheus does, and fails the test if a series is there twice.
func parse(t testing.TB, page string) map[string]*dto.MetricFamily {
	t.Helper()
	seen := map[string]bool{}
	for line := range strings.Lines(page) {
		series := line[:strings.LastIndexByte(line, ' ')]
		if line[0] != '#' && seen[series] {
			t.Errorf("%s is there twice", series)
		}
		seen[series] = true
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// value returns the value of the only series with these labels ("service=x,outcome=2xx"),
// or -1.
func value(families map[string]*dto.MetricFamily, name, labels string) float64 {
	for _, m := range families[name].GetMetric() {
		var have []string
		for _, l := range m.GetLabel() {
			have = append(have, l.GetName()+"="+l.GetValue())
		}
		if strings.Join(have, ",") == labels {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return -1
}

// TestMetrics: known requests are counted in all metrics that they concern.
func TestMetrics(t *testing.T) {
	s := newSidecar(t, twoServices)
	s.api.Enter(Serving)
	app := newApp(t)
	s.update("compute", app)
	s.update("empty")
	for path, n := range map[string]int{"/": 5, "/302": 4, "/404": 3, "/500": 2, "/none": 1} {
		for range n {
			s.request("GET", path)
		}
	}
	f := s.scrape()
	for _, c := range []struct {
		name, labels string
		want         float64
	}{
		{"remora_build_info", "version=v1", 1},
		{"remora_phase", "phase=serving", 1},
		{"remora_phase", "phase=draining", 0},
		{"remora_loops", "", loopCount},
		{"remora_requests_total", "outcome=2xx,service=compute", 5},
		{"remora_requests_total", "outcome=3xx,service=compute", 4},
		{"remora_requests_total", "outcome=4xx,service=compute", 3},
		{"remora_requests_total", "outcome=5xx,service=compute", 2},
		{"remora_requests_total", "outcome=failed,service=compute", 0},
		{"remora_requests_total", "outcome=failed,service=empty", 1},
		{"remora_errors_total", "code=no-endpoint,listener=egress", 1},
		{"remora_endpoint_attempts_total", "endpoint=" + app + ",result=served,service=compute", 12},
		{"remora_endpoint_attempts_total", "endpoint=" + app + ",result=failure,service=compute", 2},
		{"remora_endpoint_attempts_total", "endpoint=" + app + ",result=broken,service=compute", 0},
		{"remora_endpoint_retries_total", "endpoint=" + app + ",service=compute", 0},
		{"remora_requests_pending", "service=compute", 0},
		{"remora_slots_in_use", "service=compute", 0},
		{"remora_slots_limit", "service=compute", 8},
		{"remora_endpoints", "service=compute", 1},
		{"remora_endpoints", "service=empty", 0},
		{"remora_endpoint_pending", "endpoint=" + app + ",service=compute", 0},
		{"remora_endpoints_changed_timestamp_seconds", "service=compute,source=live", 1700000000},
		{"remora_hedge_delay_seconds", "route=routes[0],service=compute", 0.003},
		{"remora_hedges_total", "result=sent,service=compute", 0},
		{"remora_registry_connected", "", 1}, // without DNS
		{"remora_source_up", "source=etcd", 1},
		{"remora_source_up", "source=dns", 0},
		{"remora_source_failure", "code=unresolved,source=dns", 1},
		{"remora_source_changed_timestamp_seconds", "source=dns", 1700000000},
		{"remora_source_services", "source=etcd", 2},
		{"remora_source_endpoints_kept", "source=dns", 3},
		{"remora_source_services_doubted", "source=dns", 0},
		{"remora_source_records_unusable", "source=etcd", 5},
		{"remora_registration_state", "address=10.0.0.1:1,service=me,state=registered", 1},
		{"remora_reactor_accepted_total", "", 15},
	} {
		if got := value(f, c.name, c.labels); got != c.want {
			t.Errorf("%s{%s} is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	for _, name := range []string{
		"remora_request_bytes_total direction=in,service=compute",
		"remora_request_bytes_total direction=out,service=compute",
		"remora_endpoint_bytes_total direction=in,endpoint=" + app + ",service=compute",
		"remora_endpoint_bytes_total direction=out,endpoint=" + app + ",service=compute",
	} {
		family, labels, _ := strings.Cut(name, " ")
		// A head of some 60 bytes at least, 14 times.
		if got := value(f, family, labels); got < 14*60 || got > 14*1000 {
			t.Errorf("%s is %v", name, got)
		}
	}
	turns, events := 0.0, 0.0
	for _, m := range f["remora_loop_turn_duration_seconds"].GetMetric() {
		turns += float64(m.GetHistogram().GetSampleCount())
	}
	for _, m := range f["remora_loop_turn_events"].GetMetric() {
		events += m.GetHistogram().GetSampleSum()
	}
	if turns == 0 || events < 15 || len(f["remora_loop_turn_events"].GetMetric()) != loopCount {
		t.Errorf("%v turns of %v events", turns, events)
	}
	attempts := f["remora_endpoint_attempt_duration_seconds"].GetMetric()[0].GetHistogram()
	if attempts.GetSampleCount() != 12 || attempts.GetSampleSum() <= 0 {
		t.Errorf("histogram %v", attempts)
	}
	for _, m := range f["remora_request_duration_seconds"].GetMetric() {
		if m.GetLabel()[0].GetValue() != "compute" {
			continue
		}
		h := m.GetHistogram()
		if h.GetSampleCount() != 12 || h.GetSampleSum() <= 0 || len(h.GetBucket()) != len(requestBounds)+1 {
			t.Errorf("histogram %v", h)
		}
	}
}

// TestCountsOfLoops: the counts of all loops are added.
func TestCountsOfLoops(t *testing.T) {
	loop := func(n int) stats.WorkerReport {
		c := uint64(n)
		st := stats.WorkerStats{
			Connections: n, Replays: 2 * c, WriteTimeouts: 3 * c, Shed: 4 * c, ShedIdle: 5 * c, Redirects: 6 * c, Responses: 7 * c,
			LinkFlushes: 8 * c, LinkBytesIn: 9 * c, LinkBytesOut: 10 * c, Cancels: 11 * c, CancelsSaved: 12 * c,
			Errors: stats.Errors{{Listener: "in", Code: "x"}: 13 * c}, Unrouted: map[string]uint64{"in": 14 * c}, HTTP2: map[string]uint64{"y": 15 * c},
		}
		st.Handoffs[0] = 16 * c
		for range n {
			st.LinkBatches.Observe(17)
		}
		return stats.WorkerReport{Stats: st, Uncounted: 18 * int64(n)}
	}
	reports := []stats.WorkerReport{loop(1), loop(10)}
	c, p := &scraper{s: newSidecar(t, twoServices).api}, newPage()
	c.process(p, reports)
	c.links(p, reports)
	p.finish()
	f := parse(t, p.text.String())
	for i, name := range []string{
		"downstream_connections", "replays_total", "write_timeouts_total", "shed_connections_total", "shed_idle_connections_total",
		"route_responses_total kind=redirect", "route_responses_total kind=respond", "link_flushes_total", "link_bytes_total direction=received",
		"link_bytes_total direction=sent", "link_cancels_total", "link_cancels_saved_total", "errors_total code=x,listener=in",
		"requests_unrouted_total listener=in", "http2_errors_total reason=y", "stream_departures_total kind=" + stats.Handoff(0).String(),
	} {
		name, labels, _ := strings.Cut(name, " ")
		if got, want := value(f, prefix+name, labels), float64(11*(i+1)); got != want {
			t.Errorf("%s{%s} is %v, want %v", name, labels, got, want)
		}
	}
	h := f["remora_link_batch_messages"].GetMetric()[0].GetHistogram()
	if h.GetSampleCount() != 11 || h.GetSampleSum() != 11*17 {
		t.Errorf("%v", h)
	}
	if len(h.GetBucket()) < stats.SizeBuckets-1 {
		t.Errorf("%d buckets", len(h.GetBucket()))
	}
	for i, bucket := range h.GetBucket() {
		if at := bucket.GetUpperBound(); i < stats.SizeBuckets-1 && at != float64(int(1)<<i) {
			t.Errorf("bucket %d is up to %v", i, at)
		}
	}
	if got := value(f, "remora_buffered_bytes", ""); got != 11*18 {
		t.Errorf("%v bytes are buffered", got)
	}
	if got := c.s.buffered([]stats.WorkerReport{{Uncounted: -1}}); got != 0 { // another loop was asked before
		t.Errorf("%d bytes are buffered", got)
	}
	errors := listenerErrors(append(reports, stats.WorkerReport{Stats: stats.WorkerStats{Errors: stats.Errors{{Code: "x"}: 1}}}))
	if in, none := errors["in"], errors[""]; len(errors) != 2 || in.Errors["x"] != 11*13 || in.Unrouted != 11*14 || none.Errors["x"] != 1 || none.Unrouted != 0 {
		t.Errorf("errors %+v", errors)
	}
}

// TestProcessMetrics: what the kernel says of this process is plausible.
func TestProcessMetrics(t *testing.T) {
	s := newSidecar(t, twoServices)
	used := func() float64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return (time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())).Seconds()
	}
	before := used()
	f := s.scrape()
	for name, between := range map[string][2]float64{
		"process_cpu_seconds_total":     {before, used()},
		"process_resident_memory_bytes": {1 << 20, 1 << 36},
		"process_open_fds":              {5, 1e6},
		"process_max_fds":               {5, 1 << 62},
		"process_start_time_seconds":    {float64(s.api.began.Unix()), float64(s.api.began.Unix()) + 1},
	} {
		if got := value(f, name, ""); got < between[0] || got > between[1] {
			t.Errorf("%s is %v, want %v", name, got, between)
		}
	}
	eventually.Nil(t, "the descriptors", func() error {
		want, known := overload.OpenFiles() // not on Linux before 6.2
		if got, _ := openFDs(); known && got != float64(want) {
			return fmt.Errorf("%v descriptors, want %d", got, want) // or the process has opened one in between
		}
		return nil
	})
}

// TestFamilies: every declared family is exported, and every exported one is declared.
func TestFamilies(t *testing.T) {
	s := newSidecar(t, twoServices)
	s.update("compute", newApp(t))
	s.update("empty")
	s.request("GET", "/none") // for a series of remora_errors_total
	s.request("GET", "/grpc") // for those of remora_grpc_requests_total
	s.misuse()
	f := s.scrape()
	for _, m := range f["remora_grpc_requests_total"].GetMetric() {
		code, n := m.GetLabel()[0].GetValue(), m.GetCounter().GetValue()
		if want := map[string]float64{"unavailable": 1}[code]; n != want {
			t.Errorf("%v calls with %s, want %v", n, code, want)
		}
	}
	declared := map[string]bool{}
	for _, want := range families {
		name := "remora_" + want.name
		declared[name] = true
		got := f[name]
		if got == nil {
			if want != endpointReported { // has series only if a sidecar reports
				t.Errorf("%s has no series", name)
			}
			continue
		}
		if kind := strings.ToLower(got.GetType().String()); kind != want.kind {
			t.Errorf("%s is a %s, declared as %s", name, kind, want.kind)
		}
		if !strings.HasSuffix(want.help, ".") {
			t.Errorf("%s: its help is not a sentence", name)
		}
	}
	for name := range f {
		if strings.HasPrefix(name, "remora_") && !declared[name] {
			t.Errorf("%s is exported and not declared", name)
		}
	}
}

// TestConventions: Prometheus' own linter accepts the families of Remora.
func TestConventions(t *testing.T) {
	s := newSidecar(t, twoServices)
	s.update("compute", newApp(t))
	s.request("GET", "/none")
	_, page := s.get("/metrics")
	problems, err := promlint.New(strings.NewReader(page)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, prefix) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// TestBounds: each bound of a family is a bound of the core's histogram, so no count is
// lost.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		of     *family
		bounds []time.Duration
		labels []string
	}{
		{duration, requestBounds, []string{"x"}},
		{attemptDuration, attemptBounds, []string{"x", "y"}},
		{loopTurns, turnBounds, []string{"0"}},
	} {
		var h stats.Histogram
		for _, b := range c.bounds {
			h.Observe(b)
		}
		p := newPage()
		p.times(c.of, &h, c.labels...)
		p.finish()
		buckets := parse(t, p.text.String())["remora_"+c.of.name].GetMetric()[0].GetHistogram().GetBucket()
		if len(buckets) != len(c.bounds)+1 {
			t.Fatalf("%s: %d buckets of %d", c.of.name, len(buckets), len(c.bounds))
		}
		for i, bound := range c.bounds {
			if b := buckets[i]; b.GetUpperBound() != bound.Seconds() || b.GetCumulativeCount() != uint64(i+1) {
				t.Errorf("%s: bucket %d: %v", c.of.name, i, b)
			}
		}
	}
}

// TestPage: the text has every series that was put, with any labels and numbers. A page
// that is used again has nothing of the previous scrape.
func TestPage(t *testing.T) {
	labels := []string{`a "quoted\" path`, "two\nlines", "", "ünïcode", `ends in \`}
	numbers := []float64{0, -3, 1 << 52, 1 << 60, 1.5, 1e-9, 1.7e9 + 1e-3, math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN()}
	p := newPage()
	for range 2 {
		p.reset()
		for _, l := range labels {
			for i, n := range numbers {
				p.put(endpointPending, n, l, strconv.Itoa(i))
			}
		}
		p.put(loops, 1_000_000)
		p.finish()
	}
	if text := p.text.String(); !strings.HasSuffix(text, "\nremora_loops 1000000\n") && !strings.Contains(text, "\nremora_loops 1000000\n#") {
		t.Errorf("a count is not written as people write it:\n%s", text)
	}
	f := parse(t, p.text.String())
	if n := len(f["remora_endpoint_pending"].GetMetric()); n != len(labels)*len(numbers) {
		t.Errorf("%d series", n)
	}
	for _, l := range labels {
		for i, n := range numbers {
			if got := value(f, "remora_endpoint_pending", fmt.Sprintf("endpoint=%d,service=%s", i, l)); got != n && !(math.IsNaN(got) && math.IsNaN(n)) {
				t.Errorf("%q: %v became %v", l, n, got)
			}
		}
	}
}

// TestManyEndpoints: the number of series of a service with many endpoints is limited.
func TestManyEndpoints(t *testing.T) {
	s := newSidecar(t, twoServices)
	var addrs []string
	for i := range 3 * maxEndpointSeries {
		addrs = append(addrs, fmt.Sprintf("10.0.%d.%d:80", i/256, i%256))
	}
	s.update("compute", addrs...)
	f := s.scrape()
	if n := len(f["remora_endpoint_pending"].GetMetric()); n != maxEndpointSeries {
		t.Errorf("%d endpoints have series", n)
	}
	if n := value(f, "remora_endpoints", "service=compute"); n != 3*maxEndpointSeries {
		t.Errorf("%v endpoints are known", n)
	}
}

// TestScrapesAtOnce: the number of scrapes in progress is limited. Each has a page of its
// own, and the content type that Prometheus requires.
func TestScrapesAtOnce(t *testing.T) {
	c := newScraper(newSidecar(t, twoServices).api).(*scraper)
	scrape := func() *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		c.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return rec
	}
	for range maxScrapes {
		c.slots <- struct{}{}
	}
	if got := scrape().Code; got != http.StatusServiceUnavailable {
		t.Errorf("a scrape above the limit received status %d", got)
	}
	for range maxScrapes {
		<-c.slots
	}
	responses := make(chan *httptest.ResponseRecorder, 5*maxScrapes)
	for range maxScrapes {
		go func() {
			for range 5 {
				responses <- scrape()
			}
		}()
	}
	for range 5 * maxScrapes {
		rec := <-responses
		if is := rec.Header().Get("Content-Type"); rec.Code != http.StatusOK || is != "text/plain; version=0.0.4; charset=utf-8" {
			t.Fatalf("has status %d, %q", rec.Code, is)
		}
		if f := parse(t, rec.Body.String()); value(f, "remora_loops", "") != loopCount || f["go_info"] == nil {
			t.Errorf("%d families", len(f))
		}
	}
}

// TestScrapesUnderLoad: reports are read while the loops count on. The race detector
// checks that they share no memory.
func TestScrapesUnderLoad(t *testing.T) {
	s := newSidecar(t, twoServices)
	s.update("compute", newApp(t))
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 50 {
				s.request("GET", "/none")
				s.request("GET", "/")
			}
		})
	}
	done := make(chan struct{})
	go func() { clients.Wait(); close(done) }()
	last := 0.0
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		now := value(s.scrape(), "remora_requests_total", "outcome=2xx,service=compute")
		if now < last {
			t.Fatalf("a counter went from %v to %v", last, now)
		}
		last = now
	}
	if last != 200 {
		t.Errorf("%v requests were counted", last)
	}
}
