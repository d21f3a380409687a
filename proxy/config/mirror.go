package config

// Mirror sends copies of a route's HTTP requests to a second service. Nobody waits for them, and
// their responses are discarded.
type Mirror struct {
	// Name of the service that gets the copies. Empty means none.
	Service string `yaml:"service"`
	// Share of the requests that are copied.
	Share float64 `yaml:"share" in:"[0,1]"`
}

func init() { declareFilter("mirror", new(Mirror)) }

// Mirror returns the settings of the filter that copies requests.
func (r *Route) Mirror() *Mirror { return block[Mirror](r.Blocks) }

// setDefaults turns copies off. A file that sets a service copies all requests.
func (m *Mirror) setDefaults() { m.Share = 1 }

// Enabled reports whether anything is copied.
func (m *Mirror) Enabled() bool { return m.Service != "" && m.Share > 0 }

func (m *Mirror) given() bool { return *m != withDefaults[Mirror]() }

func (m *Mirror) sendsTo() string { return m.Service }

// check reports services that can't take copies, and routes without HTTP requests.
func (m *Mirror) check(in scope, at path) {
	name := m.Service
	shown := at.key("service")
	if name == "" {
		in.refuseIf(m.Share != 1, shown, "missing; a share alone copies nothing")
		return
	}
	in.refuseIf(in.config.routeProtocol(&in.route.Match) == ProtocolDubbo, at, "calls of Dubbo are not copied")
	checkCopies(in, shown, name, ProtocolHTTP)
}

// checkCopies reports a service that can't take copies of requests of a protocol.
func checkCopies(in scope, at path, name, protocol string) {
	in.reference(at, name)
	switch s := in.config.Services[name]; {
	case s == nil:
	case s.Protocol != protocol && s.Protocol != ProtocolLink && !(protocol == ProtocolHTTP && s.SpeaksHTTP()):
		in.report(at, "service %s speaks %s; expected one with protocol: %s or %s", name, s.Protocol, ProtocolLink, protocol)
	case s.Allow.Given():
		in.report(at, "service %s has allow rules, which are for callers: a copy has none", name)
	}
}
