package tasks

import (
	"sync/atomic"
	"testing"

	"github.com/remora-proxy/remora/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestClose: Close ends the context and waits for all tasks, also for one that a task has started. After Close no task starts.
func TestClose(t *testing.T) {
	g := New()
	var ended atomic.Int64
	begun := make(chan struct{})
	task := func() {
		<-g.Context().Done()
		ended.Add(1)
	}
	if !g.Go(func() {
		if !g.Go(task) {
			t.Error("a task can't start another")
		}
		close(begun)
		task()
	}) {
		t.Error("the first task was not started")
	}
	<-begun
	for range 2 {
		g.Close()
		if n := ended.Load(); n != 2 {
			t.Errorf("%d tasks have ended after Close, want 2", n)
		}
		if g.Go(func() { t.Error("a task runs after Close") }) {
			t.Error("a task was started after Close")
		}
	}
}
