package config

import (
	"slices"

	"github.com/remora-proxy/remora/internal/unixaddr"
)

// ServiceTLS is the tls block of a service. SNI is for HTTP.
type ServiceTLS struct {
	TLS `yaml:",inline"`

	// HTTP: the name that is asked for, and that the certificate must have unless `peers` is set. `host` means the request's Host. Empty means the host name of the endpoint, or its address.
	SNI string `yaml:"sni" reload:"new service"`
}

// SNIHost is the value of ServiceTLS.SNI for the Host of the request.
const SNIHost = "host"

// Enabled reports whether any key is set.
func (t *ServiceTLS) Enabled() bool { return t.TLS.Enabled() || t.SNI != "" }

// HTTPS reports whether the endpoints are called by HTTP over TLS.
func (s *Service) HTTPS() bool { return s.SpeaksHTTP() && s.TLS.Enabled() }

// ByHost reports whether the name depends on the request.
func (t *ServiceTLS) ByHost() bool { return t.SNI == SNIHost }

// ServerName returns the name that an endpoint must prove, unless that depends on the request.
// host is the endpoint's host name or "", and addr its "ip:port" or Unix socket, which has no name.
func (t *ServiceTLS) ServerName(host, addr string) string {
	switch {
	case t.SNI != "" && t.SNI != SNIHost:
		return t.SNI
	case host != "":
		return host
	case unixaddr.Is(addr):
		return ""
	}
	return HostOf(addr)
}

// check checks the tls of a service.
func (t *ServiceTLS) check(in scope, at path) {
	if !t.Enabled() {
		return
	}
	t.TLS.check(in, at)
	s := in.service
	switch s.Protocol {
	case ProtocolHTTP, ProtocolHTTP2, ProtocolGRPC:
		t.checkHTTP(in, at)
		return
	case ProtocolLink:
		t.checkLink(in, at)
	case ProtocolTCP:
		in.refuseIf(len(t.Peers) == 0, at.key("peers"),
			"missing; the address of an endpoint does not say which certificate to expect")
	default:
		in.report(at, "not supported for services with protocol %s, only with http, http2, grpc, link and tcp", s.Protocol)
	}
	in.refuseIf(t.SNI != "", at.key("sni"), "only a service that speaks HTTP has it; this one is %s", s.Protocol)
}

// checkHTTP checks the tls of an HTTP service.
func (t *ServiceTLS) checkHTTP(in scope, at path) {
	s := in.service
	in.refuseIf(t.SNI != "" && !isHostName(t.SNI), at.key("sni"), "expected a host name, or host for the request's Host, got %q", t.SNI)
	in.refuseIf(t.ByHost() && !s.Check.Beside() && (s.Check.HTTP != "" || s.Check.GRPC != ""), at.key("sni"),
		"host contradicts check: a check is no request, and has no Host; expected a name, or check: {tcp: true}")
	in.refuseIf(t.SNI == "" && len(t.Peers) == 0 && slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return unixaddr.Is(e.Address) }),
		at.key("sni"), "missing; a Unix socket has no name that its certificate could have")
}
