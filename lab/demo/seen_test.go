package demo

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// metricsOf returns the metrics of n requests whose share above t falls exponentially, with a
// mean of 2 ms.
func metricsOf(n float64) []byte {
	var b strings.Builder
	b.WriteString("# TYPE remora_request_duration_seconds histogram\n")
	for _, most := range []float64{.001, .002, .003, .005, .007, .01, .02} {
		fmt.Fprintf(&b, "remora_request_duration_seconds_bucket{service=\"compute\",le=\"%g\"} %g\n", most, n*(1-math.Exp(-most/.002)))
	}
	fmt.Fprintf(&b, "remora_request_duration_seconds_bucket{service=\"compute\",le=\"+Inf\"} %g\n", n)
	b.WriteString("remora_request_duration_seconds_bucket{service=\"other\",le=\"+Inf\"} 7\n")
	return []byte(b.String())
}

func TestSeen(t *testing.T) {
	before, err := parseDurations(metricsOf(100))
	if err != nil {
		t.Fatal(err)
	}
	after, err := parseDurations(metricsOf(10100))
	if err != nil {
		t.Fatal(err)
	}
	d := after.since(before)
	if n := d[len(d)-1].count; n != 10000 {
		t.Errorf("%v requests, want 10000", n)
	}
	s := d.seen()
	for name, c := range map[string]struct{ got, want float64 }{
		"p99": {*s.P99, 2 * math.Log(100)}, "p99.9": {*s.P999, 2 * math.Log(1000)},
	} {
		if math.Abs(c.got-c.want) > .01*c.want {
			t.Errorf("%s %v ms, want %v", name, c.got, c.want)
		}
	}
	if s := after.since(after).seen(); s != nil {
		t.Errorf("of no request: %+v", s)
	}
	if p := d.quantile(.99999); p != nil {
		t.Errorf("a quantile above all bounds is %v ms", *p)
	}
	for _, bad := range []string{"", `remora_request_duration_seconds_bucket{service="compute",le="x"} 1`,
		`remora_request_duration_seconds_bucket{service="compute",le="1"} x`} {
		if _, err := parseDurations([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
