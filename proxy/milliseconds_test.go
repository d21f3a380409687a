package proxy_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy"
)

// milliseconds are what the node's loops saw from one on, added up.
func (n *node) milliseconds(from int64) proxy.Milliseconds {
	var sum proxy.Milliseconds
	for i, w := range n.proc.Workers() {
		var ms proxy.Milliseconds
		n.all[i].Do(func() { ms = w.Milliseconds(from) })
		if i == 0 {
			sum = ms
			continue
		}
		for j := range min(len(sum.List), len(ms.List)) {
			sum.List[j].Add(&ms.List[j])
		}
	}
	return sum
}

// A burst of ten times the load for 5 ms shows in the milliseconds and not in the
// rate of the second that it is in.
func TestMillisecondsShowABurst(t *testing.T) {
	for _, loops := range []int{1, 2} {
		m := newMesh(t, meshOptions{direct: true, loops: loops, service: ", max_pending: 10000"})
		const (
			seconds   = 3
			perSecond = 1000
			burstAt   = 1500 // ms from the start
			burstLong = 5
			factor    = 10
		)
		start := m.w.Now()
		var calls []*call
		send := func() {
			c := m.post(10)
			calls = append(calls, c)
			d := &client{m: m, calls: []*call{c}}
			addr := fmt.Sprint("10.0.0.1:", 15001+len(calls)%loops)
			m.clients.Post(func() { m.clients.Dial(addr, time.Second, d) })
		}
		for ms := range seconds * 1000 {
			n := perSecond / 1000
			if ms >= burstAt && ms < burstAt+burstLong {
				n *= factor
			}
			m.w.At(start+time.Duration(ms)*time.Millisecond, func() {
				for range n {
					send()
				}
			})
		}
		m.w.Run(seconds*time.Second + 100*time.Millisecond)
		m.finish(calls...)
		m.ok(calls...)

		first := int64(start / time.Millisecond)
		got := m.consumer.milliseconds(first)
		if got.From != first || len(got.List) < seconds*1000 {
			t.Fatalf("%d milliseconds from %d, want those from %d", len(got.List), got.From, first)
		}
		var rates [seconds]int
		total, bytes, answers := 0, 0, 0
		for i, ms := range got.List {
			if i/1000 < seconds {
				rates[i/1000] += int(ms.Arrivals)
			}
			total += int(ms.Arrivals)
			answers += int(ms.Answers)
			bytes += int(ms.BytesIn)
		}
		if total != len(calls) || answers != len(calls) || bytes < 10*total {
			t.Errorf("%d requests: %d arrivals, %d answers, %d bytes", len(calls), total, answers, bytes)
		}
		// In the seconds: 45 requests more in a thousand.
		if slow, fast := slices.Min(rates[:]), slices.Max(rates[:]); float64(fast) > 1.1*float64(slow) {
			t.Errorf("the burst shows in the rates of the seconds: %v", rates)
		}
		// In the milliseconds: ten times what is usual, and nowhere else.
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

// The worst latency stands in the millisecond of the answer.
func TestMillisecondsWorst(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true})
	m.warm(5)
	m.w.Run(2 * time.Millisecond)
	m.apps[0].delay = func() time.Duration { return 80 * time.Millisecond }
	c := m.post(10)
	began := int64(m.w.Now() / time.Millisecond)
	m.do(c)
	m.finish(c)
	m.w.Run(2 * time.Millisecond)
	got := m.consumer.milliseconds(began)
	worst := slices.IndexFunc(got.List, func(ms proxy.Millisecond) bool { return ms.Worst > 0 })
	if worst < 79 || got.List[worst].Worst < 80*time.Millisecond || got.List[worst].Answers != 1 || got.List[worst].BytesOut == 0 {
		t.Fatalf("the answer stands %d ms after the request, as %+v", worst, got.List[max(worst, 0)])
	}
}

// What is older than the ring is forgotten, and what comes in its place begins
// at nothing.
func TestMillisecondsForget(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true})
	m.warm(5)
	m.w.Run(2 * proxy.MillisecondsKept * time.Millisecond)
	got := m.consumer.milliseconds(0)
	if len(got.List) != proxy.MillisecondsKept-1 || got.End() != int64(m.w.Now()/time.Millisecond) {
		t.Errorf("%d milliseconds, up to %d, at %v", len(got.List), got.End(), m.w.Now())
	}
	for i := range got.List {
		if got.List[i] != (proxy.Millisecond{}) {
			t.Errorf("%d ms back: %+v", len(got.List)-i, got.List[i])
		}
	}
	if later := m.consumer.milliseconds(1 << 40); len(later.List) != 0 {
		t.Errorf("%d milliseconds of the future", len(later.List))
	}
}
