package hedge

import "time"

// Mode tells what hedging does for a route.
type Mode uint8

// The modes, as written in the configuration.
const (
	Off    Mode = iota // never hedge
	Shadow             // send nothing, report what hedging would do
	On                 // hedge
)

// String returns the mode as the configuration writes it.
func (m Mode) String() string {
	switch m {
	case Off:
		return "off"
	case Shadow:
		return "shadow"
	case On:
		return "on"
	}
	return "unknown"
}

// Defaults of Policy; the configuration has the same.
const (
	DefaultQuantile = 0.97
	DefaultMinDelay = time.Millisecond
	DefaultMaxDelay = 50 * time.Millisecond
	DefaultBudget   = 0.05
	DefaultMax      = 1
)

// Policy is a route's hedging as configured. It does not change while in use; a
// new configuration brings a new Policy.
type Policy struct {
	Mode Mode

	// Delay is how long an attempt is out before the next hedge. 0 is "auto":
	// the Quantile of the latency of primaries, within [MinDelay, MaxDelay].
	Delay time.Duration

	// Quantile for auto, in (0, 1). 1-Quantile must be well under Budget.
	Quantile float64

	// MinDelay and MaxDelay clamp auto. MaxDelay also stands in while too few
	// requests have been seen.
	MinDelay, MaxDelay time.Duration

	// Budget is the number of hedges and paid retries per primary.
	Budget float64

	// Max is the number of hedges one request may have.
	Max int
}

// DefaultPolicy is the policy of a service that says nothing: hedging off, and
// the documented defaults for everything else.
func DefaultPolicy() Policy {
	return Policy{
		Mode:     Off,
		Quantile: DefaultQuantile,
		MinDelay: DefaultMinDelay,
		MaxDelay: DefaultMaxDelay,
		Budget:   DefaultBudget,
		Max:      DefaultMax,
	}
}

// Gate is the outcome of a decision to hedge: Open, or what stopped it. It is
// small and dense, fit to index an array of counters.
type Gate uint8

// The gates.
const (
	Open          Gate = iota // sent
	NotIdempotent             // the request must not reach two replicas
	Cascade                   // the request is itself a hedge or retry
	NoEndpoint                // no other endpoint is free to take it
	Deadline                  // the time left can't cover a median answer
	Budget                    // no token
	Concurrency               // too many hedges in flight
	Correlated                // most endpoints are stalled: hedging can't help
	Useless                   // hedges have hardly won lately

	// Gates is the number of gates, Open included.
	Gates = int(Useless) + 1
)

// Transient tells whether a closed gate may be open for the same request one
// delay later, so that the hedge timer is worth arming again: another endpoint
// may have recovered, a token come in, the one that has the request fallen silent.
// Asked only once, a request that found the other replicas busy for a moment sits
// out a whole freeze: of the emulated replicas' requests the slowest then takes
// 42 ms instead of 8, at the same load.
func (g Gate) Transient() bool {
	switch g {
	case NoEndpoint, Budget, Concurrency, Correlated, Useless:
		return true
	}
	return false
}

var gateNames = [Gates]string{
	"open", "not_idempotent", "cascade", "no_endpoint", "deadline",
	"budget", "concurrency", "correlated", "useless",
}

// String returns the gate's stable name, as metrics carry it.
func (g Gate) String() string {
	if int(g) < Gates {
		return gateNames[g]
	}
	return "unknown"
}
