package shard

import (
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// stopped is a loop whose time a test sets.
type stopped struct {
	loop.Loop
	now time.Duration
}

func (s *stopped) Now() time.Duration { return s.now }

// linesLog counts lines.
type linesLog []string

func (l *linesLog) Warn(msg string, args ...any) { *l = append(*l, fmt.Sprint(msg, args)) }

// TestExamples: examples of each listener and code have a pause of their own, and the number of
// pauses has a bound.
func TestExamples(t *testing.T) {
	var log linesLog
	at := &stopped{}
	q := newLimitedLogger(&log, at)
	event := func(listener, code string) {
		if omitted, due := q.Due("refused", listener, code); due {
			q.Example("refused", omitted, "listener", listener, "code", code)
		}
	}
	for range 3 {
		event("a", "x")
		event("a", "y")
		event("b", "x")
	}
	at.now = logPause
	event("a", "x")
	want := fmt.Sprint([]string{
		"refused[listener a code x omitted 0]", "refused[listener a code y omitted 0]", "refused[listener b code x omitted 0]",
		"refused[listener a code x omitted 2]",
	})
	if got := fmt.Sprint(log); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for i := range 2 * maxLines {
		event(fmt.Sprint(i), "x")
	}
	if len(q.lines) > maxLines+1 || len(log) > maxLines+len(want) {
		t.Errorf("%d pauses, %d lines", len(q.lines), len(log))
	}
}
