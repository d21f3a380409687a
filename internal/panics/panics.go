// Package panics keeps a panic on one goroutine from ending the process.
package panics

import (
	"errors"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
)

// Err is what Guard returns after a panic.
var Err = errors.New("panic")

// Counter counts and logs panics after which the process goes on. Any goroutine may use it.
type Counter struct {
	log *slog.Logger
	n   atomic.Int64
}

// NewCounter returns a Counter that logs to log.
func NewCounter(log *slog.Logger) *Counter { return &Counter{log: log} }

// Count returns the number of panics.
func (c *Counter) Count() int64 { return c.n.Load() }

// Guard calls f and returns its error. If f panics, Guard counts that and returns Err.
func (c *Counter) Guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			c.Add(r, "panic on a goroutine")
			err = Err
		}
	}()
	return f()
}

// Do calls f, and reports whether it has returned. If f panics, Do counts that.
func (c *Counter) Do(f func()) (ok bool) {
	return c.Guard(func() error { f(); return nil }) == nil
}

// Add counts and logs what a deferred function has recovered, with the stack of that function's goroutine.
func (c *Counter) Add(recovered any, msg string, args ...any) {
	c.n.Add(1)
	c.log.Error(msg, append(args, "panic", recovered, "stack", string(debug.Stack()))...)
}
