package exchange_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/hedge/histogram"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

const batch = "x-remora-priority: batch"

// recordPriorities returns the priorities of the requests that reach the applications, in
// order: true is batch.
func recordPriorities(m *proxytest.Mesh) *[]bool {
	got := new([]bool)
	for _, a := range m.Apps {
		a.OnRequest = func(req *protocol.Request) {
			*got = append(*got, string(protocol.Find(req.Headers, "x-remora-priority")) == "batch")
		}
	}
	return got
}

// TestPriorityOfRequest checks who decides the priority with which a request reaches the
// application: the lower one of its header, if the client is trusted, and its route.
func TestPriorityOfRequest(t *testing.T) {
	for name, c := range map[string]struct {
		header, match, service, egress string
		batch                          bool
	}{
		"default":            {"x-none: 1", "", "", "", false},
		"header":             {batch, "", "", "", true},
		"another value":      {"x-remora-priority: low", "", "", "", false},
		"header, no trust":   {batch, "", "", "0.0.0.0:15001", false},
		"route":              {"x-none: 1", "priority: batch", "", "", true},
		"route, no trust":    {"x-none: 1", "priority: batch", "", "0.0.0.0:15001", true},
		"service":            {"x-none: 1", "", "priority: batch", "", true},
		"route over service": {"x-none: 1", "priority: online", "priority: batch", "", false},
		"header can't raise": {"x-remora-priority: online", "priority: batch", "", "", true},
	} {
		proxytest.EachTopology(t, proxytest.MeshOptions{Service: c.service, Match: c.match, Egress: c.egress},
			func(t *testing.T, m *proxytest.Mesh) {
				got := recordPriorities(m)
				k := m.Complete(m.Post(10, c.header))
				m.OK(k)
				if len(*got) != 1 || (*got)[0] != c.batch {
					t.Errorf("%s: requests at the application, batch or not: %v; want %t", name, *got, c.batch)
				}
			})
	}
}

// TestBatchWaitsForOnline: requests of both priorities wait for one slot. The online ones go
// first, but for one slot in 16.
func TestBatchWaitsForOnline(t *testing.T) {
	const each = 160
	for name, o := range map[string]proxytest.MeshOptions{
		"at the provider": {Apps: 1, Provider: "max_concurrency: 1"},
		"at the consumer": {Apps: 1, Service: "max_concurrency: 1", OneHop: true},
		"with two loops":  {Apps: 1, Service: "max_concurrency: 1", OneHop: true, Loops: 2},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, o)
			m.Apps[0].Delay = func() time.Duration { return 10 * time.Millisecond }
			got := recordPriorities(m)
			var calls []*proxytest.Call
			for i := range 2 * each {
				k := m.Post(10, [...]string{batch, "x-none: 1"}[i/each])
				m.Dial(fmt.Sprintf("10.0.0.1:%d", 15001+i%m.Loops)).Calls = []*proxytest.Call{k}
				calls = append(calls, k)
			}
			m.OK(calls...)
			m.Settled()
			online, early := 0, 0 // batch requests before the last online one
			for _, isBatch := range *got {
				switch {
				case !isBatch:
					online++
				case online < each:
					early++
				}
			}
			if want := each / 15; online != each || early < want || early > want+2 {
				t.Errorf("%d of %d batch requests before the last of %d online ones, want about %d", early, each, online, want)
			}
		})
	}
}

// TestSlotsForOnline: batch requests leave an eighth of the slots free, so that an online
// request need not wait.
func TestSlotsForOnline(t *testing.T) {
	for slots, most := range map[string]int{"1": 1, "2": 1, "8": 7, "16": 14, "64": 56} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "max_concurrency: " + slots})
		m.Apps[0].Delay = func() time.Duration { return time.Second }
		got := recordPriorities(m)
		var calls []*proxytest.Call
		for range 100 {
			k := m.Post(10, batch)
			m.Do(k)
			calls = append(calls, k)
		}
		m.W.Run(100 * time.Millisecond)
		if len(*got) != most {
			t.Errorf("%d batch requests at the application with %s slots, want %d", len(*got), slots, most)
		}
		if slots != "1" {
			k := m.Post(10)
			m.Do(k)
			calls = append(calls, k)
			m.W.Run(100 * time.Millisecond)
			if n := len(*got); n != most+1 || (*got)[n-1] {
				t.Errorf("the online request did not reach the application, which has %d of %s slots in use", n, slots)
			}
		}
		m.Finish(calls...)
		m.Settled()
	}
}

