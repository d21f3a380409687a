package config

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/remora-proxy/remora/internal/unixaddr"
)

// TLS is an identity in PEM files, and whom it is shown to. The files are read
// again when they change. The zero value is plain text.
//
// Peers are subject alternative names: spiffe://domain/path, or with /* at its end all
// below; dns:name or name; *.suffix for one label more.
type TLS struct {
	// File with our certificate, then its intermediates.
	Cert string `yaml:"cert" reload:"see above"`
	// File with the private key of the certificate.
	Key string `yaml:"key" reload:"see above"`
	// File with the authorities that sign peers' certificates. Empty means those of the system, and so does `system`.
	CA string `yaml:"ca" reload:"see above"`
	// File with revocation lists of these authorities, PEM or DER. Peers with a certificate on one are refused. It needs `ca`.
	CRL string `yaml:"crl" reload:"see above"`

	// Names accepted of the peer: `spiffe://…`, `dns:name`, `*.suffix`. Empty means the name that was dialled towards etcd, `sni` towards HTTP, and any client of HTTP.
	Peers []string `yaml:"peers" reload:"see above"`
}

// SystemCA is a value of TLS.CA: the authorities of the system. It enables TLS without any file.
const SystemCA = "system"

// CAFile returns the file of the authorities, or "" for those of the system.
func (t *TLS) CAFile() string {
	if t.CA == SystemCA {
		return ""
	}
	return t.CA
}

// Enabled reports whether any key is set.
func (t *TLS) Enabled() bool {
	return t.Cert != "" || t.Key != "" || t.CA != "" || t.CRL != "" || len(t.Peers) > 0
}

// TLSBlock is a tls block of a configuration.
type TLSBlock struct {
	Path string // as in listeners[0].tls
	Name string // as TLSName returns it
	TLS  *TLS

	Listener *ListenerTLS // the block, if it is a listener's
	HTTP     bool         // of a listener or service that speaks HTTP
}

// TLSName returns the name of the tls block of a listener, service or registry: its path
// with names instead of indexes, as in listeners.ingress.tls.
func TLSName(section, name string) string { return section + "." + name + ".tls" }

// TLSBlocks returns the tls blocks in use.
func (c *Config) TLSBlocks() (blocks []TLSBlock) {
	add := func(section, name string, at path, b TLSBlock) {
		b.Path, b.Name = string(at.key("tls")), TLSName(section, name)
		blocks = append(blocks, b)
	}
	if e := &c.Registry.Etcd; e.Secured() {
		add("registry", DiscoverEtcd, "registry.etcd", TLSBlock{TLS: &e.TLS})
	}
	for i := range c.Listeners {
		if l := &c.Listeners[i]; l.TLS.Enabled() {
			add("listeners", l.Name, path("listeners").item(i), TLSBlock{TLS: &l.TLS.TLS, Listener: &l.TLS, HTTP: l.Protocol == ProtocolHTTP})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Services)) {
		if s := c.Services[name]; s.TLS.Enabled() {
			add("services", name, path("services").entry(name), TLSBlock{TLS: &s.TLS.TLS, HTTP: s.HTTPS()})
		}
	}
	return blocks
}

// tls checks the keys of a tls block together.
func (v *validator) tls(at path, t *TLS) {
	v.refuseIf((t.Cert == "") != (t.Key == ""), at, "cert and key must be set together")
	v.refuseIf(t.CRL != "" && t.CAFile() == "", at.key("crl"), "needs the file ca, whose authorities sign the lists")
	for i, name := range t.Peers {
		v.refuseIf(!isPeer(name), at.key("peers").item(i),
			"expected spiffe://domain/path, dns:name or *.suffix, got %q", name)
	}
}

// listenerTLS checks the tls of a listener.
func (v *validator) listenerTLS(at path, l *Listener) {
	if !l.TLS.Enabled() {
		return
	}
	v.tls(at, &l.TLS.TLS)
	switch l.Protocol {
	case ProtocolHTTP:
		v.httpListenerTLS(at, &l.TLS)
		return
	case ProtocolLink:
		v.linkTLS(at, &l.TLS.TLS)
	default:
		v.report(at, "not supported for listeners with protocol %s, only with http and link", l.Protocol)
		return
	}
	v.onlyHTTP(at, l)
}

