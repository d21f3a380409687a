package load

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestFanOut sends users of five calls each, whose keys and bodies differ.
func TestFanOut(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var mu sync.Mutex
	var got []string
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				br := bufio.NewReader(c)
				for {
					req, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					body, _ := io.ReadAll(req.Body)
					mu.Lock()
					got = append(got, req.Header.Get("x-key")+" "+string(body))
					mu.Unlock()
					ok(req.Header.Get("x-nonce"), c)
				}
			}()
		}
	}()
	dues := map[time.Time][]int{}
	o := Options{
		Targets: []string{"http://" + ln.Addr().String() + "/compute"}, Rate: 1000, FanOut: 5, Connections: 8,
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
		if at := time.Duration(calls[0]-10) * time.Millisecond; due.Sub(first) != at {
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
