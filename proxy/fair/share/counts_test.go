package share

import (
	"net/netip"
	"testing"
)

func addr(i byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, i}) }

func source(i byte) Source { return Source{Peer: addr(i)} }

// client is the i-th client of a peer.
func client(peer, i byte) Source { return Source{Peer: addr(peer), Client: addr(i)} }

// TestCountsExcess: which source gives a place to a newcomer.
func TestCountsExcess(t *testing.T) {
	for _, c := range []struct {
		name     string
		have     []Source
		newcomer Source
		from     Source
		ok       bool
	}{
		{"nobody has one", nil, source(1), Source{}, false},
		{"one each", []Source{source(1), source(2)}, source(3), Source{}, false},
		{"one fewer", []Source{source(1), source(1), source(2)}, source(2), Source{}, false},
		{"two fewer", []Source{source(1), source(1)}, source(2), source(1), true},
		{"the largest client of the largest peer", []Source{client(1, 1), client(1, 2), client(1, 2), source(2)}, source(3), client(1, 2), true},
		{"a client of another peer", []Source{client(1, 1), client(1, 1)}, client(2, 1), client(1, 1), true},
		{"another client of the same peer", []Source{client(1, 1), client(1, 1)}, client(1, 2), client(1, 1), true},
		{"as many clients as places", []Source{client(1, 1), client(1, 2)}, client(1, 3), Source{}, false},
		{"one fewer than another client", []Source{client(1, 1), client(1, 1), client(1, 2)}, client(1, 2), Source{}, false},
		{"a client without a name", []Source{client(1, 1), client(1, 1)}, source(1), client(1, 1), true},
		{"a larger peer first", []Source{client(1, 1), client(1, 1), source(2), source(2), source(2), source(2)}, client(1, 2), source(2), true},
		{"its own peer with as many", []Source{client(1, 1), client(1, 1), source(2), source(2)}, client(1, 2), client(1, 1), true},
	} {
		var counts Counts
		for _, have := range c.have {
			counts.Add(have)
		}
		if from, ok := counts.Excess(c.newcomer); ok != c.ok || ok && from != c.from {
			t.Errorf("%s: %v, %t", c.name, from, ok)
		}
	}
}

// TestCountsRemove: nothing is left of a source without places.
func TestCountsRemove(t *testing.T) {
	var counts Counts
	all := []Source{source(1), client(1, 1), client(1, 1), client(2, 1)}
	for _, s := range all {
		counts.Add(s)
	}
	if n := counts.Of(addr(1)); n != 3 {
		t.Errorf("%d places, want 3", n)
	}
	for _, s := range all {
		counts.Remove(s)
	}
	if len(counts.peers)+len(counts.clients) != 0 {
		t.Errorf("left: %v", counts)
	}
	if _, ok := counts.Largest(source(1)); ok {
		t.Error("there is a largest source of none")
	}
}

// TestCountsLargest: of a newcomer's peer, or of the largest one, the client with the most places. Of equals it is that with the
// lowest address.
func TestCountsLargest(t *testing.T) {
	for _, c := range []struct {
		name     string
		have     []Source
		newcomer Source
		from     Source
		ok       bool
	}{
		{"nobody has one", nil, source(1), Source{}, false},
		{"its own peer", []Source{client(1, 1), client(2, 1), client(2, 1)}, client(1, 2), client(1, 1), true},
		{"its own peer with one place", []Source{source(1), source(2), source(2)}, source(1), source(1), true},
		{"another peer", []Source{client(1, 1), client(2, 1), client(2, 2), client(2, 2)}, client(3, 1), client(2, 2), true},
		{"the largest client is of a smaller peer", []Source{client(1, 1), client(1, 1), client(2, 1), client(2, 2), client(2, 3)}, source(3), client(2, 1), true},
	} {
		var counts Counts
		for _, have := range c.have {
			counts.Add(have)
		}
		for range 20 { // the order of a map is random
			if from, ok := counts.Largest(c.newcomer); ok != c.ok || ok && from != c.from {
				t.Errorf("%s: %v, %t", c.name, from, ok)
			}
		}
	}
}

// TestCountsEquals: of sources with as many places, that with the lowest address gives a place, in whatever order they came.
func TestCountsEquals(t *testing.T) {
	for order := range byte(2) {
		var counts Counts
		for i := range byte(10) {
			if order == 1 {
				i = 9 - i
			}
			for range 2 {
				counts.Add(client(1+i, 11))
				counts.Add(client(1+i, 7))
				counts.Add(client(1+i, 9))
			}
		}
		for range 20 {
			if from, ok := counts.Excess(source(100)); !ok || from != client(1, 7) {
				t.Errorf("%v gives a place", from)
			}
			if from, ok := counts.Excess(client(4, 100)); !ok || from != client(4, 7) {
				t.Errorf("%v gives a place to another client", from)
			}
		}
	}
}
