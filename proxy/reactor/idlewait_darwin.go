package reactor

import "sync/atomic"

// idleWait only counts: a loop waits through gnet.
type idleWait struct {
	tasks atomic.Int64 // functions given to gnet that have not run
}

func (l *eventLoop) waitIdle() {}

func (l *eventLoop) taskBegins() { l.idle.tasks.Add(1) }

func (l *eventLoop) taskEnds() { l.idle.tasks.Add(-1) }

func (r *idleWait) findDescriptors(int) error { return nil }