// serviceTLS checks the tls of a service.
func (v *validator) serviceTLS(at path, s *Service) {
	if !s.TLS.Enabled() {
		return
	}
	v.tls(at, &s.TLS.TLS)
	switch s.Protocol {
	case ProtocolHTTP, ProtocolHTTP2, ProtocolGRPC:
		v.httpServiceTLS(at, s)
		return
	case ProtocolLink:
		v.linkTLS(at, &s.TLS.TLS)
	case ProtocolTCP:
		v.refuseIf(len(s.TLS.Peers) == 0, at.key("peers"),
			"missing; the address of an endpoint does not say which certificate to expect")
	default:
		v.report(at, "not supported for services with protocol %s, only with http, http2, grpc, link and tcp", s.Protocol)
	}
	v.refuseIf(s.TLS.SNI != "", at.key("sni"), "only a service that speaks HTTP has it; this one is %s", s.Protocol)
}

// linkTLS checks the tls of a link. Both sidecars of a link prove their identity, so
// all keys are required.
func (v *validator) linkTLS(at path, t *TLS) {
	const missing = "missing; a link with tls needs cert, key, ca and peers"
	v.refuseIf(t.Cert == "" && t.Key == "", at.key("cert"), missing)
	v.refuseIf(t.CA == "", at.key("ca"), missing)
	v.refuseIf(len(t.Peers) == 0, at.key("peers"), missing)
}

// isPeer reports whether s has the form of a name in TLS.Peers.
func isPeer(s string) bool {
	if scheme, rest, isURI := strings.Cut(s, "://"); isURI {
		rest = strings.TrimSuffix(rest, "/*")
		return scheme != "" && rest != "" && rest[0] != '/' && !strings.ContainsAny(s[:len(scheme)]+rest, "* \t")
	}
	name := strings.TrimPrefix(s, "dns:")
	suffix, isWild := strings.CutPrefix(name, "*")
	return isWild == strings.HasPrefix(suffix, ".") && strings.Trim(suffix, ".") != "" && !strings.ContainsAny(suffix, "*/: \t")
}

// etcdTLS checks that the schemes of etcd's endpoints agree with its tls block.
func (v *validator) etcdTLS() {
	e := &v.config.Registry.Etcd
	at := path("registry.etcd")
	v.tls(at.key("tls"), &e.TLS)
	for i, endpoint := range e.Endpoints {
		shown := at.key("endpoints").item(i)
		isHTTPS := strings.HasPrefix(endpoint, "https://")
		switch {
		case strings.HasPrefix(endpoint, "http://") && e.Secured():
			v.report(shown, "plain text, but other settings of etcd use TLS; expected https://host:port")
		case !isHTTPS && !e.TLS.Enabled() && e.Secured():
			v.report(shown, "expected https://, like the other endpoints")
		}
	}
}

// Secured reports whether the connections to etcd use TLS: tls is set, or an endpoint
// is an https URL.
func (e *Etcd) Secured() bool {
	return e.TLS.Enabled() || slices.ContainsFunc(e.Endpoints, func(endpoint string) bool {
		return strings.HasPrefix(endpoint, "https://")
	})
}

// ListenerTLS is the tls block of a listener. The keys beside those of TLS are for HTTP.
type ListenerTLS struct {
	TLS `yaml:",inline"`

	// Further certificates, of which the name that a client asks for chooses one.
	Certificates []KeyPair `yaml:"certificates" reload:"next connection"`
	// HTTP: whether clients show a certificate, which must be of `ca` and, if set, `peers`.
	ClientCertificate string `yaml:"client_certificate" oneof:"none optional required" reload:"next connection"`
	// HTTP: the oldest version of TLS that is accepted. Links speak 1.3.
	MinVersion string `yaml:"min_version" oneof:"1.2 1.3" reload:"next connection"`
}

// KeyPair is a certificate and its private key.
type KeyPair struct {
	// HTTP: file with one of up to 256 further certificates, then its intermediates. The first with the name that a client asks for is shown; without one it is `tls.cert`.
	Cert string `yaml:"cert" reload:"next connection"`
	// File with its private key.
	Key string `yaml:"key" reload:"next connection"`
}

