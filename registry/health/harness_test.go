package health

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// timeout is how long a test waits for an event. It is also the timeout of checks that
// are not about slowness.
const timeout = 30 * time.Second

// fast is a check of /healthz with a very short interval.
var fast = Check{Path: "/healthz", Interval: time.Millisecond, Timeout: timeout, Healthy: 2, Unhealthy: 3}

// scripted is an application whose responses the test decides.
type scripted struct {
	t      *testing.T
	addr   string
	asked  chan struct{} // a check has arrived, and earlier ones are complete
	answer chan int      // the status of its response
}

func newScripted(t *testing.T) *scripted {
	s := &scripted{t: t, asked: make(chan struct{}), answer: make(chan int)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.asked <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		select {
		case status := <-s.answer:
			w.WriteHeader(status)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(srv.Close)
	s.addr = srv.Listener.Addr().String()
	return s
}

// answers sets the statuses of the next checks, and returns when one more check has
// arrived.
func (s *scripted) answers(statuses ...int) {
	s.t.Helper()
	for _, status := range statuses {
		s.answer <- status
		receive(s.t, "the next check", s.asked)
	}
}

// closedPort returns an address that refuses connections until the test listens there.
func closedPort(t *testing.T) string {
	t.Helper()
	addrs, release, err := freeport.Loopback(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return addrs[0]
}

func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(timeout):
		t.Fatalf("timed out waiting for %s", what)
		panic("not reached")
	}
}
