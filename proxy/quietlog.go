package proxy

import (
	"slices"
	"time"
)

// Logger takes what an operator should know of, with key-value pairs as in
// log/slog, whose *Logger is one. It must not block.
type Logger interface {
	Warn(msg string, args ...any)
}

// quietPause is how long a message is left out of the log after a line of it.
const quietPause = 10 * time.Second

// quietLog is a Logger for what peers cause, who could fill the log: of each message
// it writes a line in quietPause at most, which says how many were left out before it.
// Messages are constants of the program, so it knows but a few.
type quietLog struct {
	to    Logger
	loop  Loop
	lines map[string]*quietLine
}

type quietLine struct {
	at      time.Duration
	omitted int // since then
}

func newQuietLog(to Logger, loop Loop) *quietLog {
	return &quietLog{to: to, loop: loop, lines: map[string]*quietLine{}}
}

// apart returns a LimitedLogger to the same Logger that counts on its own.
func (q *quietLog) apart() *quietLog { return newQuietLog(q.to, q.loop) }

// Warn implements Logger.
func (q *quietLog) Warn(msg string, args ...any) {
	now, last := q.loop.Now(), q.lines[msg]
	switch {
	case last == nil:
		last = &quietLine{}
		q.lines[msg] = last
	case now-last.at < quietPause:
		last.omitted++
		return
	}
	q.to.Warn(msg, append(slices.Clip(args), "omitted", last.omitted)...)
	*last = quietLine{at: now}
}
