package exchange

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/allow"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/route"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
)

// peer is the Caller of a request that is checked.
type peer struct {
	Caller
	at *Listener
}

func (p peer) Listener() *Listener        { return p.at }
func (p peer) RemoteAddr() string         { return "10.0.0.1:1" }
func (p peer) PeerNames() *identity.Names { return nil }

// way is a way through the checks.
type way func(ex *Exchange, s *Leaving, u *Unread) *fault.Failure

const listenerRate, routeRate, rules, tunnel = "rate of the listener", "rate of the route", "rules", "tunnel"

// failures returns what a request fails with that fails all checks, and then passes one after another.
func failures(l loop.Loop, check way) (all []string) {
	none := limit.NewKeyed(&config.RateLimit{Rate: 1})
	none.Take(0, nil)
	to, at := &Route{Rate: none, Policy: race.Policy{Timeout: time.Second}}, &Listener{Rate: none, Allow: nobody(), Fixed: &Route{}}
	of := new(shard.Process) // without memory: its limit is 0
	of.Draining.Store(true)
	ex := &Exchange{message: message{shard: shard.New(of, 0, l, slog.New(slog.DiscardHandler), 1)}, caller: peer{at: at}}
	ex.Request.Deadline, ex.Refusal = -1, fault.BadPath
	s, u := &Leaving{Body: badBody, Lasting: true}, &Unread{Opaque: true}
	for range 20 {
		f := check(ex, s, u)
		if f == nil {
			break
		}
		what := f.Code
		switch {
		case f == fault.RateLimited && at.Rate != nil:
			what, at.Rate = listenerRate, nil
		case f == fault.RateLimited:
			what, to.Rate = routeRate, nil
		case f == fault.NotAllowed && at.Allow != nil:
			what, at.Allow = rules, nil
		case f == fault.NotAllowed:
			what, s.Opaque = tunnel, true
		case f == fault.BadPath:
			ex.Refusal = nil
		case f == fault.NoRoute:
			ex.Route, u.Taken = to, true
		case f == fault.Deadline:
			ex.Request.Deadline = 0
		case f == badBody:
			s.Body = nil
		case f == fault.Draining:
			of.Draining.Store(false)
		case f == fault.Overloaded:
			of.Budget.Configure(&config.Limits{Buffered: 1 << 20})
		}
		all = append(all, what)
	}
	return all
}

// leaving returns why a request does not leave. A request that fails does not stay for an answer of its route.
func leaving(ex *Exchange, s *Leaving) *fault.Failure {
	stays, f := ex.Checks(ex.caller.Listener()).Leaving(s)
	if stays {
		return &fault.Failure{Code: "stays"}
	}
	return f
}

// nobody returns rules that allow nothing.
func nobody() *allow.Set {
	return allow.NewSet("", &config.Allow{Enforce: true, Rules: []config.AllowRule{{Method: []string{"NONE"}}}}, nil)
}

var badBody = &fault.Failure{Code: "body"}

