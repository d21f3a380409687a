package load

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestFanOut sends users of five calls each, whose keys and bodies differ.
func TestFanOut(t *testing.T) {
	for _, poisson := range []bool{false, true} {
		testFanOut(t, poisson)
	}
}

func testFanOut(t *testing.T, poisson bool) {
	var mu sync.Mutex
	var got []string
	url := serveRequests(t, func(_ int64, req *http.Request, body string, c net.Conn) bool {
		mu.Lock()
		got = append(got, req.Header.Get("x-key")+" "+body)
		mu.Unlock()
		return ok(req.Header.Get("x-nonce"), c)
	})
	dues := map[time.Time][]int{}
	o := Options{
		Targets: []string{url}, Rate: 1000, FanOut: 5, Poisson: poisson, Connections: 8,
		Warmup: 10 * time.Millisecond, Duration: 100 * time.Millisecond,
		Vary: func(dst []byte, i int) []byte {
			return fmt.Appendf(dst, "x-key: k%d\r\ncontent-length: 4\r\n\r\n%04d", i, i)
		},
		Each: func(e End) {
			if e.Kind != "" || e.Latency <= 0 {
				t.Errorf("%+v", e)
			}
			dues[e.Due] = append(dues[e.Due], e.Index)
		},
	}
	res := run(t, o)
	if res.Counts.Requests != 100 || res.Counts.Failed() != 0 {
		t.Fatalf("%+v", res.Counts)
	}
	var want []string
	for i := range 110 {
		want = append(want, fmt.Sprintf("k%d %04d", i, i))
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("requests %q", got)
	}
	if len(dues) != 20 {
		t.Fatalf("%d intended send times, want 20", len(dues))
	}
	first := time.Time{}
	for due, calls := range dues {
		if first.IsZero() || due.Before(first) {
			first = due
		}
		slices.Sort(calls)
		if len(calls) != 5 || calls[0]%5 != 0 || calls[4] != calls[0]+4 {
			t.Errorf("due at once: %v", calls)
		}
	}
	for due, calls := range dues {
		if at := time.Duration(calls[0]-10) * time.Millisecond; due.Sub(first) != at && !poisson {
			t.Errorf("calls %v are due after %v, want %v", calls, due.Sub(first), at)
		}
	}
}

func TestFanOutRefused(t *testing.T) {
	vary := func(dst []byte, _ int) []byte { return dst }
	for _, o := range []Options{
		{FanOut: -1, Rate: 1}, {FanOut: maxFanOut + 1, Rate: 1}, {FanOut: 2, Closed: true}, {Vary: vary, Closed: true},
	} {
		o.Targets = []string{"http://127.0.0.1:1/"}
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if _, err := Run(t.Context(), Options{Targets: []string{"grpc://127.0.0.1:1"}, Rate: 1, Vary: vary}); err == nil {
		t.Error("gRPC calls that differ were accepted")
	}
}
