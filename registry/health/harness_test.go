package health

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// patience is how long a test waits for what must happen; it is also the timeout
// of checks whose slowness is not the subject.
const patience = 30 * time.Second

// fast is a check of /healthz that a test need not wait for.
var fast = Check{Path: "/healthz", Interval: time.Millisecond, Timeout: patience, Healthy: 2, Unhealthy: 3}

// scripted is an application that answers each check with what a test says next.
type scripted struct {
	t      *testing.T
	addr   string
	asked  chan struct{} // a check has come, the ones before it are over
	answer chan int      // the status for it
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

// answers lets checks have these statuses, and returns when the next has come.
func (s *scripted) answers(statuses ...int) {
	s.t.Helper()
	for _, status := range statuses {
		s.answer <- status
		receive(s.t, "the next check", s.asked)
	}
}

// closedPort is an address that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	return ln.Addr().String()
}

func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited for %s in vain", what)
		panic("not reached")
	}
}