// The values of ListenerTLS.ClientCertificate and MinVersion.
const (
	CertificateNone     = "none"
	CertificateOptional = "optional"
	CertificateRequired = "required"

	TLS12 = "1.2"
	TLS13 = "1.3"
)

// maxCertificates bounds ListenerTLS.Certificates, which a handshake may look through.
const maxCertificates = 256

// defaultListenerTLS returns the tls of a listener that sets none: it is off.
func defaultListenerTLS() ListenerTLS {
	return ListenerTLS{ClientCertificate: CertificateNone, MinVersion: TLS12}
}

// Enabled reports whether any key is set.
func (t *ListenerTLS) Enabled() bool {
	return t.TLS.Enabled() || len(t.Certificates) > 0 || t.Names() || t.MinVersion == TLS13
}

// Names reports whether clients of an HTTP listener may prove their names.
func (t *ListenerTLS) Names() bool {
	return t.ClientCertificate == CertificateOptional || t.ClientCertificate == CertificateRequired
}

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

// HostOf returns the host of "host:port" or "host", without brackets.
func HostOf(authority string) string {
	if rest, ok := strings.CutPrefix(authority, "["); ok {
		host, _, _ := strings.Cut(rest, "]")
		return host
	}
	host, _, _ := strings.Cut(authority, ":")
	return host
}

// httpListenerTLS checks the tls of an HTTP listener.
func (v *validator) httpListenerTLS(at path, t *ListenerTLS) {
	v.refuseIf(t.Cert == "" && t.Key == "", at.key("cert"), "missing; an http listener with tls needs cert and key")
	v.refuseIf(len(t.Certificates) > maxCertificates, at.key("certificates"), "%d of them; at most %d", len(t.Certificates), maxCertificates)
	for i, pair := range t.Certificates {
		v.refuseIf(pair.Cert == "" || pair.Key == "", at.key("certificates").item(i), "cert and key must be set together")
	}
	switch {
	case !t.Names():
		const unused = "set, but client_certificate is none; expected optional or required"
		v.refuseIf(t.CA != "", at.key("ca"), unused)
		v.refuseIf(len(t.Peers) > 0, at.key("peers"), unused)
	case t.CA == "":
		v.report(at.key("ca"), "missing; client_certificate needs the authorities that sign the certificates of clients")
	case t.CA == SystemCA && len(t.Peers) == 0:
		v.report(at.key("peers"), "missing; without it every client with a certificate of a public authority would be accepted")
	}
}

// onlyHTTP reports keys of a listener's tls that another protocol does not have.
func (v *validator) onlyHTTP(at path, l *Listener) {
	for _, key := range []struct {
		name  string
		given bool
	}{
		{"certificates", len(l.TLS.Certificates) > 0},
		{"client_certificate", l.TLS.Names()},
		{"min_version", l.TLS.MinVersion == TLS13},
	} {
		v.refuseIf(key.given, at.key(key.name), "only an http listener has it; this one is %s", l.Protocol)
	}
}

// httpServiceTLS checks the tls of an HTTP service.
func (v *validator) httpServiceTLS(at path, s *Service) {
	t := &s.TLS
	v.refuseIf(t.SNI != "" && !isHostName(t.SNI), at.key("sni"), "expected a host name, or host for the request's Host, got %q", t.SNI)
	v.refuseIf(t.ByHost() && !s.Check.Beside() && (s.Check.HTTP != "" || s.Check.GRPC != ""), at.key("sni"),
		"host contradicts check: a check is no request, and has no Host; expected a name, or check: {tcp: true}")
	v.refuseIf(t.SNI == "" && len(t.Peers) == 0 && slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return unixaddr.Is(e.Address) }),
		at.key("sni"), "missing; a Unix socket has no name that its certificate could have")
}

// isHostName reports whether s can be the name in a certificate: a DNS name or an IP address.
func isHostName(s string) bool {
	isBad := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._:", c)
	}
	if strings.Contains(s, ":") {
		_, err := netip.ParseAddr(s)
		return err == nil
	}
	return !strings.ContainsFunc(s, isBad) && !slices.Contains(strings.Split(s, "."), "")
}
