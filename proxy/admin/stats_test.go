package admin

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// decode returns the JSON of a response of the API.
func decode[T any](s *sidecar, path string) (v T) {
	s.t.Helper()
	status, body := s.get(path)
	if err := json.Unmarshal([]byte(body), &v); err != nil || status != http.StatusOK {
		s.t.Fatalf("%s has status %d %s: %v", path, status, body, err)
	}
	return v
}

func TestStats(t *testing.T) {
	s := newSidecar(t, twoServices)
	s.api.Enter(Serving)
	app := newApp(t)
	s.update("compute", app)
	s.update("empty")
	s.request("GET", "/")
	before := decode[Stats](s, "/stats")
	for path, n := range map[string]int{"/": 3, "/500": 2, "/none": 1} {
		for range n {
			s.request("GET", path)
		}
	}
	now := decode[Stats](s, "/stats")
	if now.Version != "v1" || now.Phase != "serving" || now.Uptime <= before.Uptime || now.Errors["no-endpoint"] != 1 ||
		len(now.Loops) != loopCount || len(now.Bounds) != stats.HistogramBuckets-1 || now.BufferedMax != 256<<20 {
		t.Errorf("%+v", now)
	}
	if turns := sum(now.Loops[0].Turns) + sum(now.Loops[1].Turns); turns == 0 || now.Loops[0].Events+now.Loops[1].Events < 7 {
		t.Errorf("%d turns: %+v", turns, now.Loops)
	}
	svc, was := now.Services["compute"], before.Services["compute"]
	d := svc.Delta(&was)
	if d.Outcomes["2xx"] != 3 || d.Outcomes["5xx"] != 2 || d.Outcomes["failed"] != 0 || sum(d.Counts) != 3 || d.Latency <= 0 ||
		d.BytesIn < 5*60 || d.BytesOut < 5*60 || d.Known != 1 || d.PendingLimit != 1024 || len(d.Hedges.Gates) != 9 {
		t.Errorf("%+v", d)
	}
	if d.Latency != svc.Latency-was.Latency {
		t.Errorf("a latency of %v of %v after %v", d.Latency, svc.Latency, was.Latency)
	}
	if svc.Outcomes["2xx"] != 4 || sum(svc.Counts) != 4 {
		t.Errorf("Delta has changed its receiver: %+v", svc)
	}
	if e := svc.Endpoints[0]; e.Address != app || e.Attempts != 6 || e.Failed != 2 || e.Hedges != 0 {
		t.Errorf("%+v", e)
	}
	if empty := now.Services["empty"]; empty.Outcomes["failed"] != 1 || sum(empty.Counts) != 0 {
		t.Errorf("%+v", empty)
	}
	if l := now.Listeners["egress"]; len(now.Listeners) != 1 || l.Errors["no-endpoint"] != 1 || l.Unrouted != 0 {
		t.Errorf("%+v", now.Listeners)
	}
}

