package stats_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// A burst of ten times the load for 5 ms is visible in the milliseconds, and not in the
// rate of its second.
func TestMillisecondsOfBurst(t *testing.T) {
	for _, loops := range []int{1, 2} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true, Loops: loops, Service: "max_pending: 10000"})
		const (
			seconds   = 3
			perSecond = 1000
			burstAt   = 1500 // ms from the start
			burstLong = 5
			factor    = 10
		)
		start := m.W.Now()
		var calls []*proxytest.Call
		send := func() {
			c := m.Post(10)
			calls = append(calls, c)
			d := &proxytest.Client{By: m.Callers, Calls: []*proxytest.Call{c}}
			addr := fmt.Sprint("10.0.0.1:", 15001+len(calls)%loops)
			m.Clients.Post(func() { m.Clients.Dial(addr, time.Second, d) })
		}
		for ms := range seconds * 1000 {
			n := perSecond / 1000
			if ms >= burstAt && ms < burstAt+burstLong {
				n *= factor
			}
			m.W.At(start+time.Duration(ms)*time.Millisecond, func() {
				for range n {
					send()
				}
			})
		}
		m.W.Run(seconds*time.Second + 100*time.Millisecond)
		m.OK(calls...)

		first := int64(start / time.Millisecond)
		got := m.Consumer.Milliseconds(first)
		if got.From != first || len(got.List) < seconds*1000 {
			t.Fatalf("%d milliseconds from %d, want those from %d", len(got.List), got.From, first)
		}
		var rates [seconds]int
		total, bytes, responses := 0, 0, 0
		for i, ms := range got.List {
			if i/1000 < seconds {
				rates[i/1000] += int(ms.Arrivals)
			}
			total += int(ms.Arrivals)
			responses += int(ms.Answers)
			bytes += int(ms.BytesIn)
		}
		if total != len(calls) || responses != len(calls) || bytes < 10*total {
			t.Errorf("%d requests: %d arrivals, %d responses, %d bytes", len(calls), total, responses, bytes)
		}
		// By the second: 45 requests more in a thousand.
		if slow, fast := slices.Min(rates[:]), slices.Max(rates[:]); float64(fast) > 1.1*float64(slow) {
			t.Errorf("the burst is visible in the rates of the seconds: %v", rates)
		}
		// By the millisecond: ten times the usual number, and nowhere else.
		window := func(i int) (n int) { // arrivals in 5 ms
			for _, ms := range got.List[i : i+burstLong] {
				n += int(ms.Arrivals)
			}
			return n
		}
		usual, most, at := 0, 0, 0
		for i := 0; i+burstLong <= seconds*1000; i++ {
			n := window(i)
			if n > most {
				most, at = n, i
			}
			if i+burstLong < burstAt || i > burstAt+2*burstLong {
				usual = max(usual, n)
			}
		}
		if most < 4*usual || at < burstAt-1 || at > burstAt+burstLong {
			t.Errorf("the most arrivals within 5 ms are %d, %d ms after the start; %d at the most elsewhere", most, at, usual)
		}
	}
}

// The worst latency is in the millisecond of the response.
func TestMillisecondsWorst(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	m.WarmUp(5)
	m.W.Run(2 * time.Millisecond)
	m.Apps[0].Delay = func() time.Duration { return 80 * time.Millisecond }
	c := m.Post(10)
	began := int64(m.W.Now() / time.Millisecond)
	m.Do(c)
	m.Finish(c)
	m.W.Run(2 * time.Millisecond)
	got := m.Consumer.Milliseconds(began)
	worst := slices.IndexFunc(got.List, func(ms stats.Millisecond) bool { return ms.Worst > 0 })
	if worst < 79 || got.List[worst].Worst < 80*time.Millisecond || got.List[worst].Answers != 1 || got.List[worst].BytesOut == 0 {
		t.Fatalf("the response is counted %d ms after the request, as %+v", worst, got.List[max(worst, 0)])
	}
}

// A millisecond that is older than the ring is forgotten. The one in its place begins
// empty.
func TestMillisecondRingWraps(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	m.WarmUp(5)
	m.W.Run(2 * stats.MillisecondsKept * time.Millisecond)
	got := m.Consumer.Milliseconds(0)
	if len(got.List) != stats.MillisecondsKept-1 || got.End() != int64(m.W.Now()/time.Millisecond) {
		t.Errorf("%d milliseconds, up to %d, at %v", len(got.List), got.End(), m.W.Now())
	}
	for i := range got.List {
		if got.List[i] != (stats.Millisecond{}) {
			t.Errorf("%d ms back: %+v", len(got.List)-i, got.List[i])
		}
	}
	if later := m.Consumer.Milliseconds(1 << 40); len(later.List) != 0 {
		t.Errorf("%d milliseconds that are not over", len(later.List))
	}
}
