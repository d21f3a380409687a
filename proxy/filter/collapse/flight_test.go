package collapse

import (
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/caching"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestKeptFlights: a flight whose memory is small is used again.
func TestKeptFlights(t *testing.T) {
	for _, c := range []struct {
		key, waiting int // capacities
		kept         bool
	}{
		{0, 0, true}, {maxKept, 0, true}, {0, maxKept, true}, {maxKept, maxKept, true},
		{maxKept + 1, 0, false}, {0, maxKept + 1, false}, {maxKept + 1, maxKept + 1, false},
	} {
		l := sim.New(1).Loop("a")
		f := &filter{shard: &shard.Shard{Loop: l}, flights: map[uint64]*flight{}, key: []byte("k")}
		one := f.open(1, 0)
		one.key, one.waiting = make([]byte, 0, c.key), make([]*member, 0, c.waiting)
		one.failure = fault.Injected
		l.Do(one.end)
		if one.failure != nil || len(f.flights) != 0 || len(f.freeFlights) == 1 != c.kept {
			t.Errorf("%+v: fails with %v, %d flights, %d kept", c, one.failure, len(f.flights), len(f.freeFlights))
		}
		two := f.open(2, 5)
		if two == one != c.kept || f.flights[2] != two || two.state != flying || string(two.key) != "k" || two.hash != 2 || two.began != 5 {
			t.Errorf("%+v: the next flight is %+v", c, two)
		}
	}
}

// TestKeptMembers: a member that has left is used again, and keeps nothing of its request.
func TestKeptMembers(t *testing.T) {
	f := &filter{flights: map[uint64]*flight{}, members: map[*exchange.Exchange]*member{}}
	fl := &flight{filter: f}
	one, two := new(exchange.Exchange), new(exchange.Exchange)
	first := f.join(one, fl)
	fl.lead(first)
	f.leave(first)
	if *first != (member{}) || len(f.members) != 0 || fl.leads[0] != nil {
		t.Errorf("after it has left: %+v", first)
	}
	if f.join(two, fl) != first || f.members[two] != first || first.ex != two || first.flight != fl || first.leads {
		t.Errorf("the next member is %+v", f.members[two])
	}
}

// alarm is a loop that notes for how long a timer is armed.
type alarm struct {
	loop.Loop
	after []time.Duration
}

func (a *alarm) After(d time.Duration, _ *loop.Timer) { a.after = append(a.after, d) }

// TestSecondLeaderIn: the first member that waits lets a second one lead when the first leader has had the delay.
func TestSecondLeaderIn(t *testing.T) {
	for _, c := range []struct{ began, now, delay, want time.Duration }{{100, 100, 20, 20}, {100, 105, 20, 15}, {100, 120, 20, 0}, {100, 150, 20, 0}} {
		var a alarm
		fl := &flight{filter: &filter{shard: &shard.Shard{Loop: &a}}, began: c.began}
		one, two := new(member), new(member)
		fl.wait(one, c.now, c.delay)
		fl.wait(two, c.now+1, 2*c.delay)
		if !slices.Equal(a.after, []time.Duration{c.want}) || fl.delay != c.delay {
			t.Errorf("%+v: armed for %v, then for %v", c, a.after, fl.delay)
		}
		if fl.filter.waiting != 2 || one.at != 0 || two.at != 1 {
			t.Errorf("%d wait, at %d and %d", fl.filter.waiting, one.at, two.at)
		}
		if fl.remove(one); fl.filter.waiting != 1 || two.at != 0 || !slices.Equal(fl.waiting, []*member{two}) {
			t.Errorf("%d wait, the second one at %d", fl.filter.waiting, two.at)
		}
	}
}

func (*alarm) Now() time.Duration { return 0 }

// TestSameHash: a request that has the hash of another one, but not its key and body, is sent.
func TestSameHash(t *testing.T) {
	f := &filter{
		ids: caching.NewIdentity(nil, nil), shard: &shard.Shard{Loop: new(alarm)}, counts: new(stats.FilterStats),
		flights: map[uint64]*flight{}, members: map[*exchange.Exchange]*member{},
	}
	request := func() *exchange.Exchange {
		ex := exchange.NewPool(nil).Exchange(peer{})
		ex.Request.Idempotent = true
		return ex
	}
	first := request()
	if next := f.Request(first); next != exchange.Continue || len(f.flights) != 1 || f.counts.CollapseAlone != 0 {
		t.Fatalf("the first request: %v, %d flights", next, len(f.flights))
	}
	fl := f.members[first].flight
	key := fl.key
	fl.key = []byte("another")
	if next := f.Request(request()); next != exchange.Continue || f.counts.CollapseAlone != 1 {
		t.Errorf("with another key: %v, %d are sent alone", next, f.counts.CollapseAlone)
	}
	fl.key, first.Request.Body = key, []byte("another")
	if next := f.Request(request()); next != exchange.Continue || f.counts.CollapseAlone != 2 {
		t.Errorf("with another body: %v, %d are sent alone", next, f.counts.CollapseAlone)
	}
}
