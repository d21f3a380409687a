package worth

// model has the constants. TestConstants shows what happens at twice and at half of each.
var model = constants{
	least:   1.0 / 96,
	samples: 128,
	fewer:   32,
	step:    3,
	levels:  3,
}

type constants struct {
	// least is how much shorter hedged requests must become on average. Lognormal
	// latencies of sigma 0.5 become 1/42 shorter, and P99.9 falls by a tenth. If a tenth of the
	// requests takes ten times as long, they become 1/250 shorter, and P99.9 does not fall.
	least float64

	// samples is how many hedged requests are judged at once, and fewer if not each
	// decision may hedge. Half suffice if they save less than half of least. All decisions may hedge once fewer hedges
	// in a row have saved an unknown time.
	samples, fewer int

	// There are levels of how many decisions for late requests may hedge: all, one in 8, one in 64. Each further level
	// allows 1/(1<<step) of the hedges. Gate.skipped counts to 256. A request that stays late is decided on again, so
	// the latest requests are hedged most.
	step, levels uint32
}
