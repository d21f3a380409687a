package child

import "testing"

func TestMetric(t *testing.T) {
	text := []byte("go_gc_sum 0.1\ngo_gc_count 17\nlinks{endpoint=\"a\"} 2\nlinks{endpoint=\"b\"} 3\nlinks_total 9\n")
	for name, want := range map[string]float64{"go_gc_count": 17, "links": 5, `links{endpoint="b"}`: 3} {
		if v, err := Metric(text, name); err != nil || v != want {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
	if _, err := Metric(text, "go_goroutines"); err == nil {
		t.Error("a metric that is missing: no error")
	}
}
