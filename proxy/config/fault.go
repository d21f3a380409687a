package config

import "time"

// Fault injects faults into the requests of a route, to try out what callers do then. The shares
// are drawn for each request, one by one.
type Fault struct {
	// Time that a request waits before it is sent, below `timeout`, which includes it. 0 means none.
	Delay time.Duration `yaml:"delay"`
	// Share of the requests that wait.
	DelayShare float64 `yaml:"delay_share" in:"[0,1]"`
	// Status of requests that are not sent, 400 to 599: `fault-injected`. 0 means none.
	Abort int `yaml:"abort" max:"599"`
	// Share of the requests that are not sent.
	AbortShare float64 `yaml:"abort_share" in:"[0,1]"`
}

func init() { declareFilter("fault", new(Fault)) }

// Fault returns the settings of the filter that injects faults.
func (r *Route) Fault() *Fault { return block[Fault](r.Blocks) }

// setDefaults turns faults off. A file that sets one injects it into all requests.
func (f *Fault) setDefaults() { f.DelayShare, f.AbortShare = 1, 1 }

// Enabled reports whether f injects anything.
func (f *Fault) Enabled() bool {
	return f.Delay > 0 && f.DelayShare > 0 || f.Abort > 0 && f.AbortShare > 0
}

func (f *Fault) given() bool { return *f != withDefaults[Fault]() }

func (f *Fault) sendsTo() string { return "" }

// check reports statuses that are no errors, shares of nothing, and delays that only end in a
// deadline.
func (f *Fault) check(in scope, at path) {
	in.refuseIf(f.Abort > 0 && f.Abort < 400, at.key("abort"), "expected a status from 400 to 599, got %d", f.Abort)
	in.refuseIf(f.Delay == 0 && f.DelayShare != 1, at.key("delay"), "missing; delay_share alone delays nothing")
	in.refuseIf(f.Abort == 0 && f.AbortShare != 1, at.key("abort"), "missing; abort_share alone aborts nothing")
	for _, p := range in.route.policies() {
		if f.Delay >= p.Timeout {
			in.report(at.key("delay"), "%s is not less than the timeout of %s: expected abort: 504 to try out timeouts", f.Delay, p.Timeout)
			return
		}
	}
}