// TestBatchNotStarved: online requests always use the slots that batch requests must leave
// free, but never wait themselves. The batch request is served nevertheless.
func TestBatchNotStarved(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "max_concurrency: 2"})
	m.Apps[0].Delay = func() time.Duration { return 10 * time.Millisecond }
	online := m.Crowd(2, 100, 10)
	m.W.Run(5 * time.Millisecond)
	k := m.Complete(m.Post(10, batch))
	m.OK(k)
	if k.Took > 200*time.Millisecond {
		t.Errorf("the batch request took %v, want about the time of 16 slots", k.Took)
	}
	m.OK(online...)
	m.Settled()
}

// TestBatchNotHedged: a batch request is not hedged, and the estimate of latency is that of
// online requests alone, also while deadlines pass.
func TestBatchNotHedged(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Match: "timeout: 200ms", Service: proxytest.HedgeOn})
	m.Apps.Slow(100 * time.Millisecond)
	var calls []*proxytest.Call
	for i := range 20 {
		if i == 10 {
			m.Apps.Slow(time.Second)
		}
		k := m.Post(10, batch)
		m.Do(k)
		calls = append(calls, k)
		m.W.Run(20 * time.Millisecond)
	}
	m.Finish(calls...)
	m.Settled()
	if n := m.Consumer.Stats("compute").Hedges; n != 0 {
		t.Errorf("%d hedges of batch requests", n)
	}
	if seen := m.Consumer.Report().Services[0].Routes[0].Latency; seen != (histogram.Distribution{}) {
		t.Error("batch requests are in the estimate")
	}
	m.Complete(m.Post(10))
	if n := m.Consumer.Stats("compute").Hedges; n == 0 {
		t.Error("the online request was not hedged, so the test shows nothing")
	}
}

// TestBatchRefusedFirst: when there is too much work, batch requests are refused and online ones
// are not.
func TestBatchRefusedFirst(t *testing.T) {
	for name, c := range map[string]struct {
		o       proxytest.MeshOptions
		size    int // of the bodies of requests that are in flight from the beginning
		online  int // such requests
		batch   int // batch requests that follow, and how many of them are served
		served  int
		further int // online requests that follow, and are all served
		lacks   bool
	}{
		"max_pending":        {proxytest.MeshOptions{Service: "max_pending: 8"}, 10, 2, 5, 2, 4, false},
		"max_pending of 1":   {proxytest.MeshOptions{Service: "max_pending: 1"}, 10, 0, 2, 1, 0, false},
		"max_pending, there": {proxytest.MeshOptions{Provider: "max_pending: 8"}, 10, 2, 5, 2, 4, false},
		"max_queue":          {proxytest.MeshOptions{Provider: "max_concurrency: 2, max_queue: 8"}, 10, 2, 5, 4, 4, false},
		"limits.buffered":    {proxytest.MeshOptions{OneHop: true, Limits: proxytest.SmallBudget}, 300_000, 2, 3, 0, 3, false},
		"descriptors":        {proxytest.MeshOptions{OneHop: true}, 10, 0, 3, 0, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Apps = 1
			m := proxytest.NewMesh(t, c.o)
			m.Apps[0].Delay = func() time.Duration { return 100 * time.Millisecond }
			m.Consumer.Proc.SetOverload(func() bool { return c.lacks })
			send := func(n, size int, header string) (calls []*proxytest.Call) {
				for range n {
					k := m.Post(size, header)
					m.Do(k)
					calls = append(calls, k)
				}
				m.W.Run(20 * time.Millisecond)
				return calls
			}
			online := send(c.online, c.size, "x-none: 1")
			batches := send(c.batch, 10, batch)
			online = append(online, send(c.further, 10, "x-none: 1")...)
			m.Finish(append(batches, online...)...)
			m.OK(online...)
			codes := proxytest.CountCodes(batches)
			if codes[""] != c.served || codes["overloaded"] != c.batch-c.served {
				t.Errorf("batch requests by code: %v; want %d served", codes, c.served)
			}
			m.Settled()
		})
	}
}

// TestRefusedBatchNotRetried: a batch request that the provider refuses takes no token from
// online requests, which are retried.
func TestRefusedBatchNotRetried(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Provider: "max_concurrency: 1, max_queue: 0"})
	for i, header := range []string{batch, "x-none: 1"} {
		m.Apps.Slow(100 * time.Millisecond)
		var calls []*proxytest.Call
		for range 20 {
			k := m.Post(10, header)
			m.Do(k)
			calls = append(calls, k)
		}
		m.Finish(calls...)
		if n := m.Consumer.Stats("compute").RetriesPaid; (n > 0) != (i > 0) {
			t.Errorf("%s: %d paid retries", header, n)
		}
	}
}
