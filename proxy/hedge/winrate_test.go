package hedge

import "testing"

// neverWin closes the gate useless.
func neverWin(r *Route) {
	for range uselessNone + 1 {
		r.winRate.countHedge()
	}
}

// ask simulates n requests that ask for a hedge, and returns how many hedges were
// sent. One of every hedges wins; 0 means that none does.
func (w *winRate) ask(n, every int) (sent int) {
	for range n {
		w.earn(1)
		if !w.allows() {
			continue
		}
		sent++
		w.countHedge()
		if every > 0 && sent%every == 0 {
			w.countWin()
		}
	}
	return sent
}

const probeEvery int = 1 / probeShare // primaries per probe, with the budget 1 of ask

func TestProbesWithoutWins(t *testing.T) {
	var w winRate
	if sent := w.ask(uselessNone, 0); sent != uselessNone || w.closed {
		t.Errorf("%d of the first %d were sent; too few to judge by", sent, uselessNone)
	}
	w.ask(1, 0)
	const n = 100 * probeEvery
	if sent := w.ask(n, 0); sent != n/probeEvery {
		t.Errorf("%d probes of %d, want one in %d", sent, n, probeEvery)
	}
}

// If any hedge has won, the rate is judged only after a whole window.
func TestWinRateFloor(t *testing.T) {
	for every, closes := range map[int]bool{uselessFloor + 10: true, uselessFloor / 2: false} {
		var w winRate
		w.ask(uselessWindow, every)
		if w.closed {
			t.Errorf("closed within the window, with a win of %d", every)
		}
		if w.ask(10*uselessWindow, every); w.closed != closes {
			t.Errorf("one win of %d: closed is %v", every, w.closed)
		}
	}
}

// Two probes that win open the gate again.
func TestProbesReopen(t *testing.T) {
	w := winRate{closed: true}
	if w.ask(probeEvery, 1); !w.closed {
		t.Error("the gate reopened after one win, which may be chance")
	}
	if w.ask(probeEvery, 1); w.closed {
		t.Error("the gate stayed closed after two wins of two probes")
	}
	if sent := w.ask(uselessWindow, 10); sent != uselessWindow {
		t.Errorf("the open gate let %d of %d hedges pass", sent, uselessWindow)
	}
}

// Probes with a win rate below the floor do not open the gate.
func TestPoorProbesDoNotReopen(t *testing.T) {
	w := winRate{closed: true}
	if w.ask(10*2*uselessFloor*probeEvery, 2*uselessFloor); !w.closed {
		t.Errorf("the gate reopened at half the floor: %+v", w)
	}
}

// Old wins are forgotten.
func TestOldWinsAreForgotten(t *testing.T) {
	var w winRate
	w.ask(10*uselessWindow, 1)
	n := 0
	for !w.closed && n < 100*uselessWindow {
		n += w.ask(1, 0)
	}
	if n > 8*uselessWindow {
		t.Errorf("the gate closed after %d hedges without a win", n)
	}
}

// A hedge that reached no application is not counted.
func TestRecent(t *testing.T) {
	r := NewRoute(*auto(), 1)
	for range 5 {
		r.winRate.countHedge()
	}
	r.Won()
	r.Missed()
	if hedges, won := r.Recent(); hedges != 4 || won != 1 {
		t.Errorf("%d of %d won, want 1 of 4", won, hedges)
	}
	if r.Counts.HedgesWon != 1 || r.Counts.HedgesMissed != 1 {
		t.Errorf("counted %+v", r.Counts)
	}
	if neverWin(r); r.winRate.closed {
		t.Error("the gate closed although one of about seventy has won")
	}
}
