package config

import "strings"

// Register announces a listener of this sidecar as an endpoint of a service.
type Register struct {
	// Required. Name under which others find it in etcd.
	Service string `yaml:"service"`
	// Required. Name of the listener.
	Listener string `yaml:"listener"`
	// Required. `host:port` at which others reach the listener.
	Advertise string `yaml:"advertise"`
	// As of an endpoint.
	Weight int   `yaml:"weight" min:"1" max:"65535"`
	Check  Check `yaml:"check" without:"on_down"` // of the application behind the listener
}

func (v *validator) register(i int, r *Register) {
	c, at := v.config, path("register").item(i)
	v.refuseIf(r.Service == "" || strings.ContainsAny(r.Service, "/ \t\n"), at.key("service"),
		"expected the name under which others find the service, got %q", r.Service)
	var listener *Listener
	var names []string
	for j := range c.Listeners {
		names = append(names, c.Listeners[j].Name)
		if c.Listeners[j].Name == r.Listener {
			listener = &c.Listeners[j]
		}
	}
	if listener == nil {
		v.report(at.key("listener"), "there is no listener %q%s", r.Listener, knownNames(r.Listener, names))
	}
	v.address(at.key("advertise"), r.Advertise, dialable)
	v.refuseIf(len(c.Registry.Etcd.Endpoints) == 0,
		at, "there is nowhere to register: registry.etcd.endpoints is empty")
	for j, earlier := range c.Register[:i] {
		if earlier.Service == r.Service && earlier.Advertise == r.Advertise {
			v.report(at, "register[%d] registers the same", j)
			break
		}
	}
	v.registerCheck(at.key("check"), &r.Check, listener)
}

// registerCheck checks the check of the application behind a listener. l is nil if
// there is no such listener.
func (v *validator) registerCheck(at path, c *Check, l *Listener) {
	v.check(at, c)
	if !c.Enabled() || l == nil {
		return
	}
	s := v.config.Services[l.Service]
	switch {
	case l.Service == "":
		v.report(at, "listener %q has no service, so there is nothing to check", l.Name)
	case s != nil && s.TLS.ByHost() && !c.Beside() && (c.HTTP != "" || c.GRPC != ""):
		v.report(at, "contradicts tls.sni: host of service %s: a check is no request, and has no Host; expected tcp: true", s.Name)
	case s != nil && s.Discover != DiscoverStatic:
		v.report(at, "service %s has no static endpoints, so there is nothing to check", s.Name)
	}
}
