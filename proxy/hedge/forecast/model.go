package forecast

import "time"

// model has the constants. TestConstants shows what happens at twice and at half of each.
var model = constants{
	kept:      2 * time.Second,
	reach:     100 * time.Millisecond,
	noteEvery: time.Millisecond,
	asks:      32,
	half:      30 * time.Second,
	halfMost:  10 * time.Minute,
	enough:    4096,
}

type constants struct {
	// kept is how long primaries are remembered: longer than the latency of a request that a hedge can help.
	// A longer time takes more memory.
	kept time.Duration

	// reach is how far from a time a primary may have been sent to stand for it. A longer one compares with
	// endpoints in another state, a shorter one finds no primary at 10 requests a second.
	reach time.Duration

	// noteEvery is the time in which at most one primary of a route is noted. A shorter one costs more
	// instructions, and at a high rate remembers a shorter time. A longer one is less exact than the
	// shortest delay that is forecast.
	noteEvery time.Duration

	// asks is how often the forecast asks the transient gates for one request. A real request asks without
	// this bound, but the cost of one forecast must have one. The timer of a watched request fires as often at
	// the interval of a real request, and then ever more rarely.
	asks int

	// half is the least time of half of what a forecast is made of, and halfMost the longest. In between a half
	// ends once it has enough watched requests: P99.9 needs thousands of them. Less follows a change sooner,
	// and is less exact.
	half, halfMost time.Duration
	enough         int64
}
