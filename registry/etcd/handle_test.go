package etcd

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/tasks"
	"github.com/remora-proxy/remora/registry"
)

// newTestHandle returns a handle whose goroutine does not run, and its log.
func newTestHandle(t *testing.T) (h *handle, log *bytes.Buffer) {
	log = new(bytes.Buffer)
	r := &Registry{log: slog.New(slog.NewTextHandler(log, nil)), contact: registry.NewContact(), tasks: tasks.New()}
	t.Cleanup(r.tasks.Close)
	return r.newHandle(), log
}

// TestAwaitBreak: what ends the wait of a registered key that was put at revision 5, and which of it is an error.
func TestAwaitBreak(t *testing.T) {
	for name, c := range map[string]struct {
		happen func(h *handle, cancel func(), alive chan struct{}, lost chan struct{}, gone chan int64)
		want   string // of the error; "" means none
	}{
		"another value":     {func(h *handle, _ func(), _, _ chan struct{}, _ chan int64) { h.changed <- struct{}{} }, ""},
		"the end":           {func(_ *handle, cancel func(), _, _ chan struct{}, _ chan int64) { cancel() }, context.Canceled.Error()},
		"no lease any more": {func(_ *handle, _ func(), alive, _ chan struct{}, _ chan int64) { close(alive) }, "lease is not kept alive"},
		"lost data":         {func(_ *handle, _ func(), _, lost chan struct{}, _ chan int64) { close(lost) }, errLost.Error()},
		"a removal":         {func(_ *handle, _ func(), _, _ chan struct{}, gone chan int64) { gone <- 6 }, "key was removed"},
	} {
		h, _ := newTestHandle(t)
		ctx, cancel := context.WithCancel(t.Context())
		alive, lost, gone := make(chan struct{}), make(chan struct{}), make(chan int64)
		h.pause.next = maxRetry
		result := make(chan error, 1)
		go func() { result <- h.awaitBreak(ctx, 5, &keptLease{alive: alive}, lost, gone) }()
		gone <- 4 // from before the put
		gone <- 5
		alive <- struct{}{}
		gone <- 0 // the renewal is handled
		c.happen(h, cancel, alive, lost, gone)
		err := <-result
		if err == nil && c.want != "" || err != nil && err.Error() != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if next := h.pause.next; next != 0 {
			t.Errorf("%s: the lease was renewed, and the last pause is %v", name, next)
		}
		cancel()
	}
}

// TestFailed: the log says once why a key can't be put, until it was put, and the state says it always. What was interrupted says nothing.
func TestFailed(t *testing.T) {
	for service, what := range map[string]string{"compute": "registration failed, will retry", "": "value not put in etcd, will retry"} {
		h, log := newTestHandle(t)
		h.service = service
		op, cancel := context.WithCancel(t.Context())
		one, two := errors.New("one"), errors.New("two")
		for i, step := range []struct {
			err   error // nil is a success
			lines int
		}{{one, 1}, {two, 1}, {nil, 1}, {two, 2}} {
			if step.err == nil {
				h.Settle(op, registry.Registered, nil)
			} else {
				h.failed(op, step.err)
			}
			if h.Err() != step.err || (h.State() == registry.Registered) != (step.err == nil) || strings.Count(log.String(), what) != step.lines {
				t.Errorf("step %d: %v, %v; the log has %s", i, h.State(), h.Err(), log)
			}
		}
		h.Settle(op, registry.Registered, nil)
		cancel()
		if h.failed(op, one); h.Err() != nil || strings.Count(log.String(), "\n") != 2 {
			t.Errorf("interrupted: %v; the log has %s", h.Err(), log)
		}
	}
}

// TestSet: another value has to be put, and the same one has not.
func TestSet(t *testing.T) {
	h, _ := newTestHandle(t)
	h.value = "a"
	h.Settle(t.Context(), registry.Registered, nil)
	for _, step := range []struct {
		value     string
		isChanged bool
	}{{"a", false}, {"b", true}, {"c", true}, {"c", true}} {
		h.set(step.value)
		if isChanged := len(h.changed) == 1; isChanged != step.isChanged || h.value != step.value || (h.State() == registry.Pending) != step.isChanged {
			t.Errorf("%s: changed %t, %v", step.value, isChanged, h.State())
		}
	}
}

// TestLoadCache: the cache of another registry, or without the service, is not used.
func TestLoadCache(t *testing.T) {
	cache, err := registry.OpenCache(t.TempDir(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for name, origin := range map[string]string{"ours": "here", "another": "elsewhere"} {
		cache.Store(registry.Record{
			Service: name, Origin: origin, Cluster: 1, Term: 2, Revision: 3, Changed: time.Unix(1, 0), Endpoints: []registry.Endpoint{{Addr: "10.0.0.1:80", Weight: 1}},
		})
	}
	cache.Close() // writes
	for name, isUsed := range map[string]bool{"ours": true, "another": false, "none": false} {
		s := &service{r: &Registry{cache: cache, origin: "here"}, name: name, view: newView(1, 1)}
		before := time.Now()
		s.loadCache()
		if got := s.cached != nil; got != isUsed || len(s.view.current) > 0 != isUsed || (s.pos == position{1, 2, 3}) != isUsed {
			t.Errorf("%s: used %t, at %+v, %v", name, got, s.pos, s.view.current)
		}
		if isUsed && (s.coldAt.Before(before.Add(coldWait)) || !s.cached.Changed.Equal(time.Unix(1, 0)) || s.cached.Source != registry.SourceCache) {
			t.Errorf("%s: %+v at %v", name, s.cached, s.coldAt)
		}
	}
}
