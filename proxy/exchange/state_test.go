package exchange

import (
	"slices"
	"testing"
)

// TestIllegalStatesPanic checks that become accepts these transitions, and panics on all
// others. They are written out: an edge that is added to a table by mistake would let a
// caller get two responses, or an attempt give back its slot twice.
func TestIllegalStatesPanic(t *testing.T) {
	var accepted []string
	try := func(from, to string, become func()) {
		defer func() {
			if recover() == nil {
				accepted = append(accepted, from+" → "+to)
			}
		}()
		become()
	}
	for from := range exchangeState(exchangeStates) {
		for to := range exchangeState(exchangeStates) {
			state := from
			try("exchange "+from.String(), to.String(), func() { state.become(to) })
		}
	}
	for from := range attemptState(attemptStates) {
		for to := range attemptState(attemptStates) {
			state := from
			try("attempt "+from.String(), to.String(), func() { state.become(to) })
		}
	}
	want := []string{
		"exchange idle → open",
		"exchange open → answered", "exchange open → cancelled",
		"exchange answered → idle",
		"exchange cancelled → idle",
		"attempt idle → launched",
		"attempt launched → idle", "attempt launched → queued", "attempt launched → sent",
		"attempt queued → idle", "attempt queued → sent",
		"attempt sent → idle", "attempt sent → lingering",
		"attempt lingering → idle",
	}
	if !slices.Equal(accepted, want) {
		t.Errorf("accepted %q, want %q", accepted, want)
	}
}
