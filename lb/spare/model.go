package spare

import "time"

// model has the constants. TestConstants shows what happens at twice and at half of each.
var model = constants{
	step:        4,
	known:       64,
	remembered:  512,
	half:        5 * time.Second,
	halfSamples: 512,
	halfMost:    time.Minute,
	guess:       2,
	slower:      0.3,
	stuckSlower: 1,
	drift:       0.1,
	usual:       64,
}

type constants struct {
	// step, divided by the number of latencies, is how far a latency moves the quartile of its level, as a
	// power of 2. A smaller one is more exact, but corrects a first latency in a freeze too slowly.
	step float64

	// known is the number of latencies from which on the quartile of a level counts.
	known float64

	// remembered is the largest number of latencies that counts, so that the least step is 1/128. Then the
	// estimate for exponential latencies is within 10% of the quartile. The error matters, because the
	// least estimate of all levels is the unloaded latency.
	remembered float64

	// half is the time after which the latencies of a level count half: what was learned long ago, perhaps
	// of another release, is forgotten. halfSamples latencies must have come, enough for some levels,
	// unless they take longer than halfMost.
	half        time.Duration
	halfSamples int
	halfMost    time.Duration

	// guess is the least load of which nothing is known that has no room: a service may be busy when it is
	// first seen. For a stuck request it is twice as much: in a freeze the other endpoints have loads that
	// are rare, and so unknown.
	guess float64

	// slower is how much longer than the unloaded latency the quartile at a load may be, as a power of
	// 2: 23%. With one worker, a request that finds the worker busy takes twice as long, and with two
	// a third longer.
	slower float64

	// stuckSlower is slower for the hedge of a stuck request: twice as long, which is short beside a
	// freeze.
	stuckSlower float64

	// drift is how much the unloaded latency may grow each time the samples are halved, as a power of 2, if
	// no load is as quick any more. So a service of 100 requests a second that becomes twice as slow has
	// the new unloaded latency within a minute. The drift is slow, because in an overload all known loads
	// are slow, too.
	drift float64

	// usual is the number of requests over which the usual load is averaged. The usual load must change
	// more slowly than a freeze lasts.
	usual uint32
}
