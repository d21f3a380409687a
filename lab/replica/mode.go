package replica

import (
	"fmt"
	"time"
)

// Mode says what disturbs a replica.
type Mode string

const (
	Fast       Mode = "fast"       // nothing: it responds at once, for benches
	Stall      Mode = "stall"      // it freezes at its own moments
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

// Protocol is the protocol of a replica.
type Protocol string

const (
	HTTP  Protocol = "http"  // HTTP/1.1
	Dubbo Protocol = "dubbo" // Dubbo 2
)

// Protocols lists all protocols, for help texts.
var Protocols = []Protocol{HTTP, Dubbo}

// ParseProtocol checks that s names a Protocol.
func ParseProtocol(s string) (Protocol, error) {
	for _, p := range Protocols {
		if s == string(p) {
			return p, nil
		}
	}
	return "", fmt.Errorf("unknown protocol %q: want one of %v", s, Protocols)
}

// median is the default service time of p.
func (p Protocol) median() time.Duration {
	if p == Dubbo {
		return 50 * time.Millisecond
	}
	return time.Millisecond
}
