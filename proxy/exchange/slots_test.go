package exchange

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
)

// stillLoop is a Loop on which time stands still; what is deferred or posted
// waits for the test to run it.
type stillLoop struct {
	flushes loop.Flushes
	posts   []func()
}

func (l *stillLoop) Now() time.Duration                      { return time.Second }
func (l *stillLoop) After(time.Duration, *loop.Timer)        {}
func (l *stillLoop) Stop(*loop.Timer)                        {}
func (l *stillLoop) Defer(f *loop.Flush)                     { l.flushes.Add(f) }
func (l *stillLoop) Dial(string, time.Duration, loop.Stream) {}
func (l *stillLoop) Post(f func())                           { l.posts = append(l.posts, f) }

// servicesOn makes a service on each of the loops.
func servicesOn(cfg *config.Config, c *config.Service, loops []*stillLoop) []*Service {
	of := &shard.Process{Loops: len(loops)}
	m := NewMember(c, Member{}, len(loops))
	m.LimitSlots()
	services := make([]*Service, len(loops))
	for i, l := range loops {
		w := shard.New(of, i, l, nil, 1)
		w.Configure(cfg)
		m.Prepare(w, "", nil)
		services[i] = m.Follow(w)
	}
	return services
}

// Two loops, one slot: the second finds it taken, the first gives it back before
// the second has queued, so that nobody hands it over. The second must see it
// after all, or its request would wait until its deadline.
func TestSlotFreedBeforeTheQueueingIsFound(t *testing.T) {
	cfg := config.Default()
	local := config.DefaultService("local")
	local.MaxConcurrency = 1
	cfg.Services["local"] = local
	loops := []*stillLoop{{}, {}}
	services := servicesOn(cfg, local, loops)
	slots := &services[0].shared.slots
	if !slots.Take() || slots.Take() {
		t.Fatal("there is not exactly one slot")
	}

	// What admit of the second loop does, with the first loop's release between
	// its two halves.
	services[0].release()
	slots.Queued.Add(1)
	a := &Attempt{ex: NewPool(services[1].Shard).Exchange(nil), state: attemptLaunched}
	services[1].wait(a)

	if n := services[1].queue.granted; n != 1 {
		t.Errorf("the loop that waits holds %d slots, want the free one", n)
	}
	if got := len(loops[1].flushes.Take()); got != 1 {
		t.Errorf("%d flushes are to give the slot out, want 1", got)
	}
	if n := slots.InUse.Load(); n != 1 {
		t.Errorf("%d slots in use, want 1", n)
	}
}

// Requests that wait get the slots that an automatic limit gains, at once: nobody
// else would hand those out.
func TestSlotsGainedGoToThoseWhoWait(t *testing.T) {
	s := autoService(t)
	slots := &s.shared.slots
	for slots.Take() {
	}
	before := slots.InUse.Load()
	const waiting = 3
	for range waiting {
		slots.Queued.Add(1)
		s.wait(&Attempt{ex: NewPool(s.Shard).Exchange(nil), state: attemptLaunched})
	}
	for range 50 { // a window's worth
		slots.Auto.Sums.Add(limit.Sample(time.Millisecond))
	}
	s.recordServiceTime(s.Shard.Loop.Now() - time.Millisecond)
	if limit := slots.Limit.Load(); limit < before+waiting {
		t.Fatalf("the limit is %d, and was %d", limit, before)
	}
	if s.queue.granted != waiting || slots.InUse.Load() != before+waiting {
		t.Errorf("%d slots granted, %d in use, want %d more than %d", s.queue.granted, slots.InUse.Load(), waiting, before)
	}
}

// Slots that a lowered limit has no room for are not handed on, and the others
// are.
func TestSlotsLostAreNotHandedOn(t *testing.T) {
	s := autoService(t)
	slots := &s.shared.slots
	for slots.Take() {
	}
	slots.Queued.Add(1)
	s.wait(&Attempt{ex: NewPool(s.Shard).Exchange(nil), state: attemptLaunched})
	const limit = 2
	slots.Limit.Store(limit)
	for slots.InUse.Load() > limit {
		before := slots.InUse.Load()
		s.release()
		if after := slots.InUse.Load(); s.queue.granted != 0 || after != before-1 {
			t.Fatalf("%d of %d slots in use after one was given back, %d granted", after, before, s.queue.granted)
		}
	}
	s.release()
	if s.queue.granted != 1 || slots.InUse.Load() != limit {
		t.Errorf("%d slots granted, %d in use, want 1 and %d", s.queue.granted, slots.InUse.Load(), limit)
	}
}

// autoService is a service on one loop whose limit is automatic.
func autoService(t *testing.T) *Service {
	t.Helper()
	cfg := config.Default()
	local := config.DefaultService("local")
	local.MaxConcurrency = config.MaxConcurrencyAuto
	cfg.Services["local"] = local
	return servicesOn(cfg, local, []*stillLoop{{}})[0]
}
