package service

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/affinity"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
)

// TestMembers: a reload keeps the service, and what its rate limit and its breaker know, unless their settings have changed.
func TestMembers(t *testing.T) {
	for name, c := range map[string]struct {
		change              func(c *config.Service)
		same, rate, breaker bool // which are kept
	}{
		"nothing":             {func(*config.Service) {}, true, true, true},
		"endpoints":           {func(c *config.Service) { c.Endpoints = []config.Endpoint{{}} }, true, true, true},
		"timeout":             {func(c *config.Service) { c.Policy.Timeout++ }, true, true, true},
		"the policy of picks": {func(c *config.Service) { c.LB.Policy = config.LBConsistentHash }, true, true, true},
		"outlier ejection":    {func(c *config.Service) { c.Outlier.Consecutive++ }, true, true, true},
		"bounds":              {func(c *config.Service) { c.MaxPending, c.MaxQueue = 7, 8 }, true, true, true},
		"timeouts":            {func(c *config.Service) { c.ConnectTimeout, c.IdleTimeout = 7, 8 }, true, true, true},
		"one slot":            {func(c *config.Service) { c.MaxConcurrency = 1 }, true, true, true},
		"a higher limit":      {func(c *config.Service) { c.MaxConcurrency = 9 }, true, true, true},
		"the rate":            {func(c *config.Service) { c.RateLimit.Rate++ }, true, false, true},
		"no rate":             {func(c *config.Service) { c.RateLimit.Rate = 0 }, true, false, true},
		"the breaker":         {func(c *config.Service) { c.Breaker.Consecutive++ }, true, true, false},
		"no breaker":          {func(c *config.Service) { c.Breaker.Consecutive = 0 }, true, true, false},
		"the protocol":        {func(c *config.Service) { c.Protocol = config.ProtocolDubbo }, false, false, false},
		"the subset":          {func(c *config.Service) { c.LB.Subset = 5 }, false, false, false},
		"TLS":                 {func(c *config.Service) { c.TLS = config.ServiceTLS{SNI: "other"} }, false, false, false},
		"no limit of slots":   {func(c *config.Service) { c.MaxConcurrency = 0 }, false, false, false},
		"an automatic limit":  {func(c *config.Service) { c.MaxConcurrency = config.MaxConcurrencyAuto }, false, false, false},
	} {
		made := func(change func(c *config.Service)) *config.Service {
			s := config.DefaultService("s")
			s.RateLimit.Rate, s.Breaker.Consecutive, s.MaxConcurrency = 10, 5, 3
			change(s)
			return s
		}
		old := NewMember(made(func(*config.Service) {}), Member{}, 1)
		m := NewMember(made(c.change), old, 1)
		if same := m.SharedService == old.SharedService; same != c.same || same != (m.Key == old.Key) {
			t.Errorf("%s: the service is kept: %t", name, same)
		}
		if kept := m.bounds.rate == old.bounds.rate; kept != c.rate {
			t.Errorf("%s: the rate limit is kept: %t", name, kept)
		}
		if kept := m.bounds.breaker == old.bounds.breaker; kept != c.breaker {
			t.Errorf("%s: the breaker is kept: %t", name, kept)
		}
		m.LimitSlots()
		if used, queued := m.SlotsInUse(); used != 0 || queued != 0 || (m.SlotLimit() == 0) != (m.cfg.MaxConcurrency == 0) {
			t.Errorf("%s: %d slots in use, %d wait, of %d", name, used, queued, m.SlotLimit())
		}
	}
}

// TestPins: a cookie names an endpoint as long as the service has it, and does not reach the application.
func TestPins(t *testing.T) {
	s, _ := newTestService(t)
	withEndpoints(s, &noConnections{}, &noConnections{})
	if pin := s.Sessions.TakePin(&protocol.Request{}); pin != nil {
		t.Errorf("without cookies a request is pinned to %s", pin.Addr)
	}
	s.Config.LB.Sticky = config.Sticky{Cookie: "srv", Secret: "0123456789abcdef"}
	s.configureSessions()
	sticky := affinity.NewSticky(&s.Config.LB.Sticky)
	for value, want := range map[string]string{sticky.ID("a"): "a", sticky.ID("b"): "b", sticky.ID("c"): "", "": ""} {
		req := &protocol.Request{Headers: []protocol.Header{{Name: []byte("cookie"), Value: []byte("srv=" + value + "; x=y")}}}
		pin, addr := s.Sessions.TakePin(req), ""
		if pin != nil {
			addr = pin.Addr
			if given := s.Sessions.Give(nil, pin, false); string(given.Set) != string(sticky.Give(nil, value, false).Set) {
				t.Errorf("%s: gives %q", want, given.Set)
			}
		}
		if left := string(protocol.Find(req.Headers, "cookie")); addr != want || left != "x=y" {
			t.Errorf("%q is pinned to %q, want %q; left %q", value, addr, want, left)
		}
	}
	s.Config.LB.Sticky = config.Sticky{}
	if s.configureSessions(); s.Sessions != nil {
		t.Error("there are sessions without a key and without a cookie")
	}
}

