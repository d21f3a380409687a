package shard

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Logger takes what an operator should know of, with key-value pairs as in
// log/slog, whose *Logger is one. It must not block.
type Logger interface {
	Warn(msg string, args ...any)
}

// logPause is how long a message is left out of the log after a line of it.
const logPause = 10 * time.Second

// LimitedLogger is a Logger for what peers cause, who could fill the log: of each message
// it writes a line in logPause at most, which says how many were left out before it.
// Messages are constants of the program, so it knows but a few.
type LimitedLogger struct {
	to    Logger
	loop  loop.Loop
	lines map[string]*limitedLine
}

type limitedLine struct {
	at      time.Duration
	omitted int // since then
}

func newLimitedLogger(to Logger, loop loop.Loop) *LimitedLogger {
	return &LimitedLogger{to: to, loop: loop, lines: map[string]*limitedLine{}}
}

// Separate returns a LimitedLogger to the same Logger that counts on its own.
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
