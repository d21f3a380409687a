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
