package config

import (
	"slices"
	"strings"

	"github.com/remora-proxy/remora/internal/srvname"
	"github.com/remora-proxy/remora/internal/unixaddr"
)

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

func (r *Register) setDefaults() { r.Weight = 1 }

func checkRegister(in scope) {
	all := in.config.Register
	for i := range all {
		at := path("register").item(i)
		all[i].check(in, at)
		same := func(r Register) bool { return r.Service == all[i].Service && r.Advertise == all[i].Advertise }
		if j := slices.IndexFunc(all[:i], same); j >= 0 {
			in.report(at, "register[%d] registers the same", j)
		}
	}
}

// check reports a registration that others could not use.
func (r *Register) check(in scope, at path) {
	c := in.config
	in.refuseIf(r.Service == "" || strings.ContainsAny(r.Service, "/ \t\n"), at.key("service"),
		"expected the name under which others find the service, got %q", r.Service)
	var listener *Listener
	var names []string
	for j := range c.Listeners {
		if c.Listeners[j].Name != "" {
			names = append(names, c.Listeners[j].Name)
		}
		if c.Listeners[j].Name == r.Listener {
			listener = &c.Listeners[j]
		}
	}
	if listener == nil {
		in.report(at.key("listener"), "there is no listener %q%s", r.Listener, knownNames(r.Listener, names))
	}
	checkAddress(in, at.key("advertise"), r.Advertise, dialable)
	c.Registry.checkRegistrar(in, at, r, listener)
	r.Check.checkListener(in, at.key("check"), listener)
}

// checkListener checks the check of the application behind a listener. l is nil if
// there is no such listener.
func (c *Check) checkListener(in scope, at path, l *Listener) {
	c.check(in, at)
	if !c.Enabled() || l == nil {
		return
	}
	s := in.config.Services[l.Service]
	switch {
	case l.Service == "":
		in.report(at, "listener %q has no service, so there is nothing to check", l.Name)
	case s != nil && s.TLS.ByHost() && !c.Beside() && (c.HTTP != "" || c.GRPC != ""):
		in.report(at, "contradicts tls.sni: host of service %s: a check is no request, and has no Host; expected tcp: true", s.Name)
	case s != nil && !s.isListed():
		in.report(at, "service %s has no static endpoints, so there is nothing to check", s.Name)
	case s != nil && len(s.Endpoints) > 0 && !slices.ContainsFunc(s.Endpoints, c.canAsk):
		in.report(at, "%s of service %s has no host and port to ask; expected host and port here", public(s.Endpoints[0].Address), s.Name)
	}
}

// canAsk reports whether the check of an application can ask one of its addresses. Names of SRV records are not resolved for it.
func (c *Check) canAsk(e Endpoint) bool {
	switch {
	case c.Host != "" && c.Port != 0:
		return true
	case srvname.Is(e.Address):
		return false
	}
	return !unixaddr.Is(e.Address) || !c.Beside()
}
