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

// Two loops, one slot: the second finds it taken, the first gives it back before
// the second has queued, so that nobody hands it over. The second must see it
// after all, or its request would wait until its deadline.
func TestSlotFreedBeforeTheQueueingIsFound(t *testing.T) {
	cfg := config.Default()
	local := config.DefaultService("local")
	local.MaxConcurrency = 1
	cfg.Services["local"] = local
	p := NewProcess(cfg, 2)
	loops := []*stillLoop{{}, {}}
	services := make([]*service, len(loops))
	for i, l := range loops {
		services[i] = NewWorker(p, l, nil, 1).services["local"]
	}
	slots := &services[0].shared.slots
	if !slots.take() || slots.take() {
		t.Fatal("there is not exactly one slot")
	}

	// What admit of the second loop does, with the first loop's release between
	// its two halves.
	services[0].release()
	slots.queued.Add(1)
	a := &attempt{ex: services[1].w.exchange(nil)}
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
