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

// Enabled reports whether f injects anything.
func (f *Fault) Enabled() bool {
	return f.Delay > 0 && f.DelayShare > 0 || f.Abort > 0 && f.AbortShare > 0
}

// Mirror sends copies of a route's HTTP requests to a second service. Nobody waits for them, and
// their responses are discarded.
type Mirror struct {
	// Name of the service that gets the copies. Empty means none.
	Service string `yaml:"service"`
	// Share of the requests that are copied.
	Share float64 `yaml:"share" in:"[0,1]"`
}

// Enabled reports whether anything is copied.
func (m *Mirror) Enabled() bool { return m.Service != "" && m.Share > 0 }

// defaultMirror returns a mirror that is off. A file that sets one copies all requests.
func defaultMirror() Mirror { return Mirror{Share: 1} }

// defaultFault returns faults that are off. A file that sets one injects it into all requests.
func defaultFault() Fault { return Fault{DelayShare: 1, AbortShare: 1} }

// policies returns the policy of the route, or those of its shares.
func (r *Route) policies() []*Policy {
	if len(r.Split) == 0 {
		return []*Policy{&r.Policy}
	}
	all := make([]*Policy, len(r.Split))
	for i := range r.Split {
		all[i] = &r.Split[i].Policy
	}
	return all
}
