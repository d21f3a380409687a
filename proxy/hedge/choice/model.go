package choice

// model has the constants. TestConstants shows what happens at twice and at half of each.
var model = constants{
	slowest: .01,
	near:    .01,
	gain:    .1,
	doubt:   2,
	enough:  100,
}

type constants struct {
	// slowest is the share of the requests whose mean latency is to be short: those beyond P99. With a larger
	// share requests that are hardly late count as much as stragglers.
	slowest float64

	// near is the share by which that mean may be longer than the shortest possible, for fewer hedges, or for the
	// delay to stay as it is. Of twice as long a mean a tenth of a budget of 9% was not used, where a twentieth
	// are stragglers, and P99 was 20.3 ms, not 19.7. With half of it the delay moves with the chance of a second.
	near float64

	// gain is the share by which hedges must shorten that mean. Half of it is enough for hedges to go on.
	gain float64

	// doubt is by how many standard errors the late requests may be more than the budget pays, for all of them to get
	// a hedge as long as there are tokens. Of 20,000 requests a twentieth is known to a sixteenth.
	doubt float64

	// enough is how many hedges must be known for their latencies to be measured. Of 100 hedges five
	// are among the slowest twentieth.
	enough int64
}
