package outlier

import "time"

// model has the constants. TestConstants shows what happens at twice and at half of each.
var model = constants{
	half:      5 * time.Second,
	enough:    20,
	prior:     4,
	doublings: 6,
}

type constants struct {
	// half is half of the longest time that a record covers. In a longer time an endpoint that has recovered
	// would be avoided for longer. In a shorter one, fewer endpoints would have enough attempts: now those
	// with 4 requests a second have.
	half time.Duration

	// enough is the number of attempts from which on a share of good attempts or a mean latency ejects. Fewer
	// eject more endpoints by chance: of 10 attempts that fail one time in ten, more than half fail with a
	// probability of 1 in 7,000. More notice fewer endpoints that have few requests.
	enough uint32

	// prior is the number of good attempts that Discount adds to a record: a single failure says little.
	prior float64

	// doublings is the binary logarithm of the longest ejection in multiples of the base. A longer one wastes
	// an endpoint that has recovered, a shorter one sends more probes to one that has not.
	doublings int
}
