package cache

import (
	"testing"

	"github.com/remora-proxy/remora/proxy/caching/store"
)

// TestSame: two entries with a key are of one response if the response was asked for, was born and ends at the same times.
func TestSame(t *testing.T) {
	meta := store.Meta{Asked: 1, Born: 2, Fresh: 3}
	for other, want := range map[store.Meta]bool{
		{Asked: 1, Born: 2, Fresh: 3, Refresh: 4}: true, {Asked: 2, Born: 2, Fresh: 3}: false, {Asked: 1, Born: 1, Fresh: 3}: false, {Asked: 1, Born: 2, Fresh: 4}: false,
	} {
		if got := same(&meta, &other); got != want {
			t.Errorf("%+v and %+v are of one response: %t", meta, other, got)
		}
	}
}
