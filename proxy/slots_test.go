package proxy

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
)

// stillLoop is a Loop on which time stands still; what is deferred or posted
// waits for the test to run it.
type stillLoop struct {
	flushes Flushes
	posts   []func()
}

func (l *stillLoop) Now() time.Duration                 { return time.Second }
func (l *stillLoop) After(time.Duration, *Timer)        {}
func (l *stillLoop) Stop(*Timer)                        {}
func (l *stillLoop) Defer(f *Flush)                     { l.flushes.Add(f) }
func (l *stillLoop) Dial(string, time.Duration, Stream) {}
func (l *stillLoop) Post(f func())                      { l.posts = append(l.posts, f) }

// servicesOn makes a service on each of the loops.
func servicesOn(cfg *config.Config, c *config.Service, loops []*stillLoop) []*service {
	of := &shared{loops: len(loops)}
	m := newMember(c, member{}, len(loops))
	m.limitSlots()
	services := make([]*service, len(loops))
	for i, l := range loops {
		w := newShard(of, i, l, nil, 1)
		w.configure(cfg)
		m.prepare(w, "", nil)
		services[i] = m.follow(w)
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
	if !slots.take() || slots.take() {
		t.Fatal("there is not exactly one slot")
	}

	// What admit of the second loop does, with the first loop's release between
	// its two halves.
	services[0].release()
	slots.queued.Add(1)
	a := &attempt{ex: newPool(services[1].w).exchange(nil)}
	services[1].wait(a)

	if n := services[1].queue.granted; n != 1 {
		t.Errorf("the loop that waits holds %d slots, want the free one", n)
	}
	if got := len(loops[1].flushes.Take()); got != 1 {
		t.Errorf("%d flushes are to give the slot out, want 1", got)
	}
	if n := slots.inUse.Load(); n != 1 {
		t.Errorf("%d slots in use, want 1", n)
	}
}

// Requests that wait get the slots that an automatic limit gains, at once: nobody
// else would hand those out.
func TestSlotsGainedGoToThoseWhoWait(t *testing.T) {
	s := autoService(t)
	slots := &s.shared.slots
	for slots.take() {
	}
	before := slots.inUse.Load()
	const waiting = 3
	for range waiting {
		slots.queued.Add(1)
		s.wait(&attempt{ex: newPool(s.w).exchange(nil)})
	}
	for range 50 { // a window's worth
		slots.auto.sums.Add(sample(time.Millisecond))
	}
	s.measured(s.w.loop.Now() - time.Millisecond)
	if limit := slots.limit.Load(); limit < before+waiting {
		t.Fatalf("the limit is %d, and was %d", limit, before)
	}
	if s.queue.granted != waiting || slots.inUse.Load() != before+waiting {
		t.Errorf("%d slots granted, %d in use, want %d more than %d", s.queue.granted, slots.inUse.Load(), waiting, before)
	}
}

// Slots that a lowered limit has no room for are not handed on, and the others
// are.
func TestSlotsLostAreNotHandedOn(t *testing.T) {
	s := autoService(t)
	slots := &s.shared.slots
	for slots.take() {
	}
	slots.queued.Add(1)
	s.wait(&attempt{ex: newPool(s.w).exchange(nil)})
	const limit = 2
	slots.limit.Store(limit)
	for slots.inUse.Load() > limit {
		before := slots.inUse.Load()
		s.release()
		if after := slots.inUse.Load(); s.queue.granted != 0 || after != before-1 {
			t.Fatalf("%d of %d slots in use after one was given back, %d granted", after, before, s.queue.granted)
		}
	}
	s.release()
	if s.queue.granted != 1 || slots.inUse.Load() != limit {
		t.Errorf("%d slots granted, %d in use, want 1 and %d", s.queue.granted, slots.inUse.Load(), limit)
	}
}

// autoService is a service on one loop whose limit is automatic.
func autoService(t *testing.T) *service {
	t.Helper()
	cfg := config.Default()
	local := config.DefaultService("local")
	local.MaxConcurrency = config.MaxConcurrencyAuto
	cfg.Services["local"] = local
	return servicesOn(cfg, local, []*stillLoop{{}})[0]
}

// A number of answers and the sum of their latencies share a word.
func TestSampleSums(t *testing.T) {
	sum := sample(1500*time.Microsecond) + sample(2*longestSample)
	want := uint64((1500*time.Microsecond + longestSample) / time.Microsecond)
	if answers, latency := sum>>sumBits, sum&(1<<sumBits-1); answers != 2 || latency != want {
		t.Errorf("%d answers of %d us, want 2 of %d", answers, latency, want)
	}
}
