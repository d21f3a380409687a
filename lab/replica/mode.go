package replica

import "fmt"

// Mode is what disturbs a replica.
type Mode string

const (
	Fast       Mode = "fast"       // nothing: it answers at once, for benches
	Stall      Mode = "stall"      // it freezes at moments of its own
	GC         Mode = "gc"         // it drops and refills a cache full of pointers
	Correlated Mode = "correlated" // all replicas freeze at the same moments
)

// Modes lists all modes, for help texts.
var Modes = []Mode{Fast, Stall, GC, Correlated}

// ParseMode checks that s names a Mode.
func ParseMode(s string) (Mode, error) {
	for _, m := range Modes {
		if s == string(m) {
			return m, nil
		}
	}
	return "", fmt.Errorf("unknown mode %q: want one of %v", s, Modes)
}
