package mesh

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Expect is one expectation: the relation of a measure to a value, or to a multiple of
// the same measure in the run that the scenario compares with.
type Expect struct {
	Line     int // of the script
	Measure  string
	From, To time.Duration // of sending the requests that count; 0, 0 means all
	Relation string        // < <= > >= ==
	Value    float64       // in the measure's unit
	OfVersus bool          // Value is the factor of a multiple
}

// unit is the form of the values of a measure in a script.
type unit uint8

const (
	plain unit = iota
	timed
	percent
)

// measure is a figure of a run that an expectation may name.
type measure struct {
	unit unit
	of   func(r *Result, requests []Request) float64
}

func latency(q float64) measure {
	return measure{timed, func(_ *Result, requests []Request) float64 { return float64(quantile(Latencies(requests), q)) }}
}

func counter(of func(r *Result) uint64) measure {
	return measure{plain, func(r *Result, _ []Request) float64 { return float64(of(r)) }}
}

var measures = map[string]measure{
	"p50": latency(.5), "p90": latency(.9), "p95": latency(.95), "p99": latency(.99), "p99.9": latency(.999),
	"p99.99": latency(.9999), "max": latency(1),
	"requests": {plain, func(_ *Result, requests []Request) float64 { return float64(len(requests)) }},
	"failed":   {plain, func(_ *Result, requests []Request) float64 { return float64(len(requests) - len(Latencies(requests))) }},
	"goodput": {percent, func(_ *Result, requests []Request) float64 {
		return float64(len(Latencies(requests))) / float64(max(1, len(requests)))
	}},
	"batch": {plain, func(r *Result, _ []Request) float64 {
		return float64(len(Latencies(r.Batch))) / (r.Spec.Duration - r.Spec.WarmUp).Seconds()
	}},
	"answered":   {plain, func(_ *Result, requests []Request) float64 { return float64(len(Latencies(requests))) }},
	"extra_load": {percent, func(r *Result, _ []Request) float64 { return r.ExtraLoad() }},
	"work":       {timed, func(r *Result, _ []Request) float64 { return float64(r.Worked) / float64(max(1, r.Reached)) }},
	"hedges":     counter(func(r *Result) uint64 { return r.Hedges }),
	"won":        counter(func(r *Result) uint64 { return r.HedgesWon }),
	"retries":    counter(func(r *Result) uint64 { return r.Retries }),
	"ejections":  counter(func(r *Result) uint64 { return r.Ejections }),
	"probes":     counter(func(r *Result) uint64 { return r.Probes }),
	"busiest":    {plain, func(r *Result, _ []Request) float64 { return r.Busiest }},
	"crowded":    {timed, func(r *Result, _ []Request) float64 { return float64(r.Crowded) }},
	"links":      counter(func(r *Result) uint64 { return uint64(r.Links) }),
}

// gatePrefix begins the names of the measures that count the hedges stopped by a gate.
const gatePrefix = "gate."

func measureOf(name string) (measure, bool) {
	if gate, ok := strings.CutPrefix(name, gatePrefix); ok {
		return counter(func(r *Result) uint64 { return r.Gates[gate] }), slices.Contains(gateNames(), gate)
	}
	m, ok := measures[name]
	return m, ok
}

// readExpect reads the rest of a line after "expect":
//
//	MEASURE [from TIME to TIME] RELATION VALUE
//	MEASURE [from TIME to TIME] RELATION SHARE of versus
func readExpect(w *words, line int) Expect {
	e := Expect{Line: line, Measure: w.next("a measure")}
	m, ok := measureOf(e.Measure)
	if !ok {
		w.fail("unknown measure %q", e.Measure)
	}
	if w.has("from") {
		e.From = w.duration("the start of a period")
		w.skip("to")
		if e.To = w.duration("the end of a period"); e.To <= e.From {
			w.fail("the period ends before it begins")
		}
	}
	if e.Relation = w.next("a relation"); relations[e.Relation] == nil {
		w.fail("%q is no relation: < <= > >= ==", e.Relation)
	}
	e.OfVersus = len(w.left) == 3
	switch {
	case e.OfVersus:
		e.Value = w.share("a share")
		w.skip("of")
		w.skip("versus")
	case m.unit == timed:
		e.Value = float64(w.duration("the value"))
	case m.unit == percent:
		e.Value = w.share("the value")
	default:
		e.Value = w.number("the value")
	}
	return e
}

var relations = map[string]func(a, b float64) bool{
	"<":  func(a, b float64) bool { return a < b },
	"<=": func(a, b float64) bool { return a <= b },
	">":  func(a, b float64) bool { return a > b },
	">=": func(a, b float64) bool { return a >= b },
	"==": func(a, b float64) bool { return a == b },
}

// measured returns the value of the measure in r.
func (e *Expect) measured(r *Result) float64 {
	m, _ := measureOf(e.Measure)
	requests := r.Requests
	if e.To > 0 {
		requests = r.Between(e.From, e.To)
	}
	return m.of(r, requests)
}

// String returns the expectation as a script has it.
func (e *Expect) String() string {
	s := e.Measure
	if e.To > 0 {
		s += " from " + e.From.String() + " to " + e.To.String()
	}
	s += " " + e.Relation + " "
	if e.OfVersus {
		return s + share(e.Value) + " of versus"
	}
	return s + e.show(e.Value)
}

// show returns a value in the measure's unit.
func (e *Expect) show(x float64) string {
	switch m, _ := measureOf(e.Measure); m.unit {
	case timed:
		return time.Duration(x).Round(10 * time.Microsecond).String()
	case percent:
		return fmt.Sprintf("%.4g%%", 100*x)
	}
	return fmt.Sprintf("%.6g", x)
}

// Outcome is an expectation with the measured values.
type Outcome struct {
	Expect  Expect
	Got     float64
	Versus  float64 // value in the run that the scenario compares with
	Holds   bool
	Summary string // such as "p99 4.1ms (want < 6ms)"
}

// Play runs the Spec, and the one that it is compared with. The Result has the violations
// of both. The outcomes are those of all expectations.
func (sc *Scenario) Play(runs Runs) (*Result, []Outcome) {
	r, versus := Run(runs.Spec), (*Result)(nil)
	if runs.Versus != nil {
		versus = Run(*runs.Versus)
		r.Violations = append(r.Violations, versus.Violations...)
	}
	return r, sc.Judge(r, versus)
}

// Judge compares r with the expectations. versus is the result of the Spec that the scenario
// compares with; nil means that there is none.
func (sc *Scenario) Judge(r, versus *Result) []Outcome {
	var all []Outcome
	for _, e := range sc.Expects {
		o := Outcome{Expect: e, Got: e.measured(r)}
		bound := e.Value
		if e.OfVersus {
			o.Versus = e.measured(versus)
			bound *= o.Versus
		}
		o.Holds = relations[e.Relation](o.Got, bound)
		got := e.show(o.Got)
		if e.OfVersus {
			got += " against " + e.show(o.Versus)
		}
		o.Summary = fmt.Sprintf("%s: %s", e.String(), got)
		all = append(all, o)
	}
	return all
}
