package shard

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Logger writes the operator's log. Its arguments are key-value pairs as in log/slog,
// whose *Logger implements it. It must not block.
type Logger interface {
	Warn(msg string, args ...any)
}

// logPause is how long a message is omitted after a line with it.
const logPause = 10 * time.Second

// LimitedLogger is a Logger for events that peers cause, so that no peer can fill the
// log. It writes each message at most once in logPause, with the number of lines that
// were omitted before. Messages must be constants, since it remembers all of them.
type LimitedLogger struct {
	to    Logger
	loop  loop.Loop
	lines map[string]*limitedLine
}

type limitedLine struct {
	at      time.Duration
	omitted int // lines since then
}

func newLimitedLogger(to Logger, loop loop.Loop) *LimitedLogger {
	return &LimitedLogger{to: to, loop: loop, lines: map[string]*limitedLine{}}
}

// Separate returns a LimitedLogger to the same Logger with counts of its own.
func (q *LimitedLogger) Separate() *LimitedLogger { return newLimitedLogger(q.to, q.loop) }

// Warn implements Logger.
func (q *LimitedLogger) Warn(msg string, args ...any) {
	now, last := q.loop.Now(), q.lines[msg]
	switch {
	case last == nil:
		last = &limitedLine{}
		q.lines[msg] = last
	case now-last.at < logPause:
		last.omitted++
		return
	}
	q.to.Warn(msg, append(slices.Clip(args), "omitted", last.omitted)...)
	*last = limitedLine{at: now}
}
