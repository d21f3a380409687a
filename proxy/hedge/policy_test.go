package hedge

import (
	"testing"
	"time"
)

// defaultPolicy returns the policy of a service without settings for hedging: it is off,
// and all else has the documented defaults.
func defaultPolicy() Policy {
	return Policy{MinDelay: time.Millisecond, MaxDelay: 50 * time.Millisecond, Budget: 0.05, Max: 1}
}

// Metrics and dashboards depend on these names.
func TestNames(t *testing.T) {
	for g, want := range map[Gate]string{
		Open: "open", NotIdempotent: "not_idempotent", Cascade: "cascade", NoEndpoint: "no_endpoint",
		Deadline: "deadline", Budget: "budget", Concurrency: "concurrency", Correlated: "correlated",
		Periodic: "periodic", Useless: "useless", Gate(Gates): "unknown",
	} {
		if g.String() != want {
			t.Errorf("gate %d is called %q, want %q", g, g, want)
		}
	}
	transient := 0
	for g := range Gates {
		if Gate(g).Transient() {
			transient |= 1 << g
		}
	}
	if want := 1<<NoEndpoint | 1<<Budget | 1<<Concurrency | 1<<Correlated | 1<<Periodic | 1<<Useless; transient != want {
		t.Errorf("transient gates %b, want %b", transient, want)
	}
	for m, want := range map[Mode]string{Off: "off", Shadow: "shadow", On: "on", 9: "unknown"} {
		if m.String() != want {
			t.Errorf("mode %d is called %q, want %q", m, m, want)
		}
	}
}
