package stats_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// fill sets each number in v to another one, and each bool.
func fill(v reflect.Value, next *uint64) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), next)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), next)
		}
	case reflect.Bool:
		v.SetBool(true)
	default:
		*next++
		if v.CanUint() {
			v.SetUint(*next)
		} else {
			v.SetInt(int64(*next))
		}
	}
}

// double doubles each number in v.
func double(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				double(v.Field(i))
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			double(v.Index(i))
		}
	case reflect.Bool:
	default:
		if v.CanUint() {
			v.SetUint(2 * v.Uint())
		} else {
			v.SetInt(2 * v.Int())
		}
	}
}

// checkAdd adds counts of which each is another number to none, and to themselves.
func checkAdd[T comparable](t *testing.T, add func(to, from *T)) {
	t.Helper()
	var from, to T
	next := uint64(0)
	fill(reflect.ValueOf(&from).Elem(), &next)
	want := from
	if add(&to, &from); to != want {
		t.Errorf("added to none\n%+v, want\n%+v", to, want)
	}
	double(reflect.ValueOf(&want).Elem())
	if add(&to, &from); to != want {
		t.Errorf("added twice\n%+v, want\n%+v", to, want)
	}
	var none T
	if add(&to, &none); to != want {
		t.Errorf("with none\n%+v, want\n%+v", to, want)
	}
}

// TestAdd: no count is forgotten where counts are added up.
func TestAdd(t *testing.T) {
	checkAdd(t, (*stats.ServiceStats).Add)
	checkAdd(t, (*stats.EndpointStats).Add)
	checkAdd(t, (*stats.FilterStats).Add)
	checkAdd(t, (*stats.ProbeCounts).Add)
	checkAdd(t, (*stats.Histogram).Add)
	checkAdd(t, (*stats.SizeHistogram).Add)

	m := stats.Millisecond{Arrivals: 1, Answers: 2, BytesIn: 3, BytesOut: 4, Worst: 5 * time.Second}
	for _, worst := range []time.Duration{4 * time.Second, 6 * time.Second} {
		sum := m
		sum.Add(&stats.Millisecond{Arrivals: 10, Answers: 20, BytesIn: 30, BytesOut: 40, Worst: worst})
		if want := (stats.Millisecond{Arrivals: 11, Answers: 22, BytesIn: 33, BytesOut: 44, Worst: max(worst, m.Worst)}); sum != want {
			t.Errorf("%+v, want %+v", sum, want)
		}
	}
}

// TestEndpointSums: attempts that have ended, and those that failed.
func TestEndpointSums(t *testing.T) {
	var s stats.EndpointStats
	for i := range s.Outcomes {
		s.Outcomes[i] = 1 << i
	}
	if ended, failed := s.Ended(), s.Failed(); ended != 1<<stats.AttemptOutcomes-1 || failed != 1<<stats.AttemptBroken+1<<stats.AttemptFailure {
		t.Errorf("%d ended, %d failed", ended, failed)
	}
}

// TestOutcomes: responses by their class, whatever the status, and which of them are failures.
func TestOutcomes(t *testing.T) {
	for status, want := range map[int]stats.Outcome{
		0: stats.Outcome2xx, 101: stats.Outcome2xx, 200: stats.Outcome2xx, 299: stats.Outcome2xx, 300: stats.Outcome3xx, 404: stats.Outcome4xx,
		499: stats.Outcome4xx, 500: stats.Outcome5xx, 599: stats.Outcome5xx, 600: stats.Outcome5xx, 999: stats.Outcome5xx,
	} {
		if got := stats.OutcomeOf(status); got != want || got.Failed() != (status >= 500) {
			t.Errorf("status %d: %s, failed %t", status, got, got.Failed())
		}
	}
	if !stats.OutcomeFailed.Failed() || stats.OutcomeCancelled.Failed() {
		t.Error("a response of the sidecar is a failure, and a request that its caller cancels is none")
	}
}

