package cache

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/caching"
	"github.com/remora-proxy/remora/proxy/caching/store"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// clock is a loop that has only a time.
type clock struct {
	loop.Loop
	now time.Duration
}

func (c clock) Now() time.Duration { return c.now }

// TestInvalidate: an unsafe HTTP request that did not fail invalidates its target.
func TestInvalidate(t *testing.T) {
	for _, c := range []struct {
		method string
		status int
		codec  protocol.Codec
		want   bool
	}{
		{"GET", 200, protocol.CodecHTTP, false},
		{"HEAD", 200, protocol.CodecHTTP, false},
		{"OPTIONS", 200, protocol.CodecHTTP, false},
		{"TRACE", 200, protocol.CodecHTTP, false},
		{"POST", 200, protocol.CodecHTTP, true},
		{"get", 200, protocol.CodecHTTP, true},
		{"PUT", 399, protocol.CodecHTTP, true},
		{"PUT", 400, protocol.CodecHTTP, false},
		{"DELETE", 503, protocol.CodecHTTP, false},
		{"POST", 200, protocol.CodecHTTP + 1, false},
	} {
		req := protocol.Request{Codec: c.codec, Method: []byte(c.method), Path: []byte("/a")}
		var stamps shard.Stamps
		stamps.Expect(10)
		target := caching.Hash(stamps.Seed, caching.AppendTarget(nil, &req))
		stamps.Keep(target, 1, time.Hour)
		v := invalidator{loop: clock{now: 5}, stamps: &stamps}
		v.invalidate(&req, &race.Response{Response: protocol.Response{Status: c.status}})
		if at, later := stamps.InvalidatedSince(target, 5), stamps.InvalidatedSince(target, 6); at != c.want || later {
			t.Errorf("%+v: invalidated %t, and later %t", c, at, later)
		}
	}
}

// TestHeldIsShared: what is held is shared with whom it is the same entry for, and is of no use for a later one.
func TestHeldIsShared(t *testing.T) {
	meta := store.Meta{Asked: 1, Born: 2, Fresh: 3}
	for _, other := range []store.Meta{{Asked: 2, Born: 2, Fresh: 3}, {Asked: 1, Born: 1, Fresh: 3}, {Asked: 1, Born: 2, Fresh: 4}} {
		if same(&meta, &other) {
			t.Errorf("%+v is the same as %+v", other, meta)
		}
	}
	if other := meta; !same(&meta, &other) {
		t.Error("an entry is not the same as itself")
	}
	f := &filter{shared: map[uint64]*held{}}
	first, second := &held{hash: 7, value: []byte("a")}, &held{hash: 7, value: []byte("b")}
	f.shared[7] = second // it has taken the place of the first
	if f.drop(first); f.shared[7] != second || first.value != nil || len(f.freeHeld) != 1 {
		t.Errorf("after the first: %v is shared, %d are free", f.shared, len(f.freeHeld))
	}
	if f.drop(second); len(f.shared) != 0 || len(f.freeHeld) != 2 {
		t.Errorf("after the second: %v is shared, %d are free", f.shared, len(f.freeHeld))
	}
	for range 2 * maxHeld {
		f.drop(&held{})
	}
	if len(f.freeHeld) != maxHeld {
		t.Errorf("%d are free", len(f.freeHeld))
	}
}

// TestUnstored: headers of one response, in any case, are not stored, and conditions are dropped.
func TestUnstored(t *testing.T) {
	for _, name := range unstored {
		if !isUnstored([]byte(name)) || !isUnstored([]byte(strings.ToUpper(name))) || isUnstored([]byte(name+"s")) {
			t.Errorf("%s is stored", name)
		}
	}
	var hs []protocol.Header
	for _, name := range []string{"If-None-Match", "a", "if-modified-since", "if-match", "IF-NONE-MATCH"} {
		hs = append(hs, protocol.Header{Name: []byte(name)})
	}
	if hs = dropConditions(hs); len(hs) != 2 || string(hs[0].Name) != "a" || string(hs[1].Name) != "if-match" {
		t.Errorf("%q are left", hs)
	}
}

// TestRefusedAreCounted: a response that is not stored counts, unless it says nothing of what could be.
func TestRefusedAreCounted(t *testing.T) {
	for status, want := range map[int]uint64{200: 1, 305: 1, 303: 1, 304: 0} {
		f := &filter{counts: new(stats.FilterStats)}
		f.refuse(&lookup{ask: caching.Ask{NoStore: true}}, nil, &race.Response{Response: protocol.Response{Status: status}})
		if f.counts.CacheRefused != want {
			t.Errorf("%d: %d refused", status, f.counts.CacheRefused)
		}
	}
}

// TestRefreshEnds: nothing is left of a request of the cache's own that is over, and its memory is used again.
func TestRefreshEnds(t *testing.T) {
	f := &filter{open: map[*exchange.Exchange]*lookup{}}
	r := &refresher{filter: f, inFlight: 2}
	c, l := new(exchange.Exchange), &lookup{key: []byte("k"), validates: true}
	f.open[c] = l
	r.end(c, l)
	if r.inFlight != 1 || len(f.open) != 0 || len(f.free) != 1 || f.free[0] != l || l.validates {
		t.Errorf("%d in flight, %d open, %d free", r.inFlight, len(f.open), len(f.free))
	}
	large := &lookup{key: make([]byte, maxKey+1)}
	if f.forget(c, large); len(f.free) != 1 {
		t.Error("a large key is kept")
	}
	for range 2 * maxFree {
		f.forget(c, &lookup{key: make([]byte, maxKey)})
	}
	if len(f.free) != maxFree {
		t.Errorf("%d are free", len(f.free))
	}
}

// TestCountsOfTheStore: each change of the store is counted once.
func TestCountsOfTheStore(t *testing.T) {
	f := &filter{counts: new(stats.FilterStats), store: store.New(1 << 20)}
	for round := range uint64(3) {
		f.store.Evicted += 2
		f.store.Put(1, round, []byte{'k', byte(round)}, &store.Meta{Until: time.Hour}, make([]byte, 5000))
		f.count()
		f.count()
		if got := *f.counts; got.CacheEvicted != 2*(round+1) || got.CacheBytes != int64(f.store.Bytes()) || got.CacheBytes <= 0 {
			t.Errorf("%d evicted, %d of %d bytes", got.CacheEvicted, got.CacheBytes, f.store.Bytes())
		}
	}
}

// TestNotesAreUsedAgain: the memory for what is known of a request serves the next one.
func TestNotesAreUsedAgain(t *testing.T) {
	var stamps shard.Stamps
	f := &filter{open: map[*exchange.Exchange]*lookup{}, invalidator: invalidator{stamps: &stamps}}
	f.in.key, f.in.primary, f.in.hash, f.in.target = []byte("key and more"), 3, 4, 5
	one, two := new(exchange.Exchange), new(exchange.Exchange)
	l := f.note(one, 7)
	if string(l.key) != "key" || l.hash != 4 || l.target != 5 || l.asked != 7 || f.open[one] != l {
		t.Errorf("noted %+v", l)
	}
	f.End(one)
	f.End(one)
	if f.note(two, 8) != l || len(f.free) != 0 || len(f.open) != 1 || l.asked != 8 {
		t.Errorf("the next one has %+v, %d are free", f.open[two], len(f.free))
	}
}
