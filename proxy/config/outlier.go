package config

import "time"

// Outlier ejects endpoints that do worse than they should.
type Outlier struct {
	// Failures in a row that eject an endpoint. 0 means off.
	Consecutive int `yaml:"consecutive" max:"1000000000"`
	// An endpoint that serves a smaller share of its attempts is ejected. 0 means off.
	SuccessRate float64 `yaml:"success_rate" in:"[0,1]"`
	// An endpoint slower than this many medians of the others is ejected. 0 means off; 1 is refused.
	Latency int `yaml:"latency" max:"1000"`
	// Length of the first ejection. Later ones last up to 64 times as long.
	Base time.Duration `yaml:"base" min:"1ms" max:"1h"`
	// Share of endpoints that may be ejected, rounded down. 0 means none.
	MaxEjected float64 `yaml:"max_ejected" in:"[0,1]"`
}

func (o *Outlier) setDefaults() {
	*o = Outlier{Consecutive: 5, SuccessRate: 0.5, Base: time.Second, MaxEjected: 0.5}
}

// check refuses a bound that half of the endpoints exceed.
func (o *Outlier) check(in scope, at path) {
	in.refuseIf(o.Latency == 1, at.key("latency"),
		"1 would eject endpoints for being slower than half of them; expected 0 or at least 2")
}
