package harness

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Load makes calls until its end, and counts those that fail.
type Load struct {
	sent, failed atomic.Int64
	first        atomic.Value // the first failure, as text
	done         chan struct{}
	tasks        sync.WaitGroup
}

// StartLoad has callers make calls, each with a pause of 5 ms after a call.
func StartLoad(callers int, call func() error) *Load {
	l := &Load{done: make(chan struct{})}
	for range callers {
		l.tasks.Go(func() {
			for {
				select {
				case <-l.done:
					return
				case <-time.After(5 * time.Millisecond): // the pace of a caller
				}
				l.sent.Add(1)
				if err := call(); err != nil {
					l.failed.Add(1)
					l.first.CompareAndSwap(nil, err.Error())
				}
			}
		})
	}
	return l
}

// End ends the calls, and fails the test if one has failed. what names what has happened meanwhile.
func (l *Load) End(t *testing.T, what string) {
	t.Helper()
	close(l.done)
	l.tasks.Wait()
	t.Logf("%s: %d calls, %d failed", what, l.sent.Load(), l.failed.Load())
	if l.failed.Load() > 0 || l.sent.Load() == 0 {
		t.Errorf("%s: the first failure is %v", what, l.first.Load())
	}
}
