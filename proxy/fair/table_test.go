package fair

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/remora-proxy/remora/proxy/fair/share"
)

func addr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }

func source(i int) share.Source { return share.Source{Peer: addr(i)} }

// client is the i-th client of a peer.
func client(peer, i int) share.Source { return share.Source{Peer: addr(peer), Client: addr(i)} }

// filled returns a Table that holds the places, named by source and the order within it, and
// the names of those that were evicted.
func filled(max int, sources ...int) (t *Table, evicted *[]string, places []*Place) {
	t, evicted = NewTable(max), new([]string)
	nth := map[int]int{}
	for _, s := range sources {
		nth[s]++
		name := fmt.Sprintf("%d.%d", s, nth[s])
		places = append(places, t.Take(source(s), func() { *evicted = append(*evicted, name) }))
	}
	return t, evicted, places
}

func TestTableFull(t *testing.T) {
	for _, c := range []struct {
		name     string
		held     []int
		newcomer int
		turnover bool
		evicted  string // "" means that the newcomer is refused
	}{
		{"a new source", []int{1, 2, 1, 1}, 3, false, "1.1"},
		{"the largest source", []int{1, 2, 1, 1}, 1, false, ""},
		{"a smaller one", []int{1, 2, 1, 1}, 2, false, "1.1"},
		{"one fewer", []int{1, 2, 1}, 2, false, ""},
		{"one each", []int{1, 2, 3}, 4, false, ""},
		{"the largest source, turnover", []int{2, 1, 1, 1}, 1, true, "1.1"},
		{"one fewer, turnover", []int{1, 2, 1}, 2, true, "2.1"},
		{"one source, turnover", []int{1}, 4, true, "1.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, evicted, _ := filled(len(c.held), c.held...)
			table.Turnover = c.turnover
			p := table.Take(source(c.newcomer), func() {})
			got := ""
			for _, name := range *evicted {
				got += name
			}
			if got != c.evicted || (p == nil) != (c.evicted == "") {
				t.Errorf("evicted %q, want %q; a place: %t", got, c.evicted, p != nil)
			}
			if n := table.Taken(); n != len(c.held) {
				t.Errorf("%d places taken, want %d", n, len(c.held))
			}
		})
	}
}

// TestTableIdle: where each source has its share, the oldest place that is idle gives way, unless
// its source has fewer places than that of the newcomer. A place gets no younger by work.
func TestTableIdle(t *testing.T) {
	for _, c := range []struct {
		name     string
		held     []int
		idle     []int // places by their index, in turn
		working  []int // those of them that work again
		newcomer int
		evicted  string
	}{
		{"none is idle", []int{1, 2, 3}, nil, nil, 4, ""},
		{"the oldest that is idle", []int{1, 2, 3}, []int{2, 1}, nil, 4, "2.1"},
		{"one that works again", []int{1, 2, 3}, []int{2, 0}, []int{0}, 4, "3.1"},
		{"all work again", []int{1, 2, 3}, []int{2, 0}, []int{2, 0}, 4, ""},
		{"of its own source", []int{1, 2, 3}, []int{2}, nil, 3, ""},
		{"of a source with as many", []int{1, 2, 3}, []int{2}, nil, 1, "3.1"},
		{"of a source with fewer", []int{1, 1, 3}, []int{2}, nil, 1, ""},
		{"the larger share first", []int{1, 1, 3}, []int{2}, nil, 4, "1.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, evicted, places := filled(len(c.held), c.held...)
			for _, i := range c.idle {
				places[i].SetIdle(true)
			}
			for _, i := range c.working {
				places[i].SetIdle(false)
			}
			if n := table.Idle(); n != len(c.idle)-len(c.working) {
				t.Errorf("%d places are idle", n)
			}
			p := table.Take(source(c.newcomer), func() {})
			got := strings.Join(*evicted, " ")
			if got != c.evicted || (p == nil) != (c.evicted == "") || table.Taken() != len(c.held) {
				t.Errorf("evicted %q, want %q; a place: %t", got, c.evicted, p != nil)
			}
			for _, p := range places {
				p.Release()
				p.SetIdle(true) // too late
				if p.prev != nil || p.next != nil || p.older != nil || p.newer != nil {
					t.Error("a place that is free keeps others in memory")
				}
			}
			p.Release()
			if table.Taken() != 0 || table.all.newer != &table.all || table.all.older != &table.all {
				t.Errorf("%d places are left", table.Taken())
			}
		})
	}
}

