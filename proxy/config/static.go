package config

import "strings"

// Endpoint is a static endpoint. In the file it may be plain "host:port".
type Endpoint struct {
	// `host:port`, `unix:/path`, `unix:@name`, or a name of SRV records (`_http._tcp.compute.internal`), for `discover: static`. An endpoint may be this text alone. Host names are resolved again.
	Address string `yaml:"address"`
	// Capacity relative to an endpoint of weight 1.
	Weight int `yaml:"weight" min:"1" max:"65535"`
	// Zone of the endpoint.
	Zone string `yaml:"zone"`
}

func (e *Endpoint) setDefaults() { e.Weight = 1 }

// DiscoverStatic is the value of Service.Discover for endpoints that the file lists.
const DiscoverStatic = "static"

// defaultProtocol returns what the endpoints of a source speak if the file does not say so. Those
// that a file lists are mostly applications, those in a registry mostly sidecars.
func defaultProtocol(discover string) string {
	if discover == DiscoverStatic {
		return ProtocolHTTP
	}
	return ProtocolLink
}

// checkListed checks the endpoints that the file lists.
func (s *Service) checkListed(in scope, at path) {
	endpoints := at.key("endpoints")
	switch {
	case s.finds(DiscoverStatic):
		in.refuseIf(len(s.Endpoints) == 0, endpoints, "missing; a static service needs endpoints")
	case !in.partly[at.key("discover")]:
		in.refuseIf(len(s.Endpoints) > 0, endpoints,
			"set, but discover is %s; expected discover: %s", strings.Join(s.Discover, ", "), DiscoverStatic)
	}
	seen := map[string]bool{}
	for i, e := range s.Endpoints {
		shown := endpoints.item(i)
		if checkEndpointAddress(in, shown, e.Address) {
			in.refuseIf(seen[e.Address], shown, "%s is listed twice", e.Address)
		}
		seen[e.Address] = true
	}
}
