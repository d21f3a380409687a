package harness

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
)

// Load makes calls until its end, and counts those that fail.
type Load struct {
	t            *testing.T
	sent, failed atomic.Int64
	first        atomic.Value // the first failure, as text
	end          func()       // waits for the last calls
}

// StartLoad has callers make calls, each with a pause of 5 ms after a call. It ends with the test at the latest.
func StartLoad(t *testing.T, callers int, call func() error) *Load {
	l := &Load{t: t}
	done, tasks := make(chan struct{}), sync.WaitGroup{}
	l.end = sync.OnceFunc(func() { close(done); tasks.Wait() })
	t.Cleanup(l.end)
	for range callers {
		tasks.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(5 * time.Millisecond): // the pace of a caller
				}
				if err := call(); err != nil {
					l.failed.Add(1)
					l.first.CompareAndSwap(nil, err.Error())
				}
				l.sent.Add(1)
			}
		})
	}
	return l
}

// Await waits until n more calls have ended.
func (l *Load) Await(n int64) {
	l.t.Helper()
	want := l.sent.Load() + n
	eventually.True(l.t, "more calls", func() bool { return l.sent.Load() >= want })
}

// End ends the calls, and fails the test if one has failed. what names what has happened meanwhile.
func (l *Load) End(what string) {
	l.t.Helper()
	l.end()
	l.t.Logf("%s: %d calls, %d failed", what, l.sent.Load(), l.failed.Load())
	if l.failed.Load() > 0 || l.sent.Load() == 0 {
		l.t.Errorf("%s: the first failure is %v", what, l.first.Load())
	}
}
