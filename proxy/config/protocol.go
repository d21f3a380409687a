package config

// Protocols that a default or a rule mentions.
const (
	ProtocolHTTP  = "http"  // HTTP/1.1
	ProtocolHTTP2 = "http2" // HTTP/2
	ProtocolGRPC  = "grpc"  // HTTP/2 with gRPC
	ProtocolLink  = "link"  // the inter-agent protocol
	ProtocolDubbo = "dubbo" // Dubbo 2
	ProtocolTCP   = "tcp"   // opaque bytes
)

// Lists of names that a file may use. A new protocol adds its name here, and nowhere else in this
// package. A name has a constant only if a default or a rule of this package mentions it.
var (
	// Protocols are what services and endpoints may speak.
	Protocols = []string{ProtocolHTTP, ProtocolHTTP2, ProtocolGRPC, ProtocolDubbo, ProtocolLink, ProtocolTCP}

	// ListenerProtocols are what listeners may speak. One with http takes HTTP/2 as well.
	ListenerProtocols = []string{ProtocolHTTP, ProtocolDubbo, ProtocolLink, ProtocolTCP}
)

// SpeaksHTTP reports whether the endpoints speak HTTP of any version, unless the registry says
// otherwise.
func (s *Service) SpeaksHTTP() bool {
	return s.Protocol == ProtocolHTTP || s.Protocol == ProtocolHTTP2 || s.Protocol == ProtocolGRPC
}

// multiplexed reports whether requests share the connections to the endpoints, which take no opaque
// bytes therefore.
func (s *Service) multiplexed() bool {
	return s.Protocol == ProtocolDubbo || s.Protocol == ProtocolHTTP2 || s.Protocol == ProtocolGRPC
}

// checkProtocol reports a service that can't take what is sent to it. Opaque bytes need an
// application, or a sidecar that passes them on; requests need a service that
// understands them. HTTP requests can be converted to Dubbo calls, but not the other
// way round.
func checkProtocol(in scope, at path, name, sent string) {
	s := in.config.Services[name]
	switch {
	case s == nil:
	case sent == ProtocolTCP && s.multiplexed():
		in.report(at, "service %s speaks %s; opaque tcp needs a service with protocol: %s, %s or %s",
			name, s.Protocol, ProtocolTCP, ProtocolHTTP, ProtocolLink)
	case sent != ProtocolTCP && s.Protocol == ProtocolTCP:
		in.report(at, "service %s takes opaque bytes, not requests; expected one with protocol: %s, %s or %s",
			name, ProtocolLink, ProtocolHTTP, ProtocolDubbo)
	case sent == ProtocolDubbo && s.SpeaksHTTP():
		in.report(at, "service %s speaks %s, and Dubbo calls can't be converted to it; expected one with protocol: %s or %s",
			name, s.Protocol, ProtocolLink, ProtocolDubbo)
	case sent == ProtocolTCP && s.LB.Policy == LBConsistentHash && !s.LB.Hash.Source:
		in.report(at, "service %s has keys of requests, and opaque tcp has none; expected lb.hash: {source: true}", name)
	case sent != ProtocolHTTP && s.LB.Sticky.Cookie != "":
		in.report(at, "service %s has lb.sticky, and only HTTP has cookies", name)
	case sent == ProtocolDubbo && s.LB.Hash.ofHTTP():
		in.report(at, "service %s has keys of HTTP requests, and Dubbo calls have no headers and no query; expected lb.hash with path or source", name)
	}
}