// TestDeltaReplaced: if a count has fallen, a reload has replaced the service and Delta
// returns all counts.
func TestDeltaReplaced(t *testing.T) {
	was := ServiceStats{
		Outcomes: map[string]uint64{"2xx": 100, "5xx": 3}, Counts: []uint64{90, 13}, Latency: 5, BytesIn: 1000, BytesOut: 2000, Retries: 2,
		Hedges: HedgeStats{Sent: 4, Won: 3, Missed: 1, Gates: map[string]uint64{"budget": 7}},
	}
	for name, c := range map[string]struct {
		change   func(s *ServiceStats)
		replaced bool
	}{
		"nothing happened":    {func(*ServiceStats) {}, false},
		"more requests":       {func(s *ServiceStats) { s.Outcomes["2xx"], s.Counts[1], s.Latency = 110, 23, 6 }, false},
		"another outcome":     {func(s *ServiceStats) { s.Outcomes["4xx"] = 1 }, false},
		"no request yet":      {func(s *ServiceStats) { *s = ServiceStats{Outcomes: map[string]uint64{}, Counts: []uint64{0, 0}} }, true},
		"fewer of an outcome": {func(s *ServiceStats) { s.Outcomes["5xx"] = 2 }, true},
		"fewer in a bucket":   {func(s *ServiceStats) { s.Counts[0] = 89 }, true},
		"less time":           {func(s *ServiceStats) { s.Latency = 4 }, true},
		"fewer bytes in":      {func(s *ServiceStats) { s.BytesIn = 999 }, true},
		"fewer bytes out":     {func(s *ServiceStats) { s.BytesOut = 999 }, true},
		"fewer retries":       {func(s *ServiceStats) { s.Retries = 1 }, true},
		"fewer hedges":        {func(s *ServiceStats) { s.Hedges.Sent = 3 }, true},
		"fewer hedges won":    {func(s *ServiceStats) { s.Hedges.Won = 2 }, true},
		"fewer missed":        {func(s *ServiceStats) { s.Hedges.Missed = 0 }, true},
		"a gate closed less":  {func(s *ServiceStats) { s.Hedges.Gates["budget"] = 6 }, true},
	} {
		now := was
		now.Outcomes, now.Hedges.Gates, now.Counts = maps.Clone(was.Outcomes), maps.Clone(was.Hedges.Gates), slices.Clone(was.Counts)
		c.change(&now)
		want := now.Delta(&ServiceStats{})
		if d := now.Delta(&was); reflect.DeepEqual(d, want) != c.replaced {
			t.Errorf("%s: the difference is %+v, all of it %t", name, d, !c.replaced)
		}
	}
}

func sum(counts []uint64) (n uint64) {
	for _, k := range counts {
		n += k
	}
	return n
}

// TestStatsManyEndpoints: of many endpoints the first ones are listed, and their number.
func TestStatsManyEndpoints(t *testing.T) {
	s := newSidecar(t, twoServices)
	var addrs []string
	for i := range maxEndpointSeries + 50 {
		addrs = append(addrs, fmt.Sprintf("10.0.%d.%d:80", i/256, i%256))
	}
	s.update("compute", addrs...)
	svc := decode[Stats](s, "/stats").Services["compute"]
	if len(svc.Endpoints) != maxEndpointSeries || svc.Known != maxEndpointSeries+50 {
		t.Errorf("%d endpoints of %d", len(svc.Endpoints), svc.Known)
	}
}

