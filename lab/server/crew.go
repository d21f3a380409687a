package server

import "sync"

// crew runs handlers on goroutines, which it keeps while there are connections. A new goroutine for
// each call would grow its stack each time: that took a fifth of the CPU time of a request without
// sleep.
type crew struct {
	mu    sync.Mutex
	conns int           // that may have a handler
	idle  []chan func() // one for each goroutine that waits; the last to come is the first to go
}

func (c *crew) join() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns++
}

// leave ends the goroutines that wait if no connection is left.
func (c *crew) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns--; c.conns > 0 {
		return
	}
	for _, tasks := range c.idle {
		close(tasks)
	}
	c.idle = nil
}

// run calls task on a goroutine, and does not wait for it.
func (c *crew) run(task func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.idle) - 1
	if last < 0 {
		go c.work(task)
		return
	}
	c.idle[last] <- task // does not block: its goroutine has taken all tasks before
	c.idle = c.idle[:last]
}

func (c *crew) work(task func()) {
	tasks := make(chan func(), 1)
	for more := true; more; {
		task()
		if !c.wait(tasks) {
			return
		}
		task, more = <-tasks
	}
}

// wait makes tasks get a task of run, or its end. It returns false if no connection is left.
func (c *crew) wait(tasks chan func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns == 0 {
		return false
	}
	c.idle = append(c.idle, tasks)
	return true
}
