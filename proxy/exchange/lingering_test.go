package exchange

import (
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/registry"
)

// silent is the Upstream of an endpoint that never responds, and the Carrier of its attempts. A cancelled attempt lingers there.
type silent struct{}

func (s silent) Send(a *race.Attempt)              { a.Carry(s, 1) }
func (silent) Cancel(*race.Attempt) bool           { return true }
func (silent) Abort(a *race.Attempt)               { a.Detach() }
func (silent) Buffered(*race.Attempt) (n int)      { return 0 }
func (silent) Retire()                             {}
func (silent) Connections() int                    { return 0 }
func (silent) Largest() (_, _ int, _ shard.Holder) { return 0, 0, nil }

// silentService returns a service whose only endpoint is silent, once the loop has turned.
func silentService(w *shard.Shard) *service.Service {
	c := config.DefaultService("s")
	c.MaxConcurrency = config.MaxConcurrencyAuto
	c.Protocol = "silent"
	m := service.NewMember(c, service.Member{}, 1)
	by := service.Protocol{Connector: race.ConnectBy(func(*service.Service, *service.Endpoint) race.Upstream { return silent{} })}
	m.Prepare(w, "", service.Protocols{"silent": by})
	s := m.Follow(w)
	m.Update(registry.NewSnapshot("s", registry.SourceLive, time.Time{}, []registry.Endpoint{{Addr: "192.0.2.1:1", Weight: 1}}), "")
	return s
}

// left is the Caller of a request that is cancelled.
type left struct {
	peer
	finished []race.Ended
}

func (l *left) Fail(*Exchange, *fault.Failure)       {}
func (l *left) Finished(_ *Exchange, how race.Ended) { l.finished = append(l.finished, how) }

// receiver is a Receiver that notes what became of its copies.
type receiver struct {
	Receiver
	failed []*fault.Failure
}

func (r *receiver) Fail(_ *Exchange, f *fault.Failure) { r.failed = append(r.failed, f) }

// TestAbandonNow: what a cancelled request has left at an application ends at once if memory is short, with its place among the
// requests of the service.
func TestAbandonNow(t *testing.T) {
	for name, abandon := range map[string]func(ex *Exchange){"closed": (*Exchange).AbandonNow, "shed": (*Exchange).Shed} {
		onLoop(func(w *shard.Shard) {
			s := silentService(w)
			w.Loop.Post(func() {
				from := &left{peer: peer{at: &Listener{}}}
				ex := NewPool(w).Exchange(from)
				ex.Request.Method = []byte("GET")
				ex.Begin(NewCopyRoute(s), from.at)
				if !ex.Cancel() || len(from.finished) > 0 || s.Shared.InFlight() != 1 {
					t.Errorf("%s: finished %v, %d in flight once it is cancelled", name, from.finished, s.Shared.InFlight())
				}
				abandon(ex)
				if len(from.finished) != 1 || from.finished[0] != race.Withdrawn || s.Shared.InFlight() != 0 {
					t.Errorf("%s: finished %v, %d in flight", name, from.finished, s.Shared.InFlight())
				}
			})
		})
	}
}

// TestCopiesInFlight: each copy has the concurrency of its own client, and its own filter learns what became of it, in whichever order
// they end.
func TestCopiesInFlight(t *testing.T) {
	onLoop(func(w *shard.Shard) {
		s := silentService(w)
		w.Loop.Post(func() {
			c := &NewPool(w).Copies
			of := c.pool.Exchange(nil)
			of.Request.Method = []byte("GET")
			var all []*Exchange
			var to [4]receiver
			for i := range to {
				ex := c.New(of)
				c.Send(ex, NewCopyRoute(s), &to[i], i+1)
				all = append(all, ex)
			}
			check := func(open ...int) {
				t.Helper()
				for _, i := range open {
					if n := all[i].Concurrency(9); n != i+1 {
						t.Errorf("copy %d has the concurrency %d", i, n)
					}
				}
			}
			check(0, 1, 2, 3)
			c.Cancel(all[1])
			check(0, 2, 3)
			all[3].Shed()
			for range 2 {
				if !c.Shed() {
					t.Error("no copy is shed")
				}
			}
			for _, i := range []int{0, 2, 3} {
				if len(to[i].failed) != 1 || to[i].failed[0] != fault.Shed {
					t.Errorf("copy %d has failed with %v", i, to[i].failed)
				}
			}
			if len(to[1].failed) > 0 || c.Shed() {
				t.Errorf("a copy that was cancelled has failed with %v, one is left: %t", to[1].failed, len(c.open) > 0)
			}
		})
	})
}

