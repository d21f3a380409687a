package admin

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/fair"
)

// recorded is a connection that records its end.
type recorded struct {
	net.Conn
	from   net.TCPAddr
	closed bool
}

func (c *recorded) Close() error         { c.closed = true; return nil }
func (c *recorded) RemoteAddr() net.Addr { return &c.from }

// crowd is the connections that a connLimit was given, in their order.
type crowd struct {
	t *testing.T
	connLimit
	all []*recorded
}

func newCrowd(t *testing.T, max int) *crowd {
	c := &crowd{t: t}
	c.bound(&http.Server{Handler: http.NotFoundHandler()}, max)
	return c
}

// from opens a connection from 10.0.0.HOST.
func (c *crowd) from(host byte) net.Conn {
	nc := &recorded{from: net.TCPAddr{IP: net.IPv4(10, 0, 0, host), Port: 1}}
	c.all = append(c.all, nc)
	c.changed(nc, http.StateNew)
	return nc
}

// want checks which connections are closed.
func (c *crowd) want(what string, closed ...int) {
	c.t.Helper()
	for i, nc := range c.all {
		if nc.closed != slices.Contains(closed, i) {
			c.t.Errorf("%s: connection %d is closed: %t", what, i, nc.closed)
		}
	}
	if open := len(c.all) - len(closed); c.count() != open {
		c.t.Errorf("%s: %d connections, want %d", what, c.count(), open)
	}
}

// TestConnectionLimitClosesTheLongestWaiting: none is closed at the limit. One more closes the
// one that has waited longest for a request, or itself if all have one.
func TestConnectionLimitClosesTheLongestWaiting(t *testing.T) {
	const shared = 6
	c := newCrowd(t, 8)
	for range shared {
		c.from(1)
	}
	c.want("at the limit")
	c.busy(c.all[0], true)
	c.from(1)
	c.want("one past it, the first has a request", 1)
	c.busy(c.all[2], true)
	c.busy(c.all[2], false) // it waits anew
	c.from(1)
	c.want("two past it", 1, 3)
	c.from(2)
	c.want("from another source", 1, 3, 4)
	c.busy(c.all[4], true) // no event of a closed connection counts
	c.busy(c.all[4], false)
	c.changed(c.all[4], http.StateClosed)
	for i, nc := range c.all {
		if i != 1 && i != 3 && i != 4 {
			c.busy(nc, true)
		}
	}
	last := len(c.all)
	c.from(1)
	c.from(3)
	c.want("all have a request", 1, 3, 4, last, last+1)
	for _, nc := range c.all {
		c.changed(nc, http.StateClosed)
	}
	if c.count() != 0 || c.shared.busy != 0 || c.shared.waiting.Taken() != 0 || c.shared.waiting.Max() != shared {
		t.Errorf("%d connections, %d busy, %d waiting of %d", c.count(), c.shared.busy, c.shared.waiting.Taken(), c.shared.waiting.Max())
	}
}

// TestConnectionLimitOfOneSource: connections of a source with many close no connection of a
// source with few.
func TestConnectionLimitOfOneSource(t *testing.T) {
	c := newCrowd(t, 8)
	for range 4 {
		c.from(1)
	}
	c.from(2)
	c.from(2)
	c.want("at the limit")
	c.from(1)
	c.from(1)
	c.want("two past it", 0, 1)
	for _, nc := range c.all {
		c.changed(nc, http.StateClosed)
	}
	if n := c.shared.waiting.Taken(); n != 0 || c.count() != 0 {
		t.Errorf("%d connections, %d places are taken after the end of all", c.count(), n)
	}
}

// TestConnectionLimitOfManySources: connections of sources that have not checked the health
// close none of a source that has, however many they are. Without connections of others a
// source that has may use the other places, too.
func TestConnectionLimitOfManySources(t *testing.T) {
	c := newCrowd(t, 8)
	c.checkers.Add(fair.SourceOf(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}))
	for range 8 {
		c.from(1)
	}
	c.want("all are of the checker")
	for i := range byte(100) {
		c.from(100 + i)
	}
	if open := c.count(); open != 8 {
		t.Errorf("%d connections, want 8", open)
	}
	if c.all[0].closed || c.all[1].closed {
		t.Error("a reserved connection is closed")
	}
}

// TestConnectionLimit: callers that keep connections open, or open them and say nothing, take
// neither the descriptors of the process nor the turn of a probe.
func TestConnectionLimit(t *testing.T) {
	const maxConnections = 16
	s := newSidecar(t, twoServices+withProfiles+fmt.Sprintf("limits: {admin_connections: %d}", maxConnections))
	ln := must.Listen(t)
	s.api.Start(ln)
	defer s.api.Close(context.Background())
	ask := func(nc net.Conn, path string) error {
		_ = nc.SetDeadline(time.Now().Add(waitLimit))
		if _, err := fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", path); err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		return err
	}
	dial := func() net.Conn {
		nc := must.Dial(t, "tcp", ln.Addr().String())
		return nc
	}

	inProgress, done := dial(), make(chan error, 1)
	go func() { done <- ask(inProgress, "/debug/pprof/trace?seconds=2") }()
	eventually.True(t, "the first request to be in progress", func() bool {
		s.api.conns.mu.Lock()
		defer s.api.conns.mu.Unlock()
		return s.api.conns.shared.busy == 1
	})
	for i := range 8 * maxConnections {
		if nc := dial(); i%2 == 0 {
			if err := ask(nc, "/healthz"); err != nil {
				t.Fatalf("probe %d: %v", i, err)
			}
		}
	}
	if err := ask(dial(), "/healthz"); err != nil {
		t.Errorf("a probe after the flood: %v", err)
	}
	if open := s.api.conns.count(); open > maxConnections {
		t.Errorf("%d connections, at most %d", open, maxConnections)
	}
	if err := <-done; err != nil {
		t.Errorf("a request in progress: %v", err)
	}
}

// TestCheckers: a source is known for its health checks, and not for other requests.
func TestCheckers(t *testing.T) {
	var c connLimit
	server := &http.Server{Handler: http.NotFoundHandler()}
	c.bound(server, 8)
	for host, path := range []string{"/healthz", "/readyz", "/metrics", "/healthz/"} {
		nc := &recorded{from: net.TCPAddr{IP: net.IPv4(10, 0, 0, byte(host)), Port: 1}}
		c.changed(nc, http.StateNew)
		r := httptest.NewRequest(http.MethodGet, path, nil)
		server.Handler.ServeHTTP(httptest.NewRecorder(), r.WithContext(server.ConnContext(t.Context(), nc)))
		if known, want := c.checkers.Has(fair.SourceOf(nc.RemoteAddr())), host < 2; known != want {
			t.Errorf("after %s the source is known: %t", path, known)
		}
	}
}
