package pursuit

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/registry"
)

var (
	errSick  = errors.New("the registry refuses")
	errEnded = errors.New("the registry is closed")
)

// registrant is a Registrant that notes what it is asked for.
type registrant struct {
	*Pursuit
	asked   []string
	refuses atomic.Bool   // Remove fails
	lingers time.Duration // how long Pause goes on after its end
}

func (r *registrant) Keep(op context.Context) {
	r.asked = append(r.asked, "keep")
	r.Settle(op, registry.Registered, nil)
	<-op.Done()
}

func (r *registrant) Leave(op context.Context) {
	r.asked = append(r.asked, "leave")
	<-op.Done()
}

func (r *registrant) Remove(context.Context) error {
	r.asked = append(r.asked, "remove")
	if r.refuses.Load() {
		return errSick
	}
	return nil
}

func (r *registrant) Pause(op context.Context) {
	r.asked = append(r.asked, "pause")
	select {
	case <-time.After(time.Second):
	case <-op.Done():
		time.Sleep(r.lingers)
	}
}

// since waits until the registrant is idle, and returns what it was asked for since the last call.
func (r *registrant) since() string {
	synctest.Wait()
	asked := strings.Join(r.asked, " ")
	r.asked = nil
	return asked
}

// run starts a Pursuit whose registry lives as long as ctx.
func run(ctx context.Context) *registrant {
	r := &registrant{Pursuit: New(ctx, errEnded)}
	go r.Run(r)
	return r
}

// TestGoals: what the registrant has to do for each goal, once, and the state after that. A closed registration has no other goal.
func TestGoals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t.Context())
		closed := func() {
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for i, step := range []struct {
			do    func()
			asked string
			state registry.State
		}{
			{func() {}, "keep", registry.Registered},
			{r.Restore, "", registry.Registered},
			{r.Withdraw, "remove", registry.Withdrawn},
			{r.Withdraw, "", registry.Withdrawn},
			{r.Restore, "keep", registry.Registered},
			{r.Yield, "leave", registry.Registered},
			{r.Yield, "", registry.Registered},
			{r.Restore, "keep", registry.Registered},
			{r.Yield, "leave", registry.Registered},
			{r.Withdraw, "remove", registry.Withdrawn},
			{r.Yield, "leave", registry.Withdrawn},
			{closed, "remove", registry.Closed},
			{r.Withdraw, "", registry.Closed},
			{r.Restore, "", registry.Closed},
			{r.Yield, "", registry.Closed},
			{closed, "", registry.Closed},
		} {
			step.do()
			if asked := r.since(); asked != step.asked || r.State() != step.state || r.Err() != nil {
				t.Errorf("step %d: asked to %q, %v, %v; want %q, %v", i, asked, r.State(), r.Err(), step.asked, step.state)
			}
		}
	})
}

// TestRemoveFails: a removal is tried again after a pause until it succeeds, and the error says why it has not.
func TestRemoveFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t.Context())
		r.since()
		expect := func(asked string, state registry.State, err error) {
			t.Helper()
			if got := r.since(); got != asked || r.State() != state || r.Err() != err {
				t.Errorf("asked to %q, %v, %v; want %q, %v, %v", got, r.State(), r.Err(), asked, state, err)
			}
		}
		r.refuses.Store(true)
		r.Withdraw()
		expect("remove pause", registry.Withdrawn, errSick)
		time.Sleep(time.Second)
		expect("remove pause", registry.Withdrawn, errSick)
		r.refuses.Store(false)
		time.Sleep(time.Second)
		expect("remove", registry.Withdrawn, nil)
		r.refuses.Store(true)
		r.Restore()
		expect("keep", registry.Registered, nil)
		r.Withdraw()
		expect("remove pause", registry.Withdrawn, errSick)
		r.Restore()
		expect("keep", registry.Registered, nil)
		go func() {
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		expect("remove pause", registry.Pending, errSick)
		r.refuses.Store(false)
		time.Sleep(time.Second)
		expect("remove", registry.Closed, nil)
	})
}

