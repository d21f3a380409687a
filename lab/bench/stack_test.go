package bench

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestMetric(t *testing.T) {
	sidecar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("go_gc_sum 0.1\ngo_gc_count 17\nlinks{endpoint=\"a\"} 2\nlinks{endpoint=\"b\"} 3\nlinks_total 9\n"))
	}))
	defer sidecar.Close()
	p := process{addr: sidecar.Listener.Addr().String()}
	for name, want := range map[string]float64{"go_gc_count": 17, "links": 5, `links{endpoint="b"}`: 3} {
		if v, err := p.metric(t.Context(), name); err != nil || v != want {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
	if _, err := p.metric(t.Context(), "go_goroutines"); err == nil {
		t.Error("a metric that is missing: no error")
	}
}
