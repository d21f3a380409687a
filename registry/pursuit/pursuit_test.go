package pursuit

import (
	"slices"
	"testing"

	"github.com/remora-proxy/remora/registry"
)

// TestIllegalStatesPanic checks that become accepts these transitions, and panics on all
// others. They are written out: a closed registration that an edge added by mistake
// revives would announce an endpoint that is gone.
func TestIllegalStatesPanic(t *testing.T) {
	var accepted []string
	try := func(from, to registry.State) {
		defer func() {
			if recover() == nil {
				accepted = append(accepted, from.String()+" → "+to.String())
			}
		}()
		p := &Pursuit{state: from}
		p.become(to)
		if p.state != to {
			t.Errorf("%v instead of %v", p.state, to)
		}
	}
	for from := range registry.Failed + 1 {
		for to := range registry.Failed + 1 {
			if from == to {
				(&Pursuit{state: from}).become(to) // no change
				continue
			}
			try(from, to)
		}
	}
	want := []string{
		"pending → registered", "pending → withdrawn", "pending → closed", "pending → failed",
		"registered → pending", "registered → withdrawn",
		"withdrawn → pending",
	}
	if !slices.Equal(accepted, want) {
		t.Errorf("accepted %q, want %q", accepted, want)
	}
}
