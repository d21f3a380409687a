package hedge

import (
	"cmp"
	"time"
)

// Mode says what hedging does for a route.
type Mode uint8

const (
	Off    Mode = iota // never hedge
	Shadow             // send nothing, report what hedging would do
	On                 // hedge
)

// String returns the mode as the configuration writes it.
func (m Mode) String() string {
	if m <= On {
		return [...]string{"off", "shadow", "on"}[m]
	}
	return "unknown"
}

// Policy is a route's hedging as configured. It does not change: a reload brings a new Policy.
type Policy struct {
	Mode Mode

	// Delay is how long an attempt is in flight before the next hedge. 0 means the Quantile of the latency of
	// primaries, in (0, 1), within [MinDelay, MaxDelay]; 1-Quantile must be well under Budget. A Quantile of 0 means
	// "auto": the best delay within [MinDelay, MaxDelay], see package choice.
	Delay    time.Duration
	Quantile float64

	// MinDelay and MaxDelay bound the automatic delay. With too few samples it is MaxDelay.
	MinDelay, MaxDelay time.Duration

	Budget float64 // hedges and paid retries per primary
	Max    int     // hedges of one request

	OneClass bool // the automatic delay is the same for all requests; see package class

	Sample float64 // share of the requests that mode Shadow watches; 0 means all
}

// auto reports whether the delay is the best one.
func (p *Policy) auto() bool { return p.Delay == 0 && p.Quantile == 0 }

// usualQuantile is beyond what is usual: an endpoint that is silent for longer may stall. It is the delay as long as
// the best one is not known. TestConstants shows what happens at twice and at half of the share beyond it.
var usualQuantile = .97

func (p *Policy) quantile() float64 { return cmp.Or(p.Quantile, usualQuantile) }

// clamp returns the automatic delay for a quantile; 0 means that it is unknown.
func (p *Policy) clamp(quantile time.Duration) time.Duration {
	if quantile == 0 {
		return p.MaxDelay
	}
	return min(max(quantile, p.MinDelay), p.MaxDelay)
}

// Gate is the result of a decision to hedge: Open, or the gate that was closed.
// The values are dense, so that they can index an array of counters.
type Gate uint8

// The gates, in the order in which Decide asks them.
const (
	Open          Gate = iota // the hedge is sent
	NotIdempotent             // the request must not reach two replicas
	Cascade                   // the request is itself a hedge or retry
	Correlated                // most endpoints are silent: hedging can't help
	Periodic                  // most endpoints are about to be silent, as they are periodically
	NoEndpoint                // no other endpoint is free to take the hedge
	Deadline                  // the time left is shorter than the median latency
	Useless                   // hedges have saved little of late
	Budget                    // no token
	Concurrency               // too many hedges in flight

	// Gates is the number of gates, Open included.
	Gates = int(Concurrency) + 1
)

// Transient reports whether a closed gate may open for the same request one delay later, so
// that the hedge timer must be armed again: another endpoint may have recovered, a token may
// have been earned, or the request may be stuck by then. If requests asked only once, one that
// found the other replicas busy for a moment would wait for the end of a freeze: of the
// emulated replicas' requests the slowest would take 42 ms instead of 8, at the same load.
func (g Gate) Transient() bool {
	switch g {
	case NoEndpoint, Budget, Concurrency, Correlated, Periodic, Useless:
		return true
	}
	return false
}

var gateNames = [Gates]string{
	"open", "not_idempotent", "cascade", "correlated", "periodic", "no_endpoint",
	"deadline", "useless", "budget", "concurrency",
}

// String returns the gate's stable name, which metrics have as a label.
func (g Gate) String() string {
	if int(g) < Gates {
		return gateNames[g]
	}
	return "unknown"
}
