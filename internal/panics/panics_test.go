package panics

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestGuard(t *testing.T) {
	var log strings.Builder
	c := NewCounter(slog.New(slog.NewTextHandler(&log, nil)))
	other := errors.New("other")
	for _, want := range []error{nil, other} {
		if err := c.Guard(func() error { return want }); err != want {
			t.Errorf("Guard returns %v, want %v", err, want)
		}
	}
	if n := c.Count(); n != 0 || log.Len() > 0 {
		t.Errorf("without a panic: %d count, the log is %q", n, log.String())
	}
	if err := c.Guard(func() error { panic("boom") }); err != Err {
		t.Errorf("after a panic Guard returns %v", err)
	}
	for _, part := range []string{"level=ERROR", "panic=boom", "TestGuard"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("the log lacks %q: %s", part, log.String())
		}
	}
	if n := c.Count(); n != 1 {
		t.Errorf("%d panics count, want 1", n)
	}
}
