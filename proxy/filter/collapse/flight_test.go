package collapse

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/caching"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// quiet is a loop without turns.
type quiet struct{ loop.Loop }

func (quiet) After(time.Duration, *loop.Timer) {}
func (quiet) Now() time.Duration               { return 0 }

// TestSameHash: a request that has the hash of another one, but not its key and body, is sent. No client knows such a request.
func TestSameHash(t *testing.T) {
	f := &filter{
		ids: caching.NewIdentity(nil, nil), shard: &shard.Shard{Loop: quiet{}}, counts: new(stats.FilterStats),
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