// TestCounters: answers of routes, and misuse of HTTP/2 by reason.
func TestCounters(t *testing.T) {
	var s stats.WorkerStats
	for _, redirects := range []bool{true, false, true} {
		s.CountAnswer(redirects)
	}
	for _, reason := range []string{"a", "b", "a"} {
		s.CountMisuse(reason)
	}
	if s.Redirects != 2 || s.Responses != 1 || len(s.HTTP2) != 2 || s.HTTP2["a"] != 2 || s.HTTP2["b"] != 1 {
		t.Errorf("%+v", s)
	}
}

// TestNames: names are stable, since metrics and lines of the access log have them.
func TestNames(t *testing.T) {
	names := func(n int, of func(i int) string) (all string) {
		for i := range n {
			all += of(i) + "|"
		}
		return all
	}
	for what, c := range map[string]struct{ got, want string }{
		"outcomes": {names(stats.Outcomes, func(i int) string { return stats.Outcome(i).String() }), "2xx|3xx|4xx|5xx|failed|cancelled|"},
		"attempts": {names(stats.AttemptOutcomes, func(i int) string { return stats.AttemptOutcome(i).String() }), "none|broken|unseen|served|failure|closed|"},
		"faults":   {names(4, func(i int) string { return stats.Injected(i).String() }), "|delay|abort|delay,abort|"},
		"caches":   {names(int(stats.CacheCollapsed)+1, func(i int) string { return stats.Cached(i).String() }), "|hit|stale|miss|revalidated|bypass|collapsed|"},
		"handoffs": {names(stats.Handoffs, func(i int) string { return stats.Handoff(i).String() }), "body|websocket|connect|pass|answer|parked|accepted|"},
	} {
		if c.got != c.want {
			t.Errorf("%s are %s, want %s", what, c.got, c.want)
		}
	}
	if stats.InjectedDelay|stats.InjectedAbort != 3 || stats.HandoffPass.String() != "pass" || stats.HandoffAccepted.String() != "accepted" || stats.HandoffBody != 0 {
		t.Error("a constant has another name")
	}
}

// TestMillisecondCounts: a request and its response are in the milliseconds in which they came, and no other.
func TestMillisecondCounts(t *testing.T) {
	var r stats.MillisecondRing
	at := func(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
	r.Now(at(5)).CountRequest(100)
	r.Now(at(5.9)).CountRequest(10)
	r.Now(at(6)).CountResponse(7, 3*time.Second, true)
	r.Now(at(6)).CountResponse(8, 2*time.Second, true)
	r.Now(at(6)).CountResponse(9, 9*time.Second, false) // a failure
	for _, c := range []struct {
		from      int64
		now       time.Duration
		first, n  int64
		arrivals  uint32 // of all
		responses uint32
	}{
		{0, at(7), 0, 7, 2, 3}, {5, at(7), 5, 2, 2, 3}, {6, at(7.5), 6, 1, 0, 3}, {6, at(6.9), 6, 0, 0, 0}, {-3, at(6), 0, 6, 2, 0}, {9, at(7), 7, 0, 0, 0},
		{0, at(stats.MillisecondsKept - 1 + 5), 5, stats.MillisecondsKept - 1, 2, 3}, {0, at(stats.MillisecondsKept - 1 + 6), 6, stats.MillisecondsKept - 1, 0, 3},
	} {
		got := r.Since(c.from, c.now)
		var sum stats.Millisecond
		for i := range got.List {
			sum.Add(&got.List[i])
		}
		if got.From != c.first || int64(len(got.List)) != c.n || got.End() != c.first+c.n || sum.Arrivals != c.arrivals || sum.Answers != c.responses {
			t.Errorf("from %d at %s: %d from %d, %+v", c.from, c.now, len(got.List), got.From, sum)
		}
	}
	all := r.Since(5, at(7)).List
	if a, b := all[0], all[1]; a.BytesIn != 110 || a.BytesOut != 0 || b.BytesOut != 24 || b.Worst != 3*time.Second {
		t.Errorf("%+v", all)
	}
	if again := r.Now(at(5 + stats.MillisecondsKept)); again.Arrivals != 0 {
		t.Errorf("a later millisecond in the same place begins with %+v", again)
	}
}
