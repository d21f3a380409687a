package replica

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
)

// testTimeout bounds waits. No result depends on it.
const testTimeout = time.Minute

// A fakeClock moves only when a test advances it.
type fakeClock struct {
	mu      sync.Mutex
	changed *sync.Cond
	time    time.Time
	asleep  int
}

func newFakeClock() *fakeClock {
	c := &fakeClock{time: time.Unix(1_000_000, 0)}
	c.changed = sync.NewCond(&c.mu)
	return c
}

func (c *fakeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.time
}

func (c *fakeClock) sleepUntil(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asleep++
	c.changed.Broadcast()
	for c.time.Before(t) {
		c.changed.Wait()
	}
	c.asleep--
	c.changed.Broadcast()
}

func (c *fakeClock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time = t
	c.changed.Broadcast()
}

// awaitAsleep returns once n calls sleep.
func (c *fakeClock) awaitAsleep(t *testing.T, n int) {
	t.Helper()
	timeout := time.AfterFunc(testTimeout, func() { c.changed.Broadcast() })
	defer timeout.Stop()
	deadline := time.Now().Add(testTimeout)
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.asleep != n {
		if time.Now().After(deadline) {
			t.Fatalf("%d calls asleep, want %d", c.asleep, n)
		}
		c.changed.Wait()
	}
}

// start serves with a clock; nil means the real one.
func start(t *testing.T, o Options, clock *fakeClock) *Replica {
	t.Helper()
	now := time.Now()
	if clock != nil {
		now = clock.now()
	}
	o, err := o.withDefaults(now)
	if err != nil {
		t.Fatal(err)
	}
	s := newService(o)
	if clock != nil {
		s.now, s.sleepUntil = clock.now, clock.sleepUntil
		s.reset(o.Epoch)
	}
	return startService(t, s)
}

func startService(t *testing.T, s *service) *Replica {
	t.Helper()
	r, err := serve(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return r
}

func dial(t *testing.T, r *Replica) (net.Conn, *bufio.Reader) {
	t.Helper()
	c := must.Dial(t, "tcp", r.Addr())
	c.SetDeadline(time.Now().Add(testTimeout))
	return c, bufio.NewReader(c)
}

// answer reads a response with the standard library's parser.
func answer(t *testing.T, br *bufio.Reader, method string) (*http.Response, string) {
	t.Helper()
	resp, err := http.ReadResponse(br, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

const compute = "POST /compute HTTP/1.1\r\nHost: x\r\nx-nonce: %d\r\nContent-Length: 2\r\n\r\n{}"
