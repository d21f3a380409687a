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

// maxLines bounds the lines that a LimitedLogger remembers. Above it, examples of new kinds
// share the line of their message.
const maxLines = 1024

// LimitedLogger is a Logger for events that peers cause, so that no peer can fill the
// log. It writes each message at most once in logPause, with the number of lines that
// were omitted before. Messages must be constants, since it remembers all of them.
type LimitedLogger struct {
	to    Logger
	loop  loop.Loop
	lines map[lineKey]*limitedLine
}

// lineKey is what one pause is for. listener and code are those of an example.
type lineKey struct{ msg, listener, code string }

type limitedLine struct {
	at      time.Duration
	omitted int // lines since then
}

func newLimitedLogger(to Logger, loop loop.Loop) *LimitedLogger {
	return &LimitedLogger{to: to, loop: loop, lines: map[lineKey]*limitedLine{}}
}

// Separate returns a LimitedLogger to the same Logger with counts of its own.
func (q *LimitedLogger) Separate() *LimitedLogger { return newLimitedLogger(q.to, q.loop) }

// Warn implements Logger.
func (q *LimitedLogger) Warn(msg string, args ...any) {
	if omitted, due := q.due(lineKey{msg: msg}); due {
		q.to.Warn(msg, append(slices.Clip(args), "omitted", omitted)...)
	}
}

// Due reports whether the caller may write an example of the events with this message,
// listener and code, which have a pause of their own. The names must not come from peers.
func (q *LimitedLogger) Due(msg, listener, code string) (omitted int, due bool) {
	k := lineKey{msg, listener, code}
	if len(q.lines) >= maxLines && q.lines[k] == nil {
		k = lineKey{msg: msg}
	}
	return q.due(k)
}

// Example writes a line that is Due.
func (q *LimitedLogger) Example(msg string, omitted int, args ...any) {
	q.to.Warn(msg, append(slices.Clip(args), "omitted", omitted)...)
}

// due counts an event, and reports whether it gets a line. omitted is the number of those
// before it that got none.
func (q *LimitedLogger) due(k lineKey) (omitted int, due bool) {
	now, last := q.loop.Now(), q.lines[k]
	switch {
	case last == nil:
		last = &limitedLine{}
		q.lines[k] = last
	case now-last.at < logPause:
		last.omitted++
		return 0, false
	}
	omitted = last.omitted
	*last = limitedLine{at: now}
	return omitted, true
}
