package config

import (
	"strconv"
	"strings"
	"time"
)

// Hedge says when a second attempt runs beside a slow one.
type Hedge struct {
	// `shadow` only forecasts what hedging would do.
	Mode string `yaml:"mode" oneof:"off shadow on"`
	// Delay of the hedge: `auto` is [the best one](hedging.md#the-delay), `p97` a percentile of latency, `5ms` a time.
	Delay string `yaml:"delay"`
	// What tells the [class](hedging.md#classes) of a request: `size`, the name of a header, or `none`.
	Class string `yaml:"class"`
	// Lowest delay but for a time.
	MinDelay time.Duration `yaml:"min_delay"`
	// Highest delay but for a time, and the delay while samples are few.
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
		Mode: HedgeShadow, Delay: DelayAuto, Class: ClassSize, MinDelay: time.Millisecond, MaxDelay: 50 * time.Millisecond,
		Budget: 0.05, Max: 1, Sample: 0.03,
	}
}

// Hedge modes.
const (
	HedgeOff    = "off"    // never hedge
	HedgeShadow = "shadow" // send nothing, report what hedging would do
	HedgeOn     = "on"     // hedge
)

// DelayAuto is the value of Hedge.Delay for the best delay.
const DelayAuto = "auto"

// ParseDelay reads Hedge.Delay: a time or a quantile of latency. Both are 0 for the best delay.
func (h *Hedge) ParseDelay() (fixed time.Duration, quantile float64, ok bool) {
	if h.Delay == DelayAuto {
		return 0, 0, true
	}
	if percentile, found := strings.CutPrefix(h.Delay, "p"); found {
		x, err := strconv.ParseFloat(percentile, 64)
		return 0, x / 100, err == nil && x > 0 && x < 100
	}
	fixed, err := time.ParseDuration(h.Delay)
	return fixed, 0, err == nil && fixed > 0 && fixed < 365*24*time.Hour
}

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
	delay, quantile, ok := h.ParseDelay()
	in.refuseIf(!ok, at.key("delay"), "expected auto, a percentile such as p97 or a time such as 5ms, got %q", h.Delay)
	if h.Mode != HedgeOn {
		return
	}
	in.refuseIf(delay >= timeout, at.key("delay"),
		"%s is not less than the timeout of %s, so no hedge would ever be sent", delay, timeout)
	// Some slack for values that binary fractions can't represent, such as 1-0.9.
	const slack = 1e-9
	if share := 1 - quantile; quantile > 0 && share >= h.Budget-slack {
		in.report(at.key("delay"),
			"leaves no room under the budget: after %s, %.3g of all requests would hedge, and the budget is %g;"+
				" expected a percentile above p%.4g, or auto", h.Delay, share, h.Budget, 100*(1-h.Budget))
	}
}
