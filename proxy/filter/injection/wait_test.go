package injection

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
)

// TestWaitsAreUsedAgain: the delay of a request that has ended takes no memory for the next one, and
// keeps none of the request.
func TestWaitsAreUsedAgain(t *testing.T) {
	l := sim.New(1).Loop("a")
	f := &filter{shard: &shard.Shard{Loop: l}, delay: time.Second, waiting: map[*exchange.Exchange]*wait{}}
	l.Do(func() {
		one, two := new(exchange.Exchange), new(exchange.Exchange)
		f.hold(one)
		first := f.waiting[one]
		f.End(one)
		if first.ex != nil || first.timer.Armed() || len(f.waiting) != 0 {
			t.Errorf("after the end: %+v, and %d wait", first, len(f.waiting))
		}
		f.hold(two)
		if f.waiting[two] != first || first.ex != two {
			t.Error("the next request has other memory")
		}
		f.End(two)
	})
}