// TestDialFailed: what a dial that fails says of the endpoint, and when the log says so.
func TestDialFailed(t *testing.T) {
	for _, c := range []struct {
		err  error
		want *fault.Failure
		logs bool
	}{{loop.ErrDialQueue, fault.DialLimit, false}, {errors.New("refused"), fault.Connect, true}, {nil, fault.Connect, false}} {
		var log strings.Builder
		l := sim.New(1).Loop("a")
		l.Do(func() {
			w := shard.New(&shard.Process{Loops: 1}, 0, l, slog.New(slog.NewTextHandler(&log, nil)), 1)
			w.Configure(config.Default())
			m := NewMember(config.DefaultService("s"), Member{}, 1)
			m.Prepare(w, "", nil)
			if got := m.Follow(w).DialFailed("10.0.0.1:1", c.err); got != c.want {
				t.Errorf("%v: %s, want %s", c.err, got.Code, c.want.Code)
			}
		})
		if logs := strings.Contains(log.String(), "endpoint=10.0.0.1:1 error=refused"); logs != c.logs || logs != (log.Len() > 0) {
			t.Errorf("%v: the log has %q", c.err, log.String())
		}
	}
}

// TestWaits: how long an attempt has waited for its slot.
func TestWaits(t *testing.T) {
	s, l := newTestService(t)
	s.Admission.slots.Limit.Store(1)
	s.Admission.slots.MaxQueue.Store(5)
	var first, second Place
	if got := s.Admission.Admit(&first, &Ask{}); got != SlotGranted || !first.HasSlot() || first.Waits(l.Now()) != 0 {
		t.Errorf("the first one: %d, has a slot: %t", got, first.HasSlot())
	}
	if got := s.Admission.Admit(&second, &Ask{}); got != SlotQueued || second.HasSlot() {
		t.Errorf("the second one: %d, has a slot: %t", got, second.HasSlot())
	}
	l.now += time.Second
	if got := second.Waits(l.Now()); got != time.Second || first.Waits(l.Now()) != 0 {
		t.Errorf("it waits for %v", got)
	}
	if used, queued := s.Shared.SlotsInUse(); used != 1 || queued != 1 {
		t.Errorf("%d slots in use, %d wait", used, queued)
	}
	if got := s.Admission.Withdraw(&second); got != time.Second || second.Waits(l.Now()) != 0 || s.Admission.Withdraw(&first) != 0 {
		t.Errorf("it has waited for %v", got)
	}
}

// TestSpareAsk: without a limit each request has a slot, but for what its caller has sent as a hedge: that needs an endpoint with
// spare capacity.
func TestSpareAsk(t *testing.T) {
	s, _ := newTestService(t)
	ask := func(by Ask, want AdmitResult) {
		t.Helper()
		if got := s.Admission.Admit(new(Place), &by); got != want {
			t.Errorf("%+v: %d, want %d", by, got, want)
		}
	}
	ask(Ask{}, SlotGranted)
	ask(Ask{Spare: true}, SlotRefused)
	ask(Ask{Spare: true, Stream: true}, SlotRefused)
	withEndpoints(s, &noConnections{}, &noConnections{})
	ask(Ask{Spare: true}, SlotGranted)
	s.Admission.slots.Limit.Store(1)
	ask(Ask{Stream: true}, SlotGranted)
	if used, _ := s.Shared.SlotsInUse(); used != 0 {
		t.Errorf("a stream has taken %d slots", used)
	}
}

// TestUnusedGrant: a slot that was passed to a loop where no request waits any more is free again.
func TestUnusedGrant(t *testing.T) {
	for c := range classes {
		s, _ := newTestService(t)
		s.Admission.slots.Limit.Store(2)
		s.Admission.slots.InUse.Store(2)
		s.Admission.queue.granted[c] = 1
		s.Admission.dispatchQueued()
		if used, _ := s.Shared.SlotsInUse(); used != 1 || s.Admission.queue.granted[c] != 0 {
			t.Errorf("class %d: %d slots in use", c, used)
		}
	}
}

// TestRetriesInTurn: while primaries wait too, each fourth slot is for a retry.
func TestRetriesInTurn(t *testing.T) {
	var q admissionQueue
	var primary, retry Place
	q.primary.Add(&primary.node, &primary, 0)
	for range 3 {
		if q.next(online) != &primary {
			t.Error("a retry that does not wait gets a slot")
		}
	}
	for round, slots := range []int{3*retryEvery + 2, retryEvery} { // the retry of the first round gives up
		q.retry.Add(&retry.node, &retry, 0)
		for i := range slots {
			if got := q.next(online); (got == &retry) != (i%retryEvery == retryEvery-1) || got != &retry && got != &primary {
				t.Errorf("round %d: slot %d is for a retry: %t", round, i, got == &retry)
			}
		}
		retry.node.Remove()
		q.next(online)
	}
}
