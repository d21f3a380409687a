package class

import "time"

// model has the constants. TestConstants shows what happens at twice and at half of each.
var model = constants{
	after:    64,
	samples:  100,
	half:     5 * time.Second,
	longHalf: 30 * time.Second,
	age:      50 * time.Millisecond,
	alike:    1.4,
}

type constants struct {
	// after is how many requests must differ in class from the one before, or have a name, until a route
	// has classes. A route with equal requests needs no memory for classes.
	after int

	// samples is how many latencies a class must have for an estimate of its own. Of 100 requests three
	// are beyond the quantile 0.97.
	samples int

	// half is how long a half of the window lasts, and longHalf how long at most until it has enough
	// samples. Both are as of the estimate of the route.
	half, longHalf time.Duration

	// age is when the delays are computed anew. A computation takes some microseconds, which the requests
	// of 50 ms share.
	age time.Duration

	// alike is the largest factor between the latencies of classes that share an estimate. A smaller factor
	// parts classes by chance: with 100 samples a quantile is known to a third.
	alike float64
}