// TestShedNotCounted: an automatic limit learns nothing from requests that are shed for want of memory, whether or not a caller waits for
// them.
func TestShedNotCounted(t *testing.T) {
	for name, cancel := range map[string]bool{"awaited": false, "cancelled": true} {
		world := sim.New(1)
		var p *Pool
		var s *service.Service
		from := &left{peer: peer{at: &Listener{}}}
		onLoopOf(world, func(w *shard.Shard) { p, s = NewPool(w), silentService(w) })
		first := s.Shared.SlotLimit()
		for range 10 {
			var all []*Exchange
			s.Shard.Loop.Post(func() {
				for range first + 1 { // all slots are taken
					ex := p.Exchange(from)
					ex.Begin(NewCopyRoute(s), from.at)
					if ex.Open() && (!cancel || ex.Cancel()) {
						all = append(all, ex)
					}
				}
			})
			world.Run(50 * time.Millisecond)
			s.Shard.Loop.Post(func() {
				for _, ex := range all {
					ex.Shed()
				}
			})
			world.Run(time.Millisecond)
		}
		if n := s.Shared.SlotLimit(); n != first {
			t.Errorf("%s: the limit is %d, and was %d", name, n, first)
		}
	}
}

// answered is a Receiver that notes the statuses of its responses, and its failures.
type answered struct {
	statuses []int
	failures []*fault.Failure
}

func (a *answered) Fail(_ *Exchange, f *fault.Failure) { a.failures = append(a.failures, f) }
func (a *answered) Respond(_ *Exchange, res *race.Response) {
	a.statuses = append(a.statuses, res.Status)
	res.Release()
}

// copying is a request that is copied to service s.
type copying struct {
	*scriptedExchange
	to answered
}

// copyOf lets do copy a request, and checks that nothing is left of it, nor of its copies.
func copyOf(t *testing.T, do func(c *copying)) {
	t.Helper()
	c := &copying{scriptedExchange: newScriptedExchange(t, func(*config.Service) {})}
	c.do(func() {
		c.request()
		do(c)
		c.pool.Recycle(c.ex)
		if c.pool.Copies.Shed() {
			t.Error("a copy is left")
		}
	})
	c.checkEnd()
}

// send sends a copy of the request.
func (c *copying) send() *Exchange {
	ex := c.pool.Copies.New(c.ex)
	c.pool.Copies.Send(ex, NewCopyRoute(c.svc), &c.to, 0)
	return ex
}

// TestCopyHasText: a copy has a text of its own, which outlives the request.
func TestCopyHasText(t *testing.T) {
	copyOf(t, func(c *copying) {
		if ex := c.send(); ex.HeldByRequest() == 0 {
			t.Error("a copy holds no memory")
		}
		clear(c.ex.HeadBuffer.B)
		if req := c.attempt().Outgoing().Request(); string(req.Method) != "GET" || string(req.Path) != "/path?query" || string(req.Authority) != "host" {
			t.Errorf("sent %s %s to %s", req.Method, req.Path, req.Authority)
		}
		c.attempt().Respond(c.response(203))
	})
}

// TestCopyAnswered: the receiver of a copy gets the response. The copy counts for its service, and not as a request to this sidecar.
func TestCopyAnswered(t *testing.T) {
	copyOf(t, func(c *copying) {
		c.send()
		c.attempt().Respond(c.response(203))
		if !slices.Equal(c.to.statuses, []int{203}) || len(c.to.failures) > 0 {
			t.Errorf("the receiver has responses %d and failures %v", c.to.statuses, c.to.failures)
		}
		if c.shard.Stats.Requests != 0 || c.svc.Stats.Requests != 1 {
			t.Errorf("%d requests, %d of the service", c.shard.Stats.Requests, c.svc.Stats.Requests)
		}
	})
}

// TestCopyCancelled: a copy that is cancelled leaves its service at once, and its receiver hears nothing.
func TestCopyCancelled(t *testing.T) {
	copyOf(t, func(c *copying) {
		c.pool.Copies.Cancel(c.send())
		if n := c.svc.Shared.InFlight(); n != 0 || len(c.to.statuses)+len(c.to.failures) > 0 {
			t.Errorf("%d requests are in flight, the receiver has responses %d and failures %v", n, c.to.statuses, c.to.failures)
		}
	})
}

// TestCopyRefused: when memory is short, a copy is refused.
func TestCopyRefused(t *testing.T) {
	copyOf(t, func(c *copying) {
		others := 2 * c.shard.Config.Limits.Buffered
		c.shard.Process.Budget.Charge(others)
		c.send()
		c.shard.Process.Budget.Charge(-others)
		if len(c.attempts) > 0 || !slices.Equal(c.to.failures, []*fault.Failure{fault.Overloaded}) {
			t.Errorf("%d attempts, failures %v", len(c.attempts), c.to.failures)
		}
	})
}
