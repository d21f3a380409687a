package hedge

// The gate useless. A hedge costs load whether it wins or not. If hardly any wins,
// for example because all replicas are slow alike, hedges only make them slower.
const (
	// uselessFloor is the lowest win rate, as one in so many, that keeps hedging
	// on. At the default quantile 3% of requests are hedged: if one hedge in 50
	// wins, 6 requests in 10,000 gain, which P99.9 no longer shows. The floor is
	// this low because few wins can be worth much: most hedges of a service with
	// even latency lose by a little, and the few that win avoid the freezes.
	uselessFloor = 50

	// uselessWindow is how many hedges must be sent before their win rate is judged, and half
	// of how many are remembered. At the floor 5 of them win, so that a service well above it
	// is not stopped by chance. An overload can't wait so long: without a win the gate closes
	// after uselessNone. With a win rate of one in 16 this happens by chance at one start in
	// 60.
	uselessWindow = 256
	uselessNone   = 64

	// probeShare is the fraction of the budget that probes spend while the gate
	// is closed: 0.08% of load at the default budget. The gate needs probeWins
	// to open again, because one win may be chance.
	probeShare = 1.0 / 64
	probeWins  = 2
)

// winRate judges by the recent hedges of a route whether hedges help. A hedge counts from the
// moment it is sent: in an overload it ends much later. The zero value lets hedges pass.
type winRate struct {
	sent, won uint32 // since the gate last closed, halved as they grow old
	closed    bool
	earned    float64 // fraction of the next probe that is earned
}

// earn counts budget earned by primaries, of which probes get probeShare.
func (w *winRate) earn(budget float64) {
	if w.closed {
		w.earned = min(w.earned+budget*probeShare, 1)
	}
}

// allows reports whether a hedge may be sent: only an earned probe while the gate is closed.
func (w *winRate) allows() bool { return !w.closed || w.earned >= 1 }

func (w *winRate) countHedge() {
	w.earned = 0
	w.sent++
	none := w.won == 0 && w.sent > uselessNone
	if !w.closed && (none || w.sent > uselessWindow && w.tooLow()) {
		*w = winRate{closed: true}
	}
	if w.sent >= 2*uselessWindow {
		w.sent, w.won = w.sent/2, w.won/2
	}
}

// countWin counts a hedge whose response was used.
func (w *winRate) countWin() {
	w.won++
	if w.closed && w.won >= probeWins && !w.tooLow() {
		w.closed = false
	}
}

// discount takes back one counted hedge, because it reached no application.
func (w *winRate) discount() {
	if w.sent > 0 {
		w.sent--
	}
}

func (w *winRate) tooLow() bool { return w.won*uselessFloor < w.sent }