// TestTableRelease: a place that is given back is free, once, and nothing is left of a source
// without places.
func TestTableRelease(t *testing.T) {
	table, evicted, places := filled(3, 1, 1, 1)
	places[1].Release()
	places[1].Release()
	if n := table.Taken(); n != 2 {
		t.Fatalf("%d places taken, want 2", n)
	}
	if table.Take(source(2), func() {}) == nil || len(*evicted) != 0 {
		t.Fatalf("refused, or evicted %v, with a free place", *evicted)
	}
	p := table.Take(source(3), func() {}) // takes 1.1
	places[0].Release()
	places[2].Release()
	p.Release()
	var none *Place
	none.Release()
	if len(table.rings) != 1 || table.places.Of(addr(2)) != 1 || table.Taken() != 1 {
		t.Errorf("%d rings, %v and %d places are left, want one", len(table.rings), table.places, table.Taken())
	}
}

func TestTableResize(t *testing.T) {
	table, evicted, places := filled(4, 1, 1, 1, 1)
	table.Resize(2)
	if table.Take(source(1), func() {}) != nil || len(*evicted) != 0 {
		t.Error("a newcomer came in above the bound, or a holder had to leave")
	}
	for _, p := range places[1:] {
		p.Release()
	}
	if table.Max() != 2 || table.Take(source(1), func() {}) == nil {
		t.Error("refused below the bound")
	}
	if table.Take(source(1), func() {}) != nil {
		t.Error("a newcomer came in above the new bound")
	}
	if table.Resize(3); table.Max() != 3 || table.Take(source(1), func() {}) == nil {
		t.Error("refused below a higher bound")
	}
}

// TestTableShares: whatever one source does, another keeps what it takes up to its share.
func TestTableShares(t *testing.T) {
	const max, others = 64, 7
	table := NewTable(max)
	for range 10_000 {
		table.Take(source(0), func() {})
		for i := 1; i <= others; i++ {
			table.Take(source(i), func() {})
		}
	}
	for i := range others + 1 {
		if n := table.places.Of(addr(i)); n != max/(others+1) {
			t.Errorf("source %d has %d places, want %d", i, n, max/(others+1))
		}
	}
}

// TestTableClients: the clients of a peer divide its share. However many clients a peer names, it has no more
// than one share.
func TestTableClients(t *testing.T) {
	const max, peers, clients = 64, 4, 4
	table := NewTable(max)
	for n := range 10_000 {
		table.Take(client(0, n), func() {}) // a name of its own for each place
		for peer := 1; peer < peers; peer++ {
			table.Take(client(peer, 0), func() {})
			table.Take(client(peer, 0), func() {})
			table.Take(client(peer, 1+n%(clients-1)), func() {})
		}
	}
	for peer := range peers {
		if n := table.places.Of(addr(peer)); n != max/peers {
			t.Errorf("peer %d has %d places, want %d", peer, n, max/peers)
		}
	}
	counts := make(map[share.Source]int)
	for p := table.all.newer; p != &table.all; p = p.newer {
		counts[p.source]++
	}
	for peer := 1; peer < peers; peer++ {
		for c := range clients {
			if n := counts[client(peer, c)]; n != max/peers/clients {
				t.Errorf("client %d of peer %d has %d places, want %d", c, peer, n, max/peers/clients)
			}
		}
	}
}

func TestTableRace(t *testing.T) {
	table := NewTable(16)
	table.Turnover = true
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 5_000 {
				p := table.Take(source(rand.IntN(3)), func() {})
				if i%2 == 0 || rand.IntN(2) == 0 {
					p.Release()
				}
			}
		})
	}
	all.Wait()
	if n := table.Taken(); n > 16 {
		t.Errorf("%d places taken of 16", n)
	}
}
