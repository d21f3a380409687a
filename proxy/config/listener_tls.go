package config

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