// TestOrderOfChecks: the order of the checks decides which failure a client sees.
func TestOrderOfChecks(t *testing.T) {
	for _, c := range []struct {
		name string
		way  way
		want []string
	}{
		{"message", func(ex *Exchange, _ *Leaving, _ *Unread) *fault.Failure {
			return ex.Checks(ex.caller.Listener()).message(ex.Route, ex.shard.Loop.Now())
		}, []string{listenerRate, fault.BadPath.Code, rules, fault.NoRoute.Code, fault.Deadline.Code, routeRate}},
		{"leaving", func(ex *Exchange, s *Leaving, _ *Unread) *fault.Failure {
			return leaving(ex, s)
		}, []string{listenerRate, fault.BadPath.Code, rules, fault.NoRoute.Code, badBody.Code, fault.Draining.Code, fault.Overloaded.Code, routeRate}},
		{"CONNECT that is accepted", func(ex *Exchange, s *Leaving, _ *Unread) *fault.Failure {
			s.Accepted = true
			return leaving(ex, s)
		}, []string{listenerRate, fault.BadPath.Code, badBody.Code, fault.Draining.Code, fault.Overloaded.Code}},
		{"tunnel", func(ex *Exchange, s *Leaving, _ *Unread) *fault.Failure {
			return ex.Checks(ex.caller.Listener()).Tunnel(s)
		}, []string{rules, fault.NoRoute.Code, tunnel, fault.Draining.Code, fault.Overloaded.Code}},
		{"unread", func(ex *Exchange, _ *Leaving, u *Unread) *fault.Failure {
			return u.Check(ex.caller, ex.shard)
		}, []string{fault.Draining.Code, fault.NoRoute.Code, listenerRate, fault.Overloaded.Code, rules}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			l := sim.New(1).Loop("a")
			l.Do(func() { got = failures(l, c.way) })
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestCheckedHead: a head that was checked takes no token and meets no rule a second time.
func TestCheckedHead(t *testing.T) {
	l := sim.New(1).Loop("a")
	l.Do(func() {
		of := new(shard.Process)
		of.Budget.Configure(&config.Limits{Buffered: 1 << 20})
		at := &Listener{Rate: limit.NewKeyed(&config.RateLimit{Rate: 1})}
		ex := &Exchange{message: message{shard: shard.New(of, 0, l, slog.New(slog.DiscardHandler), 1)}, caller: peer{at: at}}
		to := &Route{Policy: race.Policy{Timeout: time.Second}}
		if ex.Checks(at).Head(to) {
			t.Errorf("the head is refused: %v", ex.Refusal)
		}
		at.Allow = nobody()
		if f := ex.Checks(at).message(to, 0); f != nil {
			t.Errorf("the message is refused: %v", f)
		}
		if stays, f := ex.Checks(at).Leaving(&Leaving{}); stays || f != nil {
			t.Errorf("the stream is refused, or stays: %t %v", stays, f)
		}
		to.Answer = new(route.Answer)
		if stays, _ := ex.Checks(at).Leaving(&Leaving{}); !stays {
			t.Error("a request leaves although its route answers it")
		}
	})
}

// proved is a peer that has proved a name.
type proved struct{ peer }

func (proved) PeerNames() *identity.Names { return &identity.Names{DNS: []string{"a.example"}} }

// TestTunnel: what comes through a tunnel meets the rules, which know who has opened it.
func TestTunnel(t *testing.T) {
	onLoop(func(w *shard.Shard) {
		rules := allow.NewSet("", &config.Allow{Enforce: true, Rules: []config.AllowRule{{From: []string{"a.example"}}}}, nil)
		for name, c := range map[string]struct {
			at     *Listener
			named  bool
			opaque bool
			want   *fault.Failure
		}{
			"no rules":         {&Listener{}, false, true, nil},
			"a known client":   {&Listener{Allow: rules}, true, true, nil},
			"an unknown one":   {&Listener{Allow: rules}, false, true, fault.NotAllowed},
			"no opaque stream": {&Listener{}, false, false, fault.NotAllowed},
		} {
			var from Caller = peer{at: c.at}
			if c.named {
				from = proved{peer{at: c.at}}
			}
			ex := &Exchange{message: message{shard: w}, caller: from}
			if f := ex.Checks(c.at).Tunnel(&Leaving{Direct: true, Opaque: c.opaque}); f != c.want {
				t.Errorf("%s: %v, want %v", name, f, c.want)
			}
		}
	})
}

// TestOwnMemory: a request that leaves the loop is not refused for the memory that it holds itself, its exchange included.
func TestOwnMemory(t *testing.T) {
	onLoop(func(w *shard.Shard) {
		limit := w.Config.Limits.Buffered
		at := &Listener{}
		for others, want := range map[int64]*fault.Failure{limit - 1: nil, limit: fault.Overloaded} {
			ex := &Exchange{message: message{shard: w}, caller: peer{at: at}}
			const own, counted = 1000, 500
			ex.Held = own
			w.Process.Budget.Charge(others + own + counted)
			if _, f := ex.Checks(at).Leaving(&Leaving{Direct: true, Counted: counted}); f != want {
				t.Errorf("others hold %d: %v, want %v", others, f, want)
			}
			w.Process.Budget.Charge(-others - own - counted)
		}
	})
}
