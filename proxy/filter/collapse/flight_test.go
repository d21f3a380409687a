package collapse

import (
	"testing"

	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
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
