package service

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/shard"
)

// job is what a loop does in steps, between which other loops may take theirs. It reports whether it is done.
type job func(a *Admission) (done bool)

// slotRequest is a request that asks a loop for a slot. Once it has one, the loop gives the slot back.
type slotRequest struct {
	Place
	Ask
	at   int // of its job
	step slotStep
	gone bool // withdraw has begun
	on   *slotLoop
}

// Granted implements Waiter.
func (r *slotRequest) Granted(time.Duration) { r.on.todo = append(r.on.todo, r.giveBack) }

// ask is a job with the steps of Admit.
func (r *slotRequest) ask(a *Admission) bool {
	r.at = min(r.at+1, 4) // the last step may come often: while another loop has counted a request, and not queued it
	switch r.at {
	case 1:
		if r.slot = a.takeFree(&r.Ask); r.slot {
			r.Granted(0)
			return true
		}
	case 2:
		return !a.reservePlace(&r.Ask)
	case 3:
		a.wait(&r.Place, &r.Ask)
		r.step = slotFreed
	default:
		r.step = a.step(r.step)
		return r.step == slotSettled
	}
	return false
}

// giveBack is a job with the steps of GiveBack.
func (r *slotRequest) giveBack(a *Admission) bool {
	if r.slot {
		r.slot, r.step = false, slotReleased
	}
	r.step = a.step(r.step)
	return r.step == slotSettled
}

// withdraw is a job with the steps of Withdraw.
func (r *slotRequest) withdraw(a *Admission) bool {
	switch {
	case r.gone:
		a.queue.publishOldest(r.class())
		return true
	case r.node.Queue() == nil:
		return true
	}
	r.gone = true
	a.leaveQueue(&r.Place, r.class())
	return false
}

func (r *slotRequest) class() class {
	if r.Batch {
		return batch
	}
	return online
}

// slotLoop is a loop with its jobs, one after another.
type slotLoop struct {
	*stillLoop
	admission *Admission
	todo      []job
	busy      bool        // the first of todo has begun
	back      slotRequest // has a slot that was passed to the loop for a request that has gone
}

// choices are what the loop may do next: nothing but its job, or begin another, take a posted slot, or give one.
func (l *slotLoop) choices() (all []func()) {
	if len(l.todo) > 0 {
		all = append(all, func() {
			l.busy = true
			if do := l.todo[0]; do(l.admission) {
				l.todo, l.busy = l.todo[1:], false
			}
		})
	}
	if l.busy {
		return all
	}
	if len(l.posts) > 0 {
		all = append(all, func() {
			do := l.posts[0]
			l.posts = l.posts[1:]
			do()
		})
	}
	for c, n := range l.admission.queue.granted {
		if n > 0 {
			all = append(all, func() {
				if !l.admission.give(class(c)) {
					l.back = slotRequest{}
					l.todo, l.busy = slices.Insert(l.todo, 0, l.back.giveBack), true
				}
			})
		}
	}
	return all
}

// slotWorld is loops that share the slots of a service.
type slotWorld struct {
	loops    []*slotLoop
	requests []*slotRequest
	kept     int32 // slots that are not given back
}

// newSlotWorld has so many slots. Each word is what one loop does: "-" gives back a slot that it has, "=" keeps one, "a"
// asks for one, "b" asks for a batch request, "t" for a tied hedge, "x" withdraws the last one that has asked.
func newSlotWorld(limit int, words []string) *slotWorld {
	w, shared := &slotWorld{}, &SharedService{loops: make([]atomic.Pointer[Service], len(words))}
	shared.slots.Limit.Store(int32(limit))
	shared.slots.MaxQueue.Store(8)
	for i := range words {
		l := &slotLoop{stillLoop: &stillLoop{}}
		s := &Service{Shard: &shard.Shard{Loop: l.stillLoop}, Shared: shared}
		s.Admission.init(s)
		l.admission = &s.Admission
		l.admission.queue.init(func() {}) // choices has the steps of dispatchQueued
		shared.loops[i].Store(s)
		w.loops = append(w.loops, l)
		var r *slotRequest
		for _, do := range words[i] {
			if do != 'x' {
				r = &slotRequest{on: l, Ask: Ask{Batch: do == 'b', Hedge: do == 't', Tied: do == 't'}}
				r.Init(r)
				w.requests = append(w.requests, r)
			}
			switch do {
			case '-':
				r.slot = l.admission.takeFree(&r.Ask)
				l.todo = append(l.todo, r.giveBack)
			case '=':
				r.slot = l.admission.takeFree(&r.Ask)
				w.kept++
			case 'x':
				l.todo = append(l.todo, r.withdraw)
			default:
				l.todo = append(l.todo, r.ask)
			}
		}
	}
	return w
}

func (w *slotWorld) choices() (all []func()) {
	for _, l := range w.loops {
		all = append(all, l.choices()...)
	}
	return all
}

// key is the same for two worlds of equal state.
func (w *slotWorld) key() string {
	sl := w.loops[0].admission.slots
	waitOnline, waitBatch := sl.Waiting.Load()
	key := fmt.Sprint(sl.InUse.Load(), waitOnline, waitBatch)
	for _, l := range w.loops {
		q := &l.admission.queue
		key += fmt.Sprint(" | ", len(l.todo), l.busy, l.back.step, len(l.posts), q.granted, q.oldest[online].Load(), q.oldest[batch].Load())
	}
	for _, r := range w.requests {
		key += fmt.Sprint(" | ", r.slot, r.node.Queue() != nil, r.at, r.step, r.gone)
	}
	return key
}

// TestSlotInterleavings takes the steps of several loops in every order. In the end no request waits, and no slot
// is in use but those that are kept.
func TestSlotInterleavings(t *testing.T) {
	for _, c := range []struct {
		limit int
		loops []string
	}{
		{1, []string{"-", "a"}},
		{1, []string{"-", "a", "a"}},
		{1, []string{"a", "a", "-"}},
		{1, []string{"-", "ax", "a"}},
		{1, []string{"-a", "axa"}},
		{1, []string{"-", "b", "a"}},
		{2, []string{"-", "-a", "b"}},
		{2, []string{"-b", "ax", "-"}},
		{2, []string{"-", "bx", "-a"}},
		{2, []string{"=", "-", "bx", "a"}},
		{1, []string{"-", "t", "a"}},
		{1, []string{"-", "ta", "t"}},
		{1, []string{"-", "tx", "a"}},
		{2, []string{"-b", "tx", "-"}},
		{2, []string{"-", "tb", "t"}},
	} {
		t.Run(fmt.Sprint(c.limit, c.loops), func(t *testing.T) {
			known := map[string]bool{}
			for paths := [][]int{nil}; len(paths) > 0; {
				path := paths[len(paths)-1]
				paths = paths[:len(paths)-1]
				w := newSlotWorld(c.limit, c.loops)
				for _, i := range path {
					w.choices()[i]()
				}
				key, next := w.key(), len(w.choices())
				if known[key] {
					continue
				}
				known[key] = true
				sl := w.loops[0].admission.slots
				if n := sl.InUse.Load(); n > int32(c.limit) {
					t.Fatalf("%v: %d slots in use", path, n)
				}
				if next == 0 && (sl.InUse.Load() != w.kept || sl.Waiting.All() != 0) {
					t.Fatalf("%v: in the end %d slots are in use, and %d requests wait", path, sl.InUse.Load(), sl.Waiting.All())
				}
				for i := range next {
					paths = append(paths, append(slices.Clone(path), i))
				}
			}
			t.Logf("%d states", len(known))
		})
	}
}
