package queues

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Cell is one case: a service, its load and its callers.
type Cell struct {
	Busy     float64 // mean share of the workers that work, without hedges and freezes
	Workers  int     // requests that a replica serves at once; 0 means no limit
	Service  Service
	Freezes  Freezes
	Replicas int
	Callers  int // consumers, each with its own view

	// Queued means that the replica's sidecar knows the workers (max_concurrency) and queues.
	Queued bool
	// AnySize means that bodies have any size, which makes no difference to the service.
	AnySize bool
	// OneClass means that one estimate is made for all requests, large or small.
	OneClass bool
	// Budget is that of Policy, unless it is 0.
	Budget float64
	// Quantile is that of the delay; 0 means the best delay.
	Quantile float64
	// Direct means that there is no sidecar beside the replica: nothing is reported or refused.
	Direct bool
}

func (c Cell) String() string {
	return fmt.Sprintf("busy %.0f%% workers %d %v, freezes %v, %d replicas, %d callers",
		100*c.Busy, c.Workers, c.Service, c.Freezes, c.Replicas, c.Callers)
}

// unlimited is the number of workers whose rate a replica without a limit gets.
const unlimited = 16

func (c *Cell) rate() float64 {
	workers := c.Workers
	if workers == 0 {
		workers = unlimited
	}
	return c.Busy * float64(workers*c.Replicas) / c.Service.mean().Seconds()
}

// Service is a distribution of service times, with a median of about a millisecond.
type Service uint8

// The distributions.
const (
	Exponential Service = iota
	Lognormal05         // sigma 0.5
	Lognormal10         // sigma 1
	Bimodal             // lognormal, sigma 0.5; a tenth takes 10 ms more
	Services    = int(Bimodal) + 1

	// Unequal are requests of two sizes: a tenth is large, and takes 20 times as long.
	Unequal = Bimodal + 1
	// MostLarge are two sizes, of which only a quarter is small.
	MostLarge = Unequal + 1
	// RareLarge are two sizes, of which a hundredth is large and takes 100 times as long.
	RareLarge = MostLarge + 1

	// Stragglers are lognormal with a median of 4.6 ms; a twentieth takes 45 ms more, by chance.
	Stragglers = RareLarge + 1
	// FewStragglers are the same, but only a fiftieth takes 45 ms more.
	FewStragglers = Stragglers + 1
)

func (s Service) String() string {
	return [...]string{"exponential", "lognormal 0.5", "lognormal 1.0", "bimodal", "unequal", "most large", "rare large", "stragglers", "few stragglers"}[s]
}

const median = time.Millisecond

// Body sizes of requests, in bytes.
const (
	small = 200
	large = 20_000
)

// largeShare is the share of large requests.
func (s Service) largeShare() float64 {
	switch s {
	case Unequal:
		return 0.1
	case MostLarge:
		return 0.75
	case RareLarge:
		return 0.01
	}
	return 0
}

// stragglers is the share of stragglers.
func (s Service) stragglers() float64 {
	switch s {
	case Stragglers:
		return 0.05
	case FewStragglers:
		return 0.02
	}
	return 0
}

// largeTakes is how much longer a large request takes.
func (s Service) largeTakes() float64 {
	if s == RareLarge {
		return 100
	}
	return 20
}

// draw returns how long a request takes that has a body of this size.
func (s Service) draw(r *rand.Rand, size int) time.Duration {
	x := 0.0
	switch s {
	case Exponential:
		x = r.ExpFloat64()
	case Lognormal05:
		x = math.Exp(r.NormFloat64() * 0.5)
	case Lognormal10:
		x = math.Exp(r.NormFloat64())
	case Bimodal:
		x = math.Exp(r.NormFloat64() * 0.5)
		if r.Float64() < 0.1 {
			x += 10
		}
	case Stragglers, FewStragglers:
		x = 4.6 * math.Exp(r.NormFloat64()*0.5)
		if r.Float64() < s.stragglers() {
			x += 45
		}
	case Unequal, MostLarge, RareLarge:
		x = math.Exp(r.NormFloat64() * 0.3)
		if size == large {
			x *= s.largeTakes()
		}
	}
	return time.Duration(x * float64(median))
}

func (s Service) mean() time.Duration {
	unequal := math.Exp(0.045) * (1 + s.largeShare()*(s.largeTakes()-1))
	x := [...]float64{1, math.Exp(0.125), math.Exp(0.5), math.Exp(0.125) + 1, unequal, unequal, unequal, 4.6*math.Exp(0.125) + 45*s.stragglers(), 4.6*math.Exp(0.125) + 45*s.stragglers()}[s]
	return time.Duration(x * float64(median))
}

// Freezes says when replicas stop all their work.
type Freezes uint8

// The kinds of freezes. In each a replica stands still for 2.5% of the time.
const (
	None        Freezes = iota
	Independent         // 50 ms every 2 s, each replica by itself
	Together            // 50 ms every 2 s, all replicas at once
	ManyShort           // 5 ms every 200 ms, each replica by itself
	FreezeKinds = int(ManyShort) + 1
)

func (f Freezes) String() string {
	return [...]string{"none", "independent", "together", "many short"}[f]
}

func (f Freezes) length() time.Duration {
	if f == ManyShort {
		return 5 * time.Millisecond
	}
	return 50 * time.Millisecond
}

// starts draws when the freezes of a replica begin.
func (f Freezes) starts(r *rand.Rand, until time.Duration) (at []time.Duration) {
	if f == None {
		return nil
	}
	every := 39 * f.length() // between the end of one and the start of the next
	for t := time.Duration(0); ; t += f.length() {
		if t += time.Duration(r.ExpFloat64() * float64(every)); t > until {
			return at
		}
		at = append(at, t)
	}
}
