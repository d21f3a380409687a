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

// again tells that the place could not be connected.
func (m *mesh) again(l *proxy.Lease) (f *proxy.Failure) {
	m.t.Helper()
	done := false
	l.Again(func(_ proxy.Place, fail *proxy.Failure) { f, done = fail, true })
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
			if f := m.again(l); f != proxy.FailConnect {
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
