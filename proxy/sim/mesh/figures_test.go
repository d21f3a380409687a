package mesh

import (
	"math"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

// TestQuantile: the q-quantile is the least value that a share q of all does not exceed.
func TestQuantile(t *testing.T) {
	ten := make([]time.Duration, 10)
	for i := range ten {
		ten[i] = time.Duration(i + 1)
	}
	for q, want := range map[float64]time.Duration{0: 1, .1: 1, .11: 2, .5: 5, .9: 9, .91: 10, 1: 10} {
		if got := quantile(ten, q); got != want {
			t.Errorf("the %v-quantile of ten is %d, want %d", q, got, want)
		}
	}
	if got := quantile(nil, .5); got != 0 {
		t.Errorf("that of nothing is %d", got)
	}
}

// figures is a result with a few requests.
func figures() *Result {
	spec := NewSpec()
	spec.Duration, spec.WarmUp = 5*time.Second, time.Second
	r := &Result{
		Spec: spec, Gates: map[string]uint64{"budget": 7}, Hedges: 11, HedgesWon: 12, Retries: 13, Ejections: 14, Probes: 15, Links: 16,
		Extra: 3, Reached: 12, Worked: 24 * ms, Busiest: 1.5, Crowded: 17 * ms,
		Batch: []Request{{Status: 200}, {Status: 200}, {Status: 503}},
	}
	for i := range 10 {
		r.Requests = append(r.Requests, Request{Sent: time.Duration(i) * time.Second, Took: time.Duration(10-i) * ms, Status: 200})
	}
	r.Requests[4].Status, r.Requests[9].Status = 503, 0
	return r
}

// TestMeasures: the figures that a script may name.
func TestMeasures(t *testing.T) {
	want := map[string]float64{
		"p50": float64(5 * ms), "p90": float64(10 * ms), "p95": float64(10 * ms), "p99": float64(10 * ms), "p99.9": float64(10 * ms),
		"p99.99": float64(10 * ms), "max": float64(10 * ms), "requests": 10, "failed": 2, "goodput": 0.8, "batch": 0.5, "answered": 8,
		"extra_load": 0.25, "work": float64(2 * ms), "hedges": 11, "won": 12, "retries": 13, "ejections": 14, "probes": 15, "busiest": 1.5,
		"crowded": float64(17 * ms), "links": 16,
	}
	r := figures()
	if len(measures) != len(want) {
		t.Errorf("%d measures, want %d", len(measures), len(want))
	}
	for name := range measures {
		w, known := want[name]
		if got := (&Expect{Measure: name}).measured(r); !known || math.Abs(got-w) > 1e-9 {
			t.Errorf("%s is %v, want %v", name, got, w)
		}
	}
	for _, gate := range gateNames() {
		w := 0.0
		if gate == "budget" {
			w = 7
		}
		if got := (&Expect{Measure: "gate." + gate}).measured(r); got != w {
			t.Errorf("the gate %s has stopped %v, want %v", gate, got, w)
		}
	}
	e := Expect{Measure: "requests", From: 2 * time.Second, To: 5 * time.Second}
	if got := e.measured(r); got != 3 {
		t.Errorf("%v requests of three seconds", got)
	}
	none := &Result{Spec: r.Spec}
	for _, name := range []string{"goodput", "extra_load", "work", "p99"} {
		if got := (&Expect{Measure: name}).measured(none); got != 0 {
			t.Errorf("%s of nothing is %v", name, got)
		}
	}
	if r.Quantile(.5) != 5*ms {
		t.Errorf("the median is %v", r.Quantile(.5))
	}
}

// TestBetween: a period has its first moment, and not its last one.
func TestBetween(t *testing.T) {
	r := figures()
	for _, c := range []struct{ from, to, want int }{{0, 10, 10}, {0, 9, 9}, {2, 2, 0}, {2, 3, 1}, {20, 30, 0}} {
		got := r.Between(time.Duration(c.from)*time.Second, time.Duration(c.to)*time.Second)
		if len(got) != c.want || len(got) > 0 && got[0].Sent != time.Duration(c.from)*time.Second {
			t.Errorf("from %d to %d s: %d requests", c.from, c.to, len(got))
		}
	}
}

// TestHistogram: each latency is in the bar whose bound is up to a tenth above it.
func TestHistogram(t *testing.T) {
	r := figures()
	r.Requests = append(r.Requests, Request{Status: 200}) // of no time
	bars := r.Histogram()
	count := 0
	for i, bar := range bars {
		count += bar.Count
		if i > 0 && bar.UpTo <= bars[i-1].UpTo {
			t.Errorf("bar %d ends at %v, the one before at %v", i, bar.UpTo, bars[i-1].UpTo)
		}
		in := 0
		for _, took := range Latencies(r.Requests) {
			if took = max(took, 1); float64(took) <= float64(bar.UpTo)*1.0000001 && float64(took) > float64(bar.UpTo)/1.1 {
				in++
			}
		}
		if in != bar.Count {
			t.Errorf("the bar up to %v has %d, want %d", bar.UpTo, bar.Count, in)
		}
	}
	if count != len(Latencies(r.Requests)) {
		t.Errorf("%d in the bars, want %d", count, len(Latencies(r.Requests)))
	}
}

// TestExpectations: an expectation is shown as a script has it, with what was measured, and compared as it says.
func TestExpectations(t *testing.T) {
	half := figures()
	half.Requests = half.Requests[:2]
	for _, c := range []struct {
		line, summary string
		holds         bool
	}{
		{"p50 < 5ms", "p50 < 5ms: 5ms", false},
		{"p50 <= 5ms", "p50 <= 5ms: 5ms", true},
		{"p50 > 5ms", "p50 > 5ms: 5ms", false},
		{"p50 >= 5ms", "p50 >= 5ms: 5ms", true},
		{"p50 == 5ms", "p50 == 5ms: 5ms", true},
		{"failed == 3", "failed == 3: 2", false},
		{"goodput >= 80%", "goodput >= 80%: 80%", true},
		{"requests from 1s to 3s == 2", "requests from 1s to 3s == 2: 2", true},
		{"answered == 400% of versus", "answered == 400% of versus: 8 against 2", true},
		{"answered > 400% of versus", "answered > 400% of versus: 8 against 2", false},
		{"gate.budget == 7", "gate.budget == 7: 7", true},
		{"extra_load < 12.5%", "extra_load < 12.5%: 25%", false},
	} {
		sc, err := Parse("x", "title t\nload 1/s for 1s\nversus loops 2\nexpect "+c.line)
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		o := sc.Judge(figures(), half)[0]
		if o.Summary != c.summary || o.Holds != c.holds || o.Expect.String() != c.line {
			t.Errorf("%s: %+v", c.line, o)
		}
	}
}

// TestBusiest: the busiest second of a replica, after the warm-up, in means of all replicas.
func TestBusiest(t *testing.T) {
	m := &mesh{providers: make([]*provider, 2)}
	m.spec.WarmUp = 150 * ms
	s := sampler{m: m}
	point := func(a, b int) { s.points = append(s.points, Point{Replicas: []ReplicaPoint{{Served: a}, {Served: b}}}) }
	point(100, 0) // in the warm-up
	point(100, 0)
	for range 9 {
		point(1, 1)
	}
	if got := s.busiest(); got != 0 {
		t.Errorf("without a whole second %v", got)
	}
	point(0, 0)
	if got := s.busiest(); got != 1 {
		t.Errorf("of equal replicas %v", got)
	}
	point(0, 20)
	if got, want := s.busiest(), 28.0*2/36; math.Abs(got-want) > 1e-9 {
		t.Errorf("got %v, want %v", got, want)
	}
	for range 20 {
		point(0, 0)
	}
	if got := s.busiest(); got != 2 { // the second in which only one has served
		t.Errorf("got %v, want 2", got)
	}
}

// TestJournal: what callers and applications see, and what of it is wrong.
func TestJournal(t *testing.T) {
	deadline := NewSpec()
	deadline.Consumer["timeout"] = "2s"
	for name, c := range map[string]struct {
		do   func(m *mesh, l *journal)
		want string // part of the violation; empty means none
	}{
		"a response":          {func(_ *mesh, l *journal) { l.ended(0, answered, 200) }, ""},
		"two responses":       {func(_ *mesh, l *journal) { l.ended(0, answered, 200); l.ended(0, answered, 200) }, "ended twice"},
		"another status":      {func(_ *mesh, l *journal) { l.ended(0, answered, 404) }, "was answered 404"},
		"a failure":           {func(_ *mesh, l *journal) { l.ended(0, answered, 504) }, ""},
		"abandoned":           {func(_ *mesh, l *journal) { l.ended(0, abandoned, 0) }, ""},
		"closed":              {func(_ *mesh, l *journal) { l.ended(0, closed, 0) }, "got no answer"},
		"closed by a crash":   {func(m *mesh, l *journal) { m.consumers[0].crash(); l.ended(0, closed, 0) }, ""},
		"closed by a restart": {func(m *mesh, l *journal) { m.consumers[0].lives++; l.ended(0, closed, 0) }, ""},
		"in time":             {func(m *mesh, l *journal) { m.w.Run(2*time.Second + grace); l.ended(0, answered, 200) }, ""},
		"late":                {func(m *mesh, l *journal) { m.w.Run(2*time.Second + grace + 1); l.ended(0, answered, 200) }, "past its deadline"},
		"late after a pause": {func(m *mesh, l *journal) {
			m.consumers[0].paused = m.w.Now() + ms
			m.w.Run(2*time.Second + grace + ms)
			l.ended(0, answered, 200)
		}, ""},
		"late in trouble": {func(m *mesh, l *journal) {
			m.w.Run(2*time.Second + grace + ms)
			m.troubled = m.w.Now()
			l.ended(0, answered, 200)
		}, ""},
		"arrives":              {func(_ *mesh, l *journal) { l.arrived(0, 0, 0, 100) }, ""},
		"arrives cut":          {func(_ *mesh, l *journal) { l.arrived(0, 0, 0, 99) }, "99 bytes instead of 100"},
		"arrives at the end":   {func(m *mesh, l *journal) { l.ended(0, answered, 200); m.w.Run(grace); l.arrived(0, 0, 0, 100) }, ""},
		"arrives after":        {func(m *mesh, l *journal) { l.ended(0, answered, 200); m.w.Run(grace + 1); l.arrived(0, 0, 0, 100) }, "after it was over"},
		"twice by one attempt": {func(_ *mesh, l *journal) { l.arrived(0, 1, 0, 100); l.arrived(0, 1, 0, 100) }, ""},
		"a hedge":              {func(_ *mesh, l *journal) { l.arrived(0, 1, 0, 100); l.arrived(0, 2, 1, 100) }, ""},
		"a hedge to the same":  {func(_ *mesh, l *journal) { l.arrived(0, 1, 0, 100); l.arrived(0, 1, 1, 100) }, "which had been tried"},
		"the fourth attempt": {func(_ *mesh, l *journal) {
			for i := range 4 {
				l.arrived(0, i%3, i, 100)
			}
		}, ""},
		"unsafe, twice":            {func(_ *mesh, l *journal) { l.arrived(1, 1, 0, 100); l.arrived(1, 1, 0, 100) }, "was sent twice"},
		"unsafe, two applications": {func(_ *mesh, l *journal) { l.arrived(1, 1, 0, 100); l.arrived(1, 2, 1, 100) }, "reached two applications"},
	} {
		m := newMesh(deadline, tampering{})
		m.w.Run(200 * ms) // the consumer knows the endpoints
		l := &m.journal
		if l.begin(0, call{size: 100}) != 0 || l.begin(0, call{size: 100, unsafe: true}) != 1 || l.open != 2 || l.peak != 2 {
			t.Fatalf("%d open, %d at the peak", l.open, l.peak)
		}
		c.do(m, l)
		if all := strings.Join(l.violations, "; "); (all != "") != (c.want != "") || !strings.Contains(all, c.want) {
			t.Errorf("%s: violations %q, want %q", name, all, c.want)
		}
		if extra := max(0, len(l.calls[0].visits)-1) + max(0, len(l.calls[1].visits)-1); l.extra != extra {
			t.Errorf("%s: %d further attempts, want %d", name, l.extra, extra)
		}
	}
}

// TestManyViolations: the first violations are reported, and how many more there are.
func TestManyViolations(t *testing.T) {
	m := newMesh(NewSpec(), tampering{})
	for range maxViolations + 3 {
		m.journal.wrong("something")
	}
	m.checkRest()
	if all := m.journal.violations; len(all) != maxViolations+1 || all[maxViolations] != "and 3 more" || !strings.HasPrefix(all[0], "seed 1, at ") {
		t.Errorf("%q", all)
	}
}

// TestSharedRequests: requests with one path may get each other's responses, and no others may.
func TestSharedRequests(t *testing.T) {
	m := newMesh(NewSpec(), tampering{})
	l := &m.journal
	for _, same := range []int{0, 1, 1, 2, 0} {
		l.begin(0, call{same: same})
	}
	for _, c := range []struct {
		nonce, to int
		want      bool
	}{{0, 0, true}, {0, 4, false}, {1, 2, true}, {2, 1, true}, {1, 3, false}, {1, 0, false}, {0, 1, false}, {1, 5, false}, {1, -1, false}} {
		if got := l.mayShare(c.nonce, c.to); got != c.want {
			t.Errorf("request %d may get the response to %d: %t", c.nonce, c.to, got)
		}
	}
	for nonce, want := range []string{"POST /compute", "GET /compute/1", "GET /compute/1", "GET /compute/2"} {
		if method, path := l.target(nonce); method+" "+path != want {
			t.Errorf("request %d is %s %s", nonce, method, path)
		}
	}
	m.spec.Same = 0.5
	if method, path := l.target(4); method+" "+path != "POST /compute?4" {
		t.Errorf("beside requests that are the same: %s %s", method, path)
	}
}
