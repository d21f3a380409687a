// Package pursuit is what the registrations of all registries have in common: the goal that the owner of a registration sets,
// and the state that its goroutine has reached. It knows neither records nor connections.
package pursuit

import (
	"context"
	"sync"

	"github.com/remora-proxy/remora/registry"
)

// goal is the state that a registration's owner wants.
type goal uint8

const (
	up      goal = iota // registered
	yielded             // unchanged: the record belongs to another process
	down                // withdrawn, until the owner wants it again
	closed              // withdrawn, forever
)

// unreached is the state from the choice of a goal until it is reached. A yielded registration keeps its state.
var unreached = [...]registry.State{up: registry.Pending, down: registry.Withdrawn, closed: registry.Pending}

// stateEdges are the changes of a registration's state.
//
//	pending    ──▶ registered  the record is there
//	           ──▶ withdrawn   Withdraw
//	           ──▶ closed      the record is removed, or Close gives up
//	           ──▶ failed      the registration is invalid
//	registered ──▶ pending     it broke, its value changes, or it closes
//	           ──▶ withdrawn   Withdraw
//	withdrawn  ──▶ pending     Restore, or it closes
var stateEdges = [registry.Failed + 1][registry.Failed + 1]bool{
	registry.Pending:    {registry.Registered: true, registry.Withdrawn: true, registry.Closed: true, registry.Failed: true},
	registry.Registered: {registry.Pending: true, registry.Withdrawn: true},
	registry.Withdrawn:  {registry.Pending: true},
}

// Registrant is what a registry does for one registration. Its methods are called from one goroutine.
type Registrant interface {
	Keep(op context.Context)         // keeps the record in the registry until op ends
	Leave(op context.Context)        // leaves the record to another process, until op ends
	Remove(op context.Context) error // removes the record, if it is still this process's
	Pause(op context.Context)        // waits after a Remove that failed
}

// Pursuit has all methods of a registry.Handle but Change. They may be called from any goroutine. A new goal interrupts what
// the Registrant does for the former one.
type Pursuit struct {
	errClosed error // of a Handle that ended without a Close of its own

	ctx  context.Context // of the goroutine
	kill context.CancelFunc
	done chan struct{} // closed when the goroutine has ended

	putting sync.Mutex // held by Put

	closing  sync.Once
	closeErr error

	mu        sync.Mutex
	goal      goal
	op        context.Context // ends when goal changes
	interrupt context.CancelFunc
	state     registry.State
	err       error
}

// New returns a Pursuit that does not run yet. It ends with ctx, the life of the registry; its error is errClosed then. The
// caller must call Run, Fail or End.
func New(ctx context.Context, errClosed error) *Pursuit {
	p := &Pursuit{errClosed: errClosed, done: make(chan struct{})}
	p.ctx, p.kill = context.WithCancel(ctx)
	p.op, p.interrupt = context.WithCancel(p.ctx)
	return p
}

// Fail ends a Pursuit that does not run, as its registration is invalid.
func (p *Pursuit) Fail(err error) { p.end(registry.Failed, err) }

// End ends a Pursuit that does not run, as its registry is closed.
func (p *Pursuit) End() { p.end(registry.Closed, p.errClosed) }

func (p *Pursuit) end(s registry.State, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.become(s)
	p.err = err
	p.kill()
	close(p.done)
}

// Run pursues the goal until the registration is closed, or its registry.
func (p *Pursuit) Run(r Registrant) {
	defer close(p.done)
	for p.ctx.Err() == nil {
		switch op, g := p.current(); g {
		case up:
			r.Keep(op)
		case yielded:
			r.Leave(op)
		default:
			if err := r.Remove(op); err != nil {
				p.Settle(op, unreached[g], err)
				r.Pause(op)
				continue
			}
			if g == closed {
				p.Settle(op, registry.Closed, nil)
				return
			}
			p.Settle(op, registry.Withdrawn, nil)
			<-op.Done()
		}
	}
}

// Context ends when the registration is over.
func (p *Pursuit) Context() context.Context { return p.ctx }

// Settle sets state and error, unless the goal has changed since op began. It reports whether the state has changed.
func (p *Pursuit) Settle(op context.Context, s registry.State, err error) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if op.Err() != nil {
		return false
	}
	before := p.state
	p.become(s)
	p.err = err
	return before != s
}

// Renew says that another value has to be put before the registration is registered again.
func (p *Pursuit) Renew() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == registry.Registered {
		p.become(registry.Pending)
	}
}

// Put calls put, which writes a record. Yield waits for it.
func (p *Pursuit) Put(put func() error) error {
	p.putting.Lock()
	defer p.putting.Unlock()
	return put()
}

// Withdraw implements registry.Handle.
func (p *Pursuit) Withdraw() { p.want(down) }

// Restore implements registry.Handle.
func (p *Pursuit) Restore() { p.want(up) }

// Yield implements registry.Handle.
func (p *Pursuit) Yield() {
	p.putting.Lock() // an interrupted put could reach the registry after that of the other process
	defer p.putting.Unlock()
	p.want(yielded)
}

// Close implements registry.Handle.
func (p *Pursuit) Close(ctx context.Context) error {
	p.closing.Do(func() {
		p.want(closed)
		select {
		case <-p.done:
		case <-ctx.Done():
			p.kill()
			<-p.done
		}
		p.kill()
		p.mu.Lock()
		defer p.mu.Unlock()
		switch p.state {
		case registry.Closed:
			p.closeErr = p.err
		case registry.Failed: // it was never registered
		default:
			p.closeErr = p.errClosed
			if err := ctx.Err(); err != nil {
				p.closeErr = err
			}
			p.become(registry.Closed)
			p.err = p.closeErr
		}
	})
	return p.closeErr
}

// State implements registry.Handle.
func (p *Pursuit) State() registry.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Err implements registry.Handle.
func (p *Pursuit) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// want sets the goal. closed is final.
func (p *Pursuit) want(g goal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.goal == g || p.goal == closed {
		return
	}
	p.goal = g
	if g != yielded && p.state != registry.Failed && p.state != registry.Closed {
		p.become(unreached[g])
	}
	p.interrupt()
	p.op, p.interrupt = context.WithCancel(p.ctx)
}

func (p *Pursuit) current() (context.Context, goal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.op, p.goal
}

// become changes the state. To stay in it is no change.
func (p *Pursuit) become(next registry.State) {
	if next != p.state && !stateEdges[p.state][next] {
		panic("registry/pursuit: a registration can't go from " + p.state.String() + " to " + next.String())
	}
	p.state = next
}
