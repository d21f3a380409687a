package admin

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
)

// recorded is a connection that records its end.
type recorded struct {
	net.Conn
	closed bool
}

func (c *recorded) Close() error { c.closed = true; return nil }

// TestConnectionLimitClosesTheLongestWaiting: none is closed at the limit. One more closes the
// one that has waited longest for a request, or itself if all have one.
func TestConnectionLimitClosesTheLongestWaiting(t *testing.T) {
	var c connLimit
	const maxConnections = 5
	c.bound(&http.Server{Handler: http.NotFoundHandler()}, maxConnections)
	var all []*recorded
	open := func() *recorded {
		nc := &recorded{}
		all = append(all, nc)
		c.changed(nc, http.StateNew)
		return nc
	}
	want := func(what string, closed ...int) {
		t.Helper()
		for i, nc := range all {
			if nc.closed != slices.Contains(closed, i) {
				t.Errorf("%s: connection %d is closed: %t", what, i, nc.closed)
			}
		}
	}
	for range maxConnections {
		open()
	}
	want("at the limit")
	c.busy(all[0], true)
	open()
	want("one past it, the first has a request", 1)
	c.busy(all[2], true)
	c.busy(all[2], false) // it waits anew
	open()
	want("two past it", 1, 3)
	c.changed(all[4], http.StateClosed)
	open()
	want("after one has left", 1, 3)
	for _, nc := range all {
		c.busy(nc, true) // no event of a closed connection counts
	}
	last := len(all)
	open()
	want("all have a request", 1, 3, last)
	if len(c.place) != maxConnections || c.waiting.Len() != 0 {
		t.Errorf("%d connections, %d waiting", len(c.place), c.waiting.Len())
	}
}

// TestConnectionLimit: callers that keep connections open, or open them and say nothing, take
// neither the descriptors of the process nor the turn of a probe.
func TestConnectionLimit(t *testing.T) {
	const maxConnections = 16
	s := newSidecar(t, twoServices+withProfiles+fmt.Sprintf("limits: {admin_connections: %d}", maxConnections))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		return nc
	}

	inProgress, done := dial(), make(chan error, 1)
	go func() { done <- ask(inProgress, "/debug/pprof/trace?seconds=2") }()
	eventually.True(t, "the first request to be in progress", func() bool {
		s.api.conns.mu.Lock()
		defer s.api.conns.mu.Unlock()
		return len(s.api.conns.place) == 1 && s.api.conns.waiting.Len() == 0
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
	s.api.conns.mu.Lock()
	if open := len(s.api.conns.place); open > maxConnections {
		t.Errorf("%d connections, at most %d", open, maxConnections)
	}
	s.api.conns.mu.Unlock()
	if err := <-done; err != nil {
		t.Errorf("a request in progress: %v", err)
	}
}
