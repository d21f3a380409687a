package admin

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/remora-proxy/remora/proxy"
)

var update = flag.Bool("update", false, "rewrite testdata/metrics.txt")

// scrape parses /metrics.
func (s *sidecar) scrape() map[string]*dto.MetricFamily {
	s.t.Helper()
	status, body := s.get("/metrics")
	if status != 200 {
		s.t.Fatalf("/metrics answered %d %s", status, body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	return families
}

// value is the one series with these labels, "service=x,outcome=2xx", or -1.
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

// TestMetrics sends known requests and looks for all of them.
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
		{"remora_errors_total", "code=no-endpoint", 1},
		{"remora_requests_pending", "service=compute", 0},
		{"remora_slots_in_use", "service=compute", 0},
		{"remora_slots_limit", "service=compute", 8},
		{"remora_endpoints", "service=compute", 1},
		{"remora_endpoints", "service=empty", 0},
		{"remora_endpoint_pending", "endpoint=" + app + ",service=compute", 0},
		{"remora_endpoints_changed_timestamp_seconds", "service=compute,source=live", 1700000000},
		{"remora_hedge_delay_seconds", "route=routes[0],service=compute", 0.003},
		{"remora_hedges_total", "result=sent,service=compute", 0},
		{"remora_registry_connected", "", 1},
		{"remora_registration_state", "address=10.0.0.1:1,service=me,state=registered", 1},
		{"remora_reactor_accepted_total", "", 15},
	} {
		if got := value(f, c.name, c.labels); got != c.want {
			t.Errorf("%s{%s} is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	for _, m := range f["remora_request_duration_seconds"].GetMetric() {
		if m.GetLabel()[0].GetValue() != "compute" {
			continue
		}
		h := m.GetHistogram()
		if h.GetSampleCount() != 14 || h.GetSampleSum() <= 0 || len(h.GetBucket()) != len(bucketBounds)+1 {
			t.Errorf("histogram %v", h)
		}
	}
}

// TestMetricNames: dashboards and alerts rely on the names and types.
func TestMetricNames(t *testing.T) {
	const golden = "testdata/metrics.txt"
	s := newSidecar(t, twoServices)
	s.update("compute", newApp(t))
	s.update("empty")
	s.request("GET", "/none") // for a series of remora_errors_total
	var lines []string
	for name, family := range s.scrape() {
		if strings.HasPrefix(name, "remora_") {
			lines = append(lines, fmt.Sprintf("%s %s", name, strings.ToLower(family.GetType().String())))
		}
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("names differ from %s (go test -update rewrites it):\n%s", golden, got)
	}
	// endpoint_reported has series only where a sidecar reports.
	if len(all) != len(lines)+1 {
		t.Errorf("%d families are described, %d have series", len(all), len(lines))
	}
	for _, name := range []string{"go_goroutines", "process_open_fds"} {
		if s.scrape()[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestBucketBounds: each is a bound of the core's histogram, so no count is lost.
func TestBucketBounds(t *testing.T) {
	var h proxy.Histogram
	for _, b := range bucketBounds {
		h.Observe(b)
	}
	var m dto.Metric
	if err := latency(&h, "x").Write(&m); err != nil {
		t.Fatal(err)
	}
	buckets := m.GetHistogram().GetBucket()
	if len(buckets) != len(bucketBounds) {
		t.Fatalf("%d buckets of %d", len(buckets), len(bucketBounds))
	}
	for i, b := range buckets {
		if b.GetUpperBound() != bucketBounds[i].Seconds() || b.GetCumulativeCount() != uint64(i+1) {
			t.Errorf("bucket %d: %v", i, b)
		}
	}
}

// TestManyEndpoints: a service with very many has a bounded number of series.
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

// TestScrapesUnderLoad: reports are read while the loops go on writing what they
// were made from; the race detector has an eye on it.
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
