package service

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
)

// stillLoop is a Loop whose time the test advances. The test runs deferred and posted
// functions, and fires timers.
type stillLoop struct {
	flushes loop.Flushes
	posts   []func()
	timers  map[*loop.Timer]time.Duration // when they are due
	now     time.Duration                 // since second 1
}

func (l *stillLoop) Now() time.Duration                        { return time.Second + l.now }
func (l *stillLoop) Stop(t *loop.Timer)                        { delete(l.timers, t) }
func (l *stillLoop) Defer(f *loop.Flush)                       { l.flushes.Add(f) }
func (l *stillLoop) Dial(string, time.Duration, loop.Receiver) {}
func (l *stillLoop) Post(f func())                             { l.posts = append(l.posts, f) }

func (l *stillLoop) After(d time.Duration, t *loop.Timer) {
	if l.timers == nil {
		l.timers = make(map[*loop.Timer]time.Duration)
	}
	l.timers[t] = l.Now() + d
}

// advance lets time pass, and fires the timers that are due then.
func (l *stillLoop) advance(d time.Duration) {
	l.now += d
	for t, due := range l.timers {
		if due <= l.Now() {
			delete(l.timers, t)
			t.Fire()
		}
	}
}

// runPosts runs the functions that were posted.
func (l *stillLoop) runPosts() {
	posts := l.posts
	l.posts = nil
	for _, do := range posts {
		do()
	}
}

// servicesOn returns a service on each of the loops.
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

// TestGainedSlotsDispatched: slots that an automatic limit gains go to waiting requests at
// once, since no released slot would wake them.
func TestGainedSlotsDispatched(t *testing.T) {
	a := autoService(t)
	slots := a.slots
	for slots.Take(false) {
	}
	before := slots.InUse.Load()
	const waiting = 3
	for range waiting {
		slots.Waiting.Add(false)
		a.wait(new(Place), new(Ask))
	}
	for range 50 { // a window
		slots.Auto.Sums.Add(limit.Sample(time.Millisecond))
	}
	a.RecordServiceTime(a.service.Shard.Loop.Now() - time.Millisecond)
	if limit := slots.Limit.Load(); limit < before+waiting {
		t.Fatalf("the limit is %d, and was %d", limit, before)
	}
	if a.queue.granted[online] != waiting || slots.InUse.Load() != before+waiting {
		t.Errorf("%d slots granted, %d in use, want %d more than %d", a.queue.granted[online], slots.InUse.Load(), waiting, before)
	}
}

// TestRaisedLimit: slots that a reload adds go to waiting requests at once.
func TestRaisedLimit(t *testing.T) {
	settings := config.DefaultService("s")
	settings.MaxConcurrency = 1
	s := servicesOn(config.Default(), settings, []*stillLoop{{}})[0]
	a := &s.Admission
	var first, second Place
	if a.Admit(&first, new(Ask)) != SlotGranted || a.Admit(&second, new(Ask)) != SlotQueued {
		t.Fatal("not one of two has a slot")
	}
	more := *settings
	more.MaxConcurrency = 2
	m := Member{SharedService: s.Shared, cfg: &more, bounds: s.Bounds}
	m.LimitSlots()
	m.Follow(s.Shard)
	if a.queue.granted[online] != 1 || a.slots.InUse.Load() != 2 {
		t.Errorf("%d slots granted, %d in use", a.queue.granted[online], a.slots.InUse.Load())
	}
}

// TestBatchAdmitted: a batch request gets a free slot at once, unless another one waits.
func TestBatchAdmitted(t *testing.T) {
	settings := config.DefaultService("s")
	settings.MaxConcurrency = 4
	a := &servicesOn(config.Default(), settings, []*stillLoop{{}})[0].Admission
	var places [3]Place
	if got := a.Admit(&places[0], &Ask{Batch: true}); got != SlotGranted {
		t.Errorf("the first: %d", got)
	}
	a.slots.Waiting.Add(true)
	a.wait(&places[1], &Ask{Batch: true})
	if got := a.Admit(&places[2], &Ask{Batch: true}); got != SlotQueued {
		t.Errorf("behind another: %d", got)
	}
}

// TestServiceTime: an automatic limit learns how long the application took, and how long it had for requests that reached their
// deadline.
func TestServiceTime(t *testing.T) {
	for late, record := range []func(a *Admission, sent time.Duration){(*Admission).RecordServiceTime, (*Admission).RecordDeadline} {
		a := autoService(t)
		a.slots.Auto.CloseWindow(a.service.Shard.Loop.Now(), false)
		record(a, a.service.Shard.Loop.Now()-7*time.Millisecond)
		want := [2]uint64{}
		want[late] = limit.Sample(7 * time.Millisecond)
		if got := [2]uint64{a.slots.Auto.Sums.Load(), a.slots.Auto.Late.Load()}; got != want {
			t.Errorf("it has learned %x, want %x", got, want)
		}
	}
}