// TestBuffered: what a loop holds counts even while it is too little for it to tell the others.
func TestBuffered(t *testing.T) {
	s := newSidecar(t, twoServices)
	nc := must.Dial(t, "tcp", s.egress)
	must.Write(t, nc, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000\r\n\r\n"+strings.Repeat("x", 2000))
	held := func() int64 { return decode[Stats](s, "/stats").Buffered }
	eventually.True(t, "2000 bytes to count", func() bool {
		n := held()
		return n >= 2000 && value(s.scrape(), "remora_buffered_bytes", "") == float64(n)
	})
	nc.Close()
	eventually.True(t, "nothing to count", func() bool { return held() == 0 })
}

// TestMilliseconds: each request is in one millisecond, and is returned once, however
// often the milliseconds are read.
func TestMilliseconds(t *testing.T) {
	s := newSidecar(t, twoServices)
	s.update("compute", newApp(t))
	first := decode[Milliseconds](s, "/milliseconds")
	const requests = 10
	sent, arrivals, responses, bytes, worst := 0, 0, 0, uint64(0), int64(0)
	for next, end := first.End, time.Now().Add(waitLimit); responses < requests; {
		if sent < requests { // read in between: a busy machine may take longer for all than milliseconds are kept
			s.request("GET", "/")
			sent++
		}
		ms := decode[Milliseconds](s, fmt.Sprintf("/milliseconds?since=%d", next))
		if n := int(ms.End - ms.From); ms.From != next || len(ms.Arrivals) != n || len(ms.Answers) != n || len(ms.Bytes) != n || len(ms.Worst) != n {
			t.Fatalf("read since %d: %+v", next, ms)
		}
		for i := range ms.Arrivals {
			arrivals += int(ms.Arrivals[i])
			responses += int(ms.Answers[i])
			bytes += ms.Bytes[i]
		}
		if len(ms.Worst) > 0 {
			worst = max(worst, slices.Max(ms.Worst))
		}
		next = ms.End
		if time.Now().After(end) {
			t.Fatalf("%d responses", responses)
		}
	}
	if arrivals != requests || responses != requests || bytes < requests*100 || worst <= 0 {
		t.Errorf("%d arrivals, %d responses, %d bytes, at worst %d µs", arrivals, responses, bytes, worst)
	}
	for _, wrong := range []string{"x", "-1", "1.5", "99999999999999999999"} {
		if status, _ := s.get("/milliseconds?since=" + wrong); status != http.StatusBadRequest {
			t.Errorf("since=%s: %d", wrong, status)
		}
	}
}

// TestMergeMilliseconds: loops may have copied their milliseconds at different times.
// Those that only some loops have are left for the next response.
func TestMergeMilliseconds(t *testing.T) {
	one := stats.Milliseconds{From: 10, List: make([]stats.Millisecond, 4)}
	other := stats.Milliseconds{From: 11, List: make([]stats.Millisecond, 5)}
	one.List[1] = stats.Millisecond{Arrivals: 1, Answers: 2, BytesIn: 3, BytesOut: 4, Worst: 5 * time.Microsecond}
	other.List[0] = stats.Millisecond{Arrivals: 10, Answers: 20, BytesIn: 30, BytesOut: 40, Worst: 2 * time.Microsecond}
	other.List[4].Arrivals = 7
	got := mergeMilliseconds([]stats.Milliseconds{one, other})
	text, err := json.Marshal(got)
	want := `{"from":11,"end":14,"arrivals":[11,0,0],"answers":[22,0,0],"bytes":[77,0,0],"worst_us":[5,0,0]}`
	if err != nil || string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	apart := mergeMilliseconds([]stats.Milliseconds{{From: 20}, one})
	if apart.From != 20 || apart.End != 20 || len(apart.Arrivals) != 0 {
		t.Errorf("%+v", apart)
	}
}

// TestDashboard: the dashboard is one page without requests to other hosts, and its policy
// makes the browser run only its own script.
func TestDashboard(t *testing.T) {
	s := newSidecar(t, twoServices)
	rec := httptest.NewRecorder()
	s.api.http.Handler.ServeHTTP(rec, httptest.NewRequest("GET", "http://127.0.0.1:9901/", nil))
	page := rec.Body.String()
	if !strings.Contains(page, "</html>") || strings.Contains(page, "{{") {
		t.Errorf("%.200s", page)
	}
	for _, outside := range []string{"http://", "https://", "src=", "@import", "url(", `rel="stylesheet"`} {
		if strings.Contains(page, outside) {
			t.Errorf("the page refers to something by %s", outside)
		}
	}
	policy := rec.Header().Get("Content-Security-Policy")
	for _, tag := range []string{"style", "script"} {
		_, rest, _ := strings.Cut(page, "<"+tag)
		_, rest, _ = strings.Cut(rest, ">")
		text, _, _ := strings.Cut(rest, "</"+tag+">")
		if len(text) < 1000 || !strings.Contains(policy, tag+"-src "+sourceHash(text)) {
			t.Errorf("the policy does not let the %s in: %s", tag, policy)
		}
	}
	if strings.Contains(policy, "unsafe") || !strings.HasPrefix(policy, "default-src 'none'") {
		t.Error(policy)
	}
}

// TestUnrouted: requests without a service count of all listeners.
func TestUnrouted(t *testing.T) {
	s := Stats{Listeners: map[string]*ListenerErrors{"a": {Unrouted: 1}, "b": {Unrouted: 2}, "c": {}}}
	if n := s.Unrouted(); n != 3 {
		t.Errorf("%d, want 3", n)
	}
}
