package config

import (
	"strings"
	"time"
)

// Hedge says when a second attempt runs beside a slow one.
type Hedge struct {
	// `shadow` only forecasts what hedging would do.
	Mode string `yaml:"mode" oneof:"off shadow on"`
	// Delay of the hedge, below `timeout`. `auto` or 0 means the `quantile` of latency.
	Delay time.Duration `yaml:"delay" auto:"0"`
	// For `auto`. 1 − quantile must be below `budget`.
	Quantile float64 `yaml:"quantile" in:"(0,1)"`
	// What tells the [class](hedging.md#classes) of a request: `size`, the name of a header, or `none`.
	Class string `yaml:"class"`
	// Lowest `auto` delay.
	MinDelay time.Duration `yaml:"min_delay"`
	// Highest `auto` delay, and the delay while samples are few.
	MaxDelay time.Duration `yaml:"max_delay"`
	// Hedges and paid retries per request. Without a token none is sent: gate `budget`.
	Budget float64 `yaml:"budget" in:"(0,1]"`
	// Hedges per request. Hedges and retries together are at most 5.
	Max int `yaml:"max" min:"1" max:"8"`
	// Share of the requests of which `shadow` makes its forecast.
	Sample float64 `yaml:"sample" in:"(0,1]"`
}

func (h *Hedge) setDefaults() {
	*h = Hedge{
		Mode: HedgeShadow, Class: ClassSize, Quantile: 0.97, MinDelay: time.Millisecond, MaxDelay: 50 * time.Millisecond,
		Budget: 0.05, Max: 1, Sample: 0.03,
	}
}

// Hedge modes.
const (
	HedgeOff    = "off"    // never hedge
	HedgeShadow = "shadow" // send nothing, report what hedging would do
	HedgeOn     = "on"     // hedge
)

// Values of Hedge.Class; any other is the name of a header.
const (
	ClassSize = "size" // by the size of the body
	ClassNone = "none" // one for all
)

// check checks the delays. It checks the timeout and the budget only if hedging is on: shadow
// mode, the default, forecasts whatever is configured.
func (h *Hedge) check(in scope, at path, timeout time.Duration) {
	in.refuseIf(h.MinDelay > h.MaxDelay,
		at.key("min_delay"), "%s is more than max_delay, %s", h.MinDelay, h.MaxDelay)
	in.refuseIf(!isHeaderName(h.Class) || strings.HasPrefix(strings.ToLower(h.Class), "x-remora-"),
		at.key("class"), "expected size, none or the name of a header, got %q", h.Class)
	if h.Mode != HedgeOn {
		return
	}
	in.refuseIf(h.Delay >= timeout, at.key("delay"),
		"%s is not less than the timeout of %s, so no hedge would ever be sent", h.Delay, timeout)
	// Some slack for values that binary fractions can't represent, such as 1-0.9.
	const slack = 1e-9
	if share := 1 - h.Quantile; h.Delay == 0 && share >= h.Budget-slack {
		in.report(at.key("quantile"),
			"leaves no room under the budget: past the %g-quantile, %.3g of all requests would hedge, and the budget is %g;"+
				" expected a quantile above %.4g", h.Quantile, share, h.Budget, 1-h.Budget)
	}
}
