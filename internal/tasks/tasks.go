// Package tasks runs the goroutines of a client until the client is closed.
package tasks

import (
	"context"
	"sync"
)

// Group is the goroutines of one client. Its methods may be called from any goroutine.
type Group struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu  sync.Mutex // held to end ctx, and to start a task unless ctx has ended
	all sync.WaitGroup
}

// New returns a Group without tasks. The caller must Close it.
func New() *Group {
	g := new(Group)
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Context returns the context of the tasks, which ends with Close.
func (g *Group) Context() context.Context { return g.ctx }

// Go runs f on a goroutine that Close waits for. It reports whether it does: after Close it does not.
func (g *Group) Go(f func()) (started bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		return false
	}
	g.all.Go(f)
	return true
}

// Close ends the context, and waits for the tasks. No task may call it. Calling it again waits, too.
func (g *Group) Close() {
	g.mu.Lock()
	g.cancel()
	g.mu.Unlock()
	g.all.Wait()
}
