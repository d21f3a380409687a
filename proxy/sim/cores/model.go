package cores

import "time"

// Costs are what a core was measured to take.
type Costs struct {
	Request time.Duration // CPU of a request in one sidecar, but for Batch
	Batch   time.Duration // CPU of a write to a link and of the read of its responses
	Post    time.Duration // of giving a function to another loop: half of what BenchmarkOtherLoop takes beyond BenchmarkOneLoop
	Move    time.Duration // of a connection to another loop: what BenchmarkMove takes beyond BenchmarkOneLoop
	Turn    time.Duration // for which one loop may give connections away, in turn: moveTurn of proxy/reactor

	// Change is how long a core has a counter that another core has changed last: BenchmarkChange. Cores of one die
	// take less than those of two dies or sockets.
	Change time.Duration
}

// Work is what a sidecar has to do.
type Work struct {
	Ready     int // requests that come in one turn of a loop
	Endpoints int // each loop has a link to each
	Changes   int // of the counters of one service, by one request; they share a line of the cache
}

// Figures are those of one sidecar whose loops are all busy.
type Figures struct {
	Rate    float64       // requests per second
	CPU     time.Duration // per request, the wait for counters included
	Waiting float64       // share of CPU that is this wait
	Links   int
	Turn    time.Duration // from one decision of a loop about its connections to the next
}

// request is the CPU of a request that waits for no counter.
func (c Costs) request(w Work) time.Duration {
	share := min(1, float64(w.Endpoints)/float64(w.Ready)) // of a write
	return c.Request + time.Duration(share*float64(c.Batch))
}

// counters is how long the counters of a request take if no core waits.
func (c Costs) counters(w Work) time.Duration { return time.Duration(w.Changes) * c.Change }

// At returns the figures with so many loops, one on each core. The line of the counters serves one core at a time. So a loop
// that needs the line waits for those that came before it: mean value analysis of a closed queue, which holds exactly for
// random times (Reiser and Lavenberg, 1980).
func (c Costs) At(loops int, w Work) Figures {
	own, line := c.request(w).Seconds(), c.counters(w).Seconds()
	rate, queue, at := 0.0, 0.0, 0.0
	for n := 1; n <= loops; n++ {
		at = line * (1 + queue)
		rate = float64(n) / (own + at)
		queue = rate * at
	}
	return Figures{
		Rate: rate, CPU: seconds(own + at), Waiting: (at - line) / (own + at),
		Links: loops * w.Endpoints, Turn: time.Duration(loops) * c.Turn,
	}
}

// Knee is the number of loops at which the line of the counters would be busy all the time if no loop waited. Beyond it
// more loops bring no more requests, and from half of it on each brings clearly less.
func (c Costs) Knee(w Work) float64 {
	line := c.counters(w)
	return float64(c.request(w)+line) / float64(line)
}

// SharedLinks returns the CPU of a request if one loop had the links of all, and the others gave it their messages. Each
// message then takes two posts, and the writes are shared by the requests of all loops.
func (c Costs) SharedLinks(loops int, w Work) time.Duration {
	w.Ready *= loops
	return c.request(w) + 2*c.Post
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
