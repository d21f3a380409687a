package mux

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestTable compares the table with a map while entries are added and removed at random. The
// ids rise, as those of links do, or were made up to collide. The size stays bounded, and half of
// the slots stay free.
func TestTable(t *testing.T) {
	const most = 300
	for name, step := range map[string]uint64{"rising": 1, "colliding": 1 << 60} {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, 2))
			table, want := NewTable[uint64](), map[uint64]*uint64{}
			if table.Get(1) != nil {
				t.Error("an empty table has an entry")
			}
			var ids []uint64 // in the table
			next, highest := uint64(1), 0
			for round := range 20_000 {
				if n := len(ids); n > 0 && (n == most || rnd.IntN(2*most) < n) {
					i := rnd.IntN(n)
					table.Remove(ids[i])
					delete(want, ids[i])
					ids = slices.Delete(ids, i, i+1)
				} else {
					v := new(uint64)
					*v = next
					table.Put(next, v)
					want[next] = v
					ids = append(ids, next)
					next += step + uint64(rnd.IntN(3))
				}
				table.Remove(next) // not in the table
				highest = max(highest, len(ids))
				if n := len(table.slots); n > max(leastStreamSlots, 4*highest) || n < 2*len(ids) {
					t.Fatalf("round %d: %d slots for %d streams, at most %d before", round, n, len(ids), highest)
				}
				if table.Len() != len(want) || table.Get(next) != nil {
					t.Fatalf("round %d: %d entries, want %d", round, table.Len(), len(want))
				}
				for id, v := range want {
					if table.Get(id) != v {
						t.Fatalf("round %d: stream %d is lost", round, id)
					}
				}
			}
			slices.Sort(ids)
			list := table.InOrder()
			for i, s := range list {
				if s.ID != ids[i] || *s.Value != ids[i] {
					t.Fatalf("entry %d in order is %d, want %d", i, s.ID, ids[i])
				}
			}
			all := 0
			for v := range table.Each {
				if want[*v] != v {
					t.Fatalf("%d is not in the table", *v)
				}
				all++
			}
			for range table.Each {
				all++
				break
			}
			if all--; all != len(ids) {
				t.Errorf("%d values of one alone", all-len(ids)+1)
			}
			if len(list) != len(ids) || all != len(ids) {
				t.Errorf("%d in order, %d in all, want %d", len(list), all, len(ids))
			}
			table.Clear()
			if table.Len() != 0 || len(table.InOrder()) != 0 || table.Get(ids[0]) != nil {
				t.Error("not empty after Clear")
			}
		})
	}
}

// TestSpread: ids that rise in steps of one are found in few steps of the table.
func TestSpread(t *testing.T) {
	table := NewTable[uint64]()
	v := new(uint64)
	for id := range uint64(4096) {
		table.Put(id+1, v)
	}
	steps := 0
	for id := range uint64(4096) {
		steps += (table.find(id+1) - table.home(id+1)) & (len(table.slots) - 1)
	}
	if steps > 4096/10 {
		t.Errorf("4096 ids need %d steps past the slots where their search starts", steps)
	}
}
