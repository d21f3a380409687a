package steal

import (
	"slices"
	"testing"
)

// TestStopsBeforeTheBeginningAreDropped: until all processors are watched nobody is
// told of a Stop, then of each.
func TestStopsBeforeTheBeginningAreDropped(t *testing.T) {
	var told []int
	const begun = -1
	m := muster{
		begun: func() { told = append(told, begun) },
		found: func(s Stop) { told = append(told, s.CPU) },
		left:  2,
	}
	m.tell(Stop{CPU: 1})
	m.arrive()
	m.tell(Stop{CPU: 2})
	m.arrive()
	m.tell(Stop{CPU: 3})
	m.tell(Stop{CPU: 4})
	if want := []int{begun, 3, 4}; !slices.Equal(told, want) {
		t.Errorf("told of %v, want %v", told, want)
	}
}
