package hedge

import "testing"

// neverWin closes the gate.
func neverWin(r *Route) {
	for range uselessNone + 1 {
		r.wins.hedge()
	}
}

// ask has n requests ask for their hedge, of which one in every that is sent
// wins, or none; it returns how many were sent.
func (w *wins) ask(n, every int) (sent int) {
	for range n {
		w.primary(1)
		if !w.pass() {
			continue
		}
		sent++
		w.hedge()
		if every > 0 && sent%every == 0 {
			w.win()
		}
	}
	return sent
}

const probeEvery int = 1 / probeShare // primaries, with the budget 1 of ask

func TestHedgesThatNeverWinStopButForProbes(t *testing.T) {
	var w wins
	if sent := w.ask(uselessNone, 0); sent != uselessNone || w.closed {
		t.Errorf("%d of the first %d were sent; too few to judge by", sent, uselessNone)
	}
	w.ask(1, 0)
	const n = 100 * probeEvery
	if sent := w.ask(n, 0); sent != n/probeEvery {
		t.Errorf("%d probes of %d, want one in %d", sent, n, probeEvery)
	}
}

// A few wins keep hedging on for as long as it takes to know the rate.
func TestAFewWinsAreJudgedLater(t *testing.T) {
	for every, closes := range map[int]bool{uselessFloor + 10: true, uselessFloor / 2: false} {
		var w wins
		w.ask(uselessWindow, every)
		if w.closed {
			t.Errorf("closed within the window, with a win of %d", every)
		}
		if w.ask(10*uselessWindow, every); w.closed != closes {
			t.Errorf("one win of %d: closed is %v", every, w.closed)
		}
	}
}

// The probes notice when hedges would win again, and two of them are enough.
func TestProbesReopen(t *testing.T) {
	w := wins{closed: true}
	if w.ask(probeEvery, 1); !w.closed {
		t.Error("one win reopened it, which may be chance")
	}
	if w.ask(probeEvery, 1); w.closed {
		t.Error("two wins of two probes did not reopen it")
	}
	if sent := w.ask(uselessWindow, 10); sent != uselessWindow {
		t.Errorf("reopened, %d of %d were sent", sent, uselessWindow)
	}
}

// Probes that win now and then, below the floor, do not reopen it.
func TestPoorProbesDoNotReopen(t *testing.T) {
	w := wins{closed: true}
	if w.ask(10*2*uselessFloor*probeEvery, 2*uselessFloor); !w.closed {
		t.Errorf("reopened at half the floor: %+v", w)
	}
}

// What won long ago does not count.
func TestOldWinsAreForgotten(t *testing.T) {
	var w wins
	w.ask(10*uselessWindow, 1)
	n := 0
	for !w.closed && n < 100*uselessWindow {
		n += w.ask(1, 0)
	}
	if n > 8*uselessWindow {
		t.Errorf("it took %d hedges in vain to close", n)
	}
}

// A hedge that reached no application counts for nothing.
func TestRecent(t *testing.T) {
	r := NewRoute(*auto(), 1)
	for range 5 {
		r.wins.hedge()
	}
	r.Won()
	r.Missed()
	if hedges, won := r.Recent(); hedges != 4 || won != 1 {
		t.Errorf("%d of %d won, want one of four", won, hedges)
	}
	if r.Counts.HedgesWon != 1 || r.Counts.HedgesMissed != 1 {
		t.Errorf("counted %+v", r.Counts)
	}
	if neverWin(r); r.wins.closed {
		t.Error("closed although one has won of some seventy")
	}
}