// TestClose: how a registration that runs is closed. The result stays the same, and the registrant does nothing more.
func TestClose(t *testing.T) {
	for _, c := range []struct {
		name           string
		refuses        bool // Remove fails
		isRegistryGone bool
		patience       time.Duration // of the first Close
		want           error
	}{
		{"in time", false, false, time.Minute, nil},
		{"not in time", true, false, time.Minute, context.DeadlineExceeded},
		{"after the registry", false, true, time.Minute, errEnded},
		{"after the registry, too late", false, true, 0, context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				life, end := context.WithCancel(t.Context())
				defer end()
				r := run(life)
				r.since()
				r.refuses.Store(c.refuses)
				r.lingers = time.Second
				if c.isRegistryGone {
					end()
				}
				ctx, cancel := context.WithTimeout(t.Context(), c.patience)
				defer cancel()
				for _, ctx := range []context.Context{ctx, t.Context()} {
					if err := r.Close(ctx); err != c.want || r.Err() != c.want || r.State() != registry.Closed {
						t.Errorf("%v; in state %v: %v; want %v", err, r.State(), r.Err(), c.want)
					}
				}
				select {
				case <-r.done:
				default:
					t.Error("the registrant is still asked")
				}
				if r.Context().Err() == nil {
					t.Error("the registration is not over")
				}
			})
		})
	}
}

// TestNeverRuns: a registration that is invalid, or comes too late, is over from the start, and stays as it is.
func TestNeverRuns(t *testing.T) {
	for _, c := range []struct {
		end               func(*Pursuit)
		state             registry.State
		err, errFromClose error
	}{
		{func(p *Pursuit) { p.Fail(errSick) }, registry.Failed, errSick, nil},
		{(*Pursuit).End, registry.Closed, errEnded, errEnded},
	} {
		p := New(t.Context(), errEnded)
		c.end(p)
		if p.Context().Err() == nil {
			t.Errorf("%v: not over", c.state)
		}
		p.Withdraw()
		p.Restore()
		p.Yield()
		if err := p.Close(t.Context()); err != c.errFromClose || p.State() != c.state || p.Err() != c.err {
			t.Errorf("%v: closed: %v; in state %v: %v", c.state, err, p.State(), p.Err())
		}
	}
}

// TestSettle: what a registrant reports counts as long as the goal is the one that it was asked for.
func TestSettle(t *testing.T) {
	p := New(t.Context(), errEnded)
	op, _ := p.current()
	for i, c := range []struct {
		do      func()
		report  registry.State
		err     error
		changed bool
		state   registry.State // after that
		known   error
	}{
		{func() {}, registry.Pending, errSick, false, registry.Pending, errSick},
		{func() {}, registry.Registered, nil, true, registry.Registered, nil},
		{func() {}, registry.Registered, nil, false, registry.Registered, nil},
		{p.Withdraw, registry.Registered, errSick, false, registry.Withdrawn, nil},
	} {
		c.do()
		if changed := p.Settle(op, c.report, c.err); changed != c.changed || p.State() != c.state || p.Err() != c.known {
			t.Errorf("step %d: changed %t, %v, %v", i, changed, p.State(), p.Err())
		}
	}
}

// TestRenew: only what is registered has to be put again.
func TestRenew(t *testing.T) {
	for state, want := range map[registry.State]registry.State{
		registry.Pending: registry.Pending, registry.Registered: registry.Pending, registry.Withdrawn: registry.Withdrawn,
		registry.Closed: registry.Closed, registry.Failed: registry.Failed,
	} {
		p := &Pursuit{state: state}
		if p.Renew(); p.state != want {
			t.Errorf("%v becomes %v, want %v", state, p.state, want)
		}
	}
}

// TestYieldWaits: after Yield this process puts nothing more, so Yield waits for a put that runs, and does not interrupt it.
func TestYieldWaits(t *testing.T) {
	p := New(t.Context(), errEnded)
	defer p.End()
	op, _ := p.current()
	yielded := make(chan struct{})
	err := p.Put(func() error {
		begun := make(chan struct{})
		go func() {
			close(begun)
			p.Yield()
			close(yielded)
		}()
		<-begun
		for range 1000 {
			runtime.Gosched() // a Yield that does not wait would be over
		}
		return op.Err()
	})
	if err != nil {
		t.Errorf("the put ends with %v", err)
	}
	<-yielded
	if op.Err() == nil {
		t.Error("the goal is the same after Yield")
	}
}
