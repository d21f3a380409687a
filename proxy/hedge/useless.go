package hedge

// The gate useless. Hedges cost their share of load whether they win or not; when
// hardly one wins, as where all replicas are slow alike, they only add to what is
// slow.
const (
	// uselessFloor is the win rate, as one in so many, below which hedging stops.
	// At the default quantile 3% of requests are hedged: when one hedge in 50
	// wins, 6 requests in 10,000 are helped, which P99.9 does not show any more.
	// It is this low because few wins can be worth much: of an even service's
	// hedges most lose by a hair, and the freezes are in the few that win.
	uselessFloor = 50

	// uselessWindow is how many hedges must have been sent before their win rate
	// is judged, and half of how many are remembered: at the floor 5 of them win,
	// so that a service well above it is not stopped by chance. Overload can't
	// wait for that many: without any win it takes uselessNone, which happens to
	// a service of which one hedge in 16 wins once in 60 starts.
	uselessWindow = 256
	uselessNone   = 64

	// probeShare is the part of the budget that is spent all the same while the
	// gate is closed: at the default budget 0.08% of load. probeWins of the
	// probes reopen it, for one could be chance.
	probeShare = 1.0 / 64
	probeWins  = 2
)

// wins judges by the recent hedges of a route whether they help. A hedge counts
// against them from the moment it is sent: in an overload its end is far off. The
// zero value lets hedges through.
type wins struct {
	sent, won uint32 // since the gate last closed, halved as they grow old
	closed    bool
	earned    float64 // towards the next probe, in hedges
}

// primary counts a request, whose route's budget is budget.
func (w *wins) primary(budget float64) {
	if w.closed {
		w.earned = min(w.earned+budget*probeShare, 1)
	}
}

// pass tells whether the next hedge may be sent: any while hedges win, else one
// when a probe has been earned.
func (w *wins) pass() bool { return !w.closed || w.earned >= 1 }

// hedge counts one that is sent.
func (w *wins) hedge() {
	w.earned = 0
	w.sent++
	none := w.won == 0 && w.sent > uselessNone
	if !w.closed && (none || w.sent > uselessWindow && w.poor()) {
		*w = wins{closed: true}
	}
	if w.sent >= 2*uselessWindow {
		w.sent, w.won = w.sent/2, w.won/2
	}
}

// win counts that one of those brought the answer.
func (w *wins) win() {
	w.won++
	if w.closed && w.won >= probeWins && !w.poor() {
		w.closed = false
	}
}

// missed counts one off that reached no application.
func (w *wins) missed() {
	if w.sent > 0 {
		w.sent--
	}
}

func (w *wins) poor() bool { return w.won*uselessFloor < w.sent }