// TestLostSlotsNotPassed: released slots above a lowered limit are not passed on, and the
// others are.
func TestLostSlotsNotPassed(t *testing.T) {
	a := autoService(t)
	slots := a.slots
	for slots.Take(false) {
	}
	slots.Waiting.Add(false)
	a.wait(new(Place), new(Ask))
	const limit = 2
	slots.Limit.Store(limit)
	for slots.InUse.Load() > limit {
		before := slots.InUse.Load()
		a.settle(slotReleased)
		if after := slots.InUse.Load(); a.queue.granted[online] != 0 || after != before-1 {
			t.Fatalf("%d of %d slots in use after one was released, %d granted", after, before, a.queue.granted[online])
		}
	}
	a.settle(slotReleased)
	if a.queue.granted[online] != 1 || slots.InUse.Load() != limit {
		t.Errorf("%d slots granted, %d in use, want 1 and %d", a.queue.granted[online], slots.InUse.Load(), limit)
	}
}

// TestTiedHedgesLast: tied hedges get a slot when nobody of their class waits any longer, on any loop, and before batch
// requests. The oldest of them comes first.
func TestTiedHedgesLast(t *testing.T) {
	cfg, local := config.Default(), config.DefaultService("local")
	local.MaxConcurrency, local.MaxQueue = 1, 7
	cfg.Services["local"] = local
	loops := []*stillLoop{{}, {}}
	services := servicesOn(cfg, local, loops)
	var got []string
	ask := func(loop int, name string, by Ask) AdmitResult {
		p := &Place{}
		p.Init(order{p, name, &got, services[loop]})
		return services[loop].Admission.Admit(p, &by)
	}
	first := &Place{}
	if services[0].Admission.Admit(first, &Ask{}) != SlotGranted {
		t.Fatal("no slot")
	}
	for _, r := range []struct {
		loop int
		name string
		Ask
		want AdmitResult
	}{
		{0, "batch", Ask{Batch: true}, SlotQueued},
		{0, "tied 1", Ask{Hedge: true, Tied: true, Retry: true}, SlotQueued},
		{1, "tied 2", Ask{Hedge: true, Tied: true, Retry: true}, SlotQueued},
		{0, "hedge", Ask{Hedge: true, Retry: true}, SlotRefused},
		{1, "retry", Ask{Retry: true}, SlotQueued},
		{0, "half full", Ask{Hedge: true, Tied: true}, SlotRefused},
		{1, "primary 1", Ask{}, SlotQueued},
		{0, "primary 2", Ask{}, SlotQueued},
		{0, "primary 3", Ask{}, SlotQueued},
		{0, "full", Ask{Hedge: true, Tied: true}, SlotRefused},
	} {
		if got := ask(r.loop, r.name, r.Ask); got != r.want {
			t.Errorf("%s: %d, want %d", r.name, got, r.want)
		}
		for _, l := range loops {
			l.now += time.Millisecond
		}
	}
	services[0].Admission.GiveBack(first)
	for range 20 {
		for _, l := range loops {
			for _, f := range l.flushes.Take() {
				f.Do()
			}
			l.runPosts()
		}
	}
	want := []string{"primary 1", "retry", "primary 2", "primary 3", "tied 1", "tied 2", "batch"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if n := services[0].Stats.TiedQueued + services[1].Stats.TiedQueued; n != 2 {
		t.Errorf("%d tied hedges queued, want 2", n)
	}
}

// TestBatchTurn: a batch request gets a slot that nobody else waits for, if enough are free, and one slot in 16 whoever else waits.
func TestBatchTurn(t *testing.T) {
	c, l := config.DefaultService("s"), &stillLoop{}
	c.MaxConcurrency, c.MaxQueue = 2, 40
	s := servicesOn(config.Default(), c, []*stillLoop{l})[0]
	var got []string
	ask := func(name string, by Ask, want AdmitResult) *Place {
		t.Helper()
		p := &Place{}
		p.Init(order{p, name, &got, s})
		if r := s.Admission.Admit(p, &by); r != want {
			t.Errorf("%s: %d, want %d", name, r, want)
		}
		return p
	}
	first, second := ask("first", Ask{}, SlotGranted), ask("second", Ask{}, SlotGranted)
	ask("batch 1", Ask{Batch: true}, SlotQueued)
	s.Admission.GiveBack(second)
	if l.endTurn(); len(got) > 0 {
		t.Errorf("%q got the slot that stays free for others", got)
	}
	s.Admission.GiveBack(first)
	l.endTurn()
	first = ask("first", Ask{}, SlotGranted)
	ask("second", Ask{}, SlotGranted)
	ask("batch 2", Ask{Batch: true}, SlotQueued)
	for range 15 {
		ask("online", Ask{}, SlotQueued)
	}
	s.Admission.GiveBack(first)
	l.endTurn()
	want := slices.Concat([]string{"batch 1"}, slices.Repeat([]string{"online"}, 13), []string{"batch 2", "online", "online"})
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestQueuedMeanwhile: a request that queues takes a free slot itself, if other loops have left the slot to a request that is about to queue.
func TestQueuedMeanwhile(t *testing.T) {
	c, loops := config.DefaultService("s"), []*stillLoop{{}, {}}
	c.MaxConcurrency = 1
	services := servicesOn(config.Default(), c, loops)
	var got []string
	var first, second Place
	first.Init(order{&first, "first", &got, services[0]})
	second.Init(order{&second, "second", &got, services[1]})
	there := &services[1].Admission
	there.reservePlace(&Ask{})
	if r := services[0].Admission.Admit(&first, &Ask{}); r != SlotQueued {
		t.Errorf("the first: %d", r)
	}
	there.wait(&second, &Ask{})
	there.settle(slotFreed)
	if loops[0].endTurn(); !slices.Equal(got, []string{"first"}) {
		t.Errorf("%q have had the slot at the end of the turn, want the first", got)
	}
	if loops[1].runPosts(); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("%q have had the slot, want both", got)
	}
	if used, queued := services[0].Shared.SlotsInUse(); used != 0 || queued != 0 {
		t.Errorf("%d slots are in use, %d requests wait", used, queued)
	}
}

// TestLimitReached: an automatic limit rises if a request waits. It stays if none does, and none has reached it.
func TestLimitReached(t *testing.T) {
	for _, c := range []struct {
		waiting int // requests
		rises   bool
	}{{0, false}, {1, true}} {
		a := autoService(t)
		before := a.slots.Limit.Load()
		for range c.waiting {
			a.slots.Waiting.Add(false)
			a.wait(new(Place), new(Ask))
		}
		for range 50 { // a window
			a.slots.Auto.Sums.Add(limit.Sample(time.Millisecond))
		}
		a.RecordServiceTime(a.service.Shard.Loop.Now() - time.Millisecond)
		if got := a.slots.Limit.Load(); a.slots.Auto.Sums.Load() != 0 || (got > before) != c.rises {
			t.Errorf("%d requests wait: the limit is %d, and was %d", c.waiting, got, before)
		}
	}
}

// order is a Waiter that notes when it gets its slot, and gives it back.
type order struct {
	place *Place
	name  string
	got   *[]string
	of    *Service
}

func (o order) Granted(time.Duration) {
	*o.got = append(*o.got, o.name)
	o.of.Admission.GiveBack(o.place)
}

// autoService returns the slots of a service on one loop with an automatic limit.
func autoService(t *testing.T) *Admission {
	t.Helper()
	cfg := config.Default()
	local := config.DefaultService("local")
	local.MaxConcurrency = config.MaxConcurrencyAuto
	cfg.Services["local"] = local
	return &servicesOn(cfg, local, []*stillLoop{{}})[0].Admission
}

// TestSlotGivenBackTwice: what gives its slot back twice gives it back once.
func TestSlotGivenBackTwice(t *testing.T) {
	s, _ := newTestService(t)
	s.Admission.slots.Limit.Store(2)
	var first, second Place
	for _, p := range []*Place{&first, &second} {
		s.Admission.Admit(p, &Ask{})
	}
	s.Admission.GiveBack(&first)
	s.Admission.GiveBack(&first)
	if used, _ := s.Shared.SlotsInUse(); used != 1 || !second.HasSlot() {
		t.Errorf("%d slots are in use, want that of the second request", used)
	}
}

// TestSlotOfOtherLoop: a slot goes to the loop where a request has waited longest, whichever loops have the service.
func TestSlotOfOtherLoop(t *testing.T) {
	const loops = 4
	c, l := config.DefaultService("s"), [loops]*stillLoop{}
	of, m := &shard.Process{Loops: loops}, NewMember(c, Member{}, loops)
	var services [loops]*Service
	for i := 1; i < loops; i++ { // the first loop has no service
		l[i] = &stillLoop{now: time.Duration(loops-i) * time.Second}
		w := shard.New(of, i, l[i], nil, 1)
		w.Configure(config.Default())
		m.Prepare(w, "", nil)
		services[i] = m.Follow(w)
	}
	sl := services[1].Admission.slots
	sl.Limit.Store(1)
	sl.MaxQueue.Store(5)
	var got []string
	var places [loops]Place
	services[1].Admission.Admit(&places[0], &Ask{})
	for i := 1; i < loops; i++ {
		places[i].Init(order{&places[i], strconv.Itoa(i), &got, services[i]})
		services[i].Admission.Admit(&places[i], &Ask{})
	}
	services[1].Admission.GiveBack(&places[0])
	for range loops {
		for i := 1; i < loops; i++ {
			l[i].runPosts()
			l[i].endTurn()
		}
	}
	if want := []string{"3", "2", "1"}; !slices.Equal(got, want) {
		t.Errorf("slots go to loops %q, want %q", got, want)
	}
}

// endTurn calls what was deferred until the end of the turn.
func (l *stillLoop) endTurn() {
	for !l.flushes.Empty() {
		for _, f := range l.flushes.Take() {
			f.Do()
		}
	}
}
