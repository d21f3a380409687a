package proxy_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy"
)

// leased is what a request for a Lease came to.
type leased struct {
	l  *proxy.Lease
	at proxy.Place
	f  *proxy.Failure
}

// lease asks the consumer for a place at compute.
func (m *mesh) lease() leased {
	m.t.Helper()
	var got *leased
	m.consumer.proc.Workers()[0].Lease("compute", func(l *proxy.Lease, at proxy.Place, f *proxy.Failure) {
		got = &leased{l, at, f}
	})
	m.until("an answer", func() bool { return got != nil })
	return *got
}

// again tells that the place did not take the stream.
func (m *mesh) again(l *proxy.Lease, why *proxy.Failure) (f *proxy.Failure) {
	m.t.Helper()
	done := false
	l.Again(why, nil, func(_ proxy.Place, fail *proxy.Failure) { f, done = fail, true })
	m.until("an answer", func() bool { return done })
	return f
}

// The limits of the service hold for streams as for requests.
func TestLeaseIsLimited(t *testing.T) {
	for _, c := range []struct {
		service string
		want    *proxy.Failure
	}{
		{", rate_limit: {rate: 1, burst: 1}", proxy.FailRateLimited},
		{", max_pending: 1", proxy.FailOverloaded},
	} {
		m := newMesh(t, meshOptions{apps: 1, service: c.service})
		first := m.lease()
		if first.f != nil || !first.at.Link || first.at.Addr != ingress {
			t.Fatalf("%s: got %+v", c.service, first)
		}
		if second := m.lease(); second.f != c.want {
			t.Errorf("%s: the second one got %v", c.service, second.f)
		}
		first.l.Close(false, 0, 0)
		m.settled()
	}
}

// The breaker learns from streams what it learns from requests: failed connects,
// and answers.
func TestLeaseIsJudged(t *testing.T) {
	for name, fail := range map[string]func(m *mesh, l *proxy.Lease){
		"connect": func(m *mesh, l *proxy.Lease) {
			if f := m.again(l, proxy.FailConnect); f != proxy.FailConnect {
				m.t.Fatalf("another place, or %v", f)
			}
		},
		"answer": func(_ *mesh, l *proxy.Lease) { l.Failed(proxy.FailReset); l.Close(false, 0, 0) },
		"status": func(m *mesh, l *proxy.Lease) {
			l.Connected(500)
			m.w.Run(time.Millisecond)
			l.Close(true, 0, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 1, service: ", breaker: {consecutive: 2, open: 5s, half_open: 1}"})
			good := func(status int) {
				probe := m.lease()
				if probe.f != nil {
					t.Fatalf("refused: %v", probe.f)
				}
				probe.l.Connected(status)
				m.w.Run(time.Millisecond)
				probe.l.Close(true, 0, 0)
				m.w.Run(time.Millisecond)
			}
			bad := func() {
				fail(m, m.lease().l)
				m.w.Run(time.Millisecond)
			}
			bad()
			good(200) // breaks the row
			bad()
			bad()
			if got := m.lease(); got.f != proxy.FailBreakerOpen {
				t.Fatalf("the breaker is not open: %v", got.f)
			}
			m.w.Run(6 * time.Second)
			silent := m.lease() // a probe that comes to nothing makes room for the next
			if silent.f != nil || m.lease().f != proxy.FailBreakerOpen {
				t.Fatal("half-open, not exactly one probe passed")
			}
			silent.l.Close(false, 0, 0)
			m.w.Run(time.Millisecond)
			opaque := m.lease()
			opaque.l.Connected(0) // and open for long
			m.w.Run(time.Millisecond)
			good(404)
			opaque.l.Close(true, 0, 0)
			m.settled()
		})
	}
}

// An endpoint that takes no streams is ejected as one that takes no requests, and
// comes back when a stream that probes it is taken; no other stream is sent there
// meanwhile. What is not its fault ejects it not.
func TestStreamsEject(t *testing.T) {
	for _, c := range []struct {
		name   string
		fail   func(m *mesh, l *proxy.Lease)
		ejects bool
	}{
		{"not connected", func(m *mesh, l *proxy.Lease) { m.again(l, proxy.FailConnect); l.Close(false, 0, 0) }, true},
		{"reset", func(_ *mesh, l *proxy.Lease) { l.Failed(proxy.FailReset); l.Close(false, 0, 0) }, true},
		{"answer of 5xx", func(_ *mesh, l *proxy.Lease) { l.Connected(502); l.Close(true, 0, 0) }, true},
		{"answer of 4xx", func(_ *mesh, l *proxy.Lease) { l.Connected(404); l.Close(true, 0, 0) }, false},
		{"refused for load", func(m *mesh, l *proxy.Lease) { m.again(l, proxy.FailOverloaded); l.Close(false, 0, 0) }, false},
		{"given up", func(_ *mesh, l *proxy.Lease) { l.Close(false, 0, 0) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 2, service: ", lb: {policy: weighted_round_robin, slow_start: 0s}, outlier: {consecutive: 3, base: 10s, max_ejected: 0.5}"})
			const sick = ingress
			at := func() (places map[string]int) { // of 40 streams at once
				places = map[string]int{}
				var open []leased
				for range 40 {
					got := m.lease()
					places[got.at.Addr]++
					open = append(open, got)
				}
				for _, l := range open {
					l.l.Close(false, 0, 0)
				}
				m.w.Run(time.Millisecond)
				return places
			}
			for range 20 { // well, then three failures in a row
				if got := m.lease(); got.at.Addr == sick {
					c.fail(m, got.l)
				} else {
					got.l.Connected(0)
					got.l.Close(true, 0, 0)
				}
				m.w.Run(time.Millisecond)
			}
			if n := at()[sick]; (n == 0) != c.ejects {
				t.Fatalf("%d of 40 streams at the endpoint that failed", n)
			}
			if !c.ejects {
				m.settled()
				return
			}
			m.w.Run(11 * time.Second)
			if n := at()[sick]; n != 1 {
				t.Errorf("%d of 40 streams at the endpoint when a probe is due", n)
			}
			m.w.Run(11 * time.Second)
			for {
				got := m.lease()
				got.l.Connected(200)
				m.w.Run(time.Millisecond)
				got.l.Close(true, 0, 0)
				m.w.Run(time.Millisecond)
				if got.at.Addr == sick {
					break
				}
			}
			if n := at()[sick]; n < 15 {
				t.Errorf("%d of 40 streams at the endpoint that is well again", n)
			}
			m.settled()
		})
	}
}
