package queues

import (
	"testing"
	"time"
)

// TestUnequalRequests: where short and long requests share a route, and replicas freeze one by
// one, the delay of the short ones is theirs. With one estimate for all it is that of the
// long ones, and these are hedged for nothing.
func TestUnequalRequests(t *testing.T) {
	cells := []Cell{
		{Busy: .30, Workers: 4, Service: Unequal, Freezes: Independent, Replicas: 3, Callers: 1},
		{Busy: .50, Workers: 4, Service: Unequal, Freezes: Independent, Replicas: 3, Callers: 3},
	}
	if testing.Short() {
		cells = cells[:1]
	}
	for _, c := range cells {
		one, classes := withClasses(t, c)
		if 2*classes.SmallQuantile(.999) > one.SmallQuantile(.999) || classes.Extra() > one.Extra() {
			t.Errorf("too little is gained: %v", c)
		}
	}
}

// TestUnequalSpare: where a quarter of the requests are short, the lower quartile of all latencies
// is by chance one of theirs or not. Scaled by class it shows spare capacity, so that hedges find it.
func TestUnequalSpare(t *testing.T) {
	c := Cell{Busy: .30, Workers: 16, Service: MostLarge, Freezes: Independent, Replicas: 3, Callers: 3}
	one, classes := withClasses(t, c)
	if 2*classes.SmallQuantile(.999) > one.SmallQuantile(.999) {
		t.Errorf("too little is gained: %v", c)
	}
}

// TestUnequalRare: a hundredth of the requests makes half of the load. Hedging each of them, which
// is late by the estimate of all, overloads the replicas. By class few are late.
func TestUnequalRare(t *testing.T) {
	c := Cell{Busy: .60, Workers: 4, Service: RareLarge, Replicas: 3, Callers: 1}
	o := c
	o.OneClass = true
	off, one, classes := NewResult(), NewResult(), NewResult()
	n := Length{Requests: 100_000, WarmUp: 10 * time.Second} // until the classes are known
	for seed := range uint64(3) {
		off.Add(Run(c, Off, n, seed))
		one.Add(Run(o, On, n, seed))
		classes.Add(Run(c, On, n, seed))
	}
	t.Logf("P99.9 of short requests: %v without hedges, %v with one class, %v with classes",
		off.SmallQuantile(.999), one.SmallQuantile(.999), classes.SmallQuantile(.999))
	if float64(classes.SmallQuantile(.999)) > harm*float64(off.SmallQuantile(.999)) {
		t.Errorf("harm: %v", c)
	}
}

// TestEqualSizes: where the size of the body makes no difference, classes make none.
func TestEqualSizes(t *testing.T) {
	c := Cell{Busy: .30, Workers: 4, Service: Lognormal05, Freezes: Independent, Replicas: 3, Callers: 3, AnySize: true}
	one, classes := withClasses(t, c)
	if float64(classes.Quantile(.999)) > 1.1*float64(one.Quantile(.999)) || classes.Extra() > 1.1*one.Extra() {
		t.Errorf("classes harm: %v", c)
	}
}

// withClasses runs a case with one estimate for all requests, and with one for each class.
func withClasses(t *testing.T, c Cell) (one, classes *Result) {
	t.Helper()
	o := c
	o.OneClass = true
	var of [2]*Result
	rows([]Cell{o, c}, plan{seeds: *seeds, requests: *requests}, func(i int, r *row) { of[i] = r.ways[On] }, On)
	one, classes = of[0], of[1]
	t.Logf("%v: P99.9 of short requests %v without classes, %v with; hedges %.2f%%, %.2f%%", c,
		one.SmallQuantile(.999), classes.SmallQuantile(.999), 100*one.Extra(), 100*classes.Extra())
	return one, classes
}
