package config

import "time"

// Breaker stops the calls of a service that only fails. The zero Consecutive is
// off.
type Breaker struct {
	// Failed requests in a row that open the breaker: 503 `breaker-open`. 0 means never.
	Consecutive int `yaml:"consecutive" max:"1000000000"`
	// Time until the first probe.
	Open time.Duration `yaml:"open" min:"1ms"`
	// Probes at a time.
	HalfOpen int `yaml:"half_open" min:"1" max:"65535"`
}

func (b *Breaker) setDefaults() { b.Open, b.HalfOpen = 5*time.Second, 1 }
