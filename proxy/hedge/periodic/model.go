package periodic

import "time"

// model has the constants. TestConstants shows what happens at twice and at half of each.
var model = constants{
	minStall:    50 * time.Millisecond,
	stallGap:    500 * time.Millisecond,
	leastJitter: 10 * time.Millisecond,
	stalls:      32,
	minPeriod:   2 * time.Second,
	maxPeriod:   time.Hour,
	candidates:  3,
	jitters:     [...]float64{1.0 / 512, 1.0 / 128, 1.0 / 32},
	missedBeats: 3,
	leastBeats:  0.6,
	leastChance: 7e-8,
}

type constants struct {
	// minStall is the shortest silence that is a stall. A shorter silence of few requests is chance:
	// a request takes so long now and then.
	minStall time.Duration

	// stallGap is the time after a stall within which another silence continues the stall. The
	// backlog of a stall makes such silences.
	stallGap time.Duration

	// leastJitter is the least jitter that is reported. Look is called each 10 ms in a stall, so onsets
	// are no more exact.
	leastJitter time.Duration

	// stalls is how many stalls are remembered, in 512 bytes. A true period has to be visible among
	// stalls at random times.
	stalls int

	// minPeriod is the shortest period. A garbage collector stops more often than that at intervals that
	// depend on the load, which no line fits for long.
	minPeriod time.Duration

	// maxPeriod is the longest period. Five stalls at that distance take four hours. A day has too
	// few stalls to find a longer one before the next release.
	maxPeriod time.Duration

	// candidates is how many of the stalls before the latest one are tried as the previous beat.
	candidates int

	// jitters are how far stalls may be from their beat, as shares of the period. A period with
	// 5 beats must be exact, a period with 8 beats need not.
	jitters [3]float64

	// missedBeats is the number of beats in a row without a stall after which the period is over.
	missedBeats int

	// leastBeats is the least share of beats that have a stall. It keeps out fractions of the
	// period, and periods shorter than the distances of random stalls.
	leastBeats float64

	// leastChance is the probability below which stalls at random times are ruled out. It is low
	// because 7 fits are tried after each stall.
	leastChance float64
}
