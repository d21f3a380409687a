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

func (t *ListenerTLS) setDefaults() { t.ClientCertificate, t.MinVersion = CertificateNone, TLS12 }

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

// Enabled reports whether any key is set.
func (t *ListenerTLS) Enabled() bool {
	return t.TLS.Enabled() || len(t.Certificates) > 0 || t.Names() || t.MinVersion == TLS13
}

// Names reports whether clients of an HTTP listener may prove their names.
func (t *ListenerTLS) Names() bool {
	return t.ClientCertificate == CertificateOptional || t.ClientCertificate == CertificateRequired
}

// check checks the tls of a listener.
func (t *ListenerTLS) check(in scope, at path) {
	if !t.Enabled() {
		return
	}
	t.TLS.check(in, at)
	switch protocol := in.listener.Protocol; protocol {
	case ProtocolHTTP:
		t.checkHTTP(in, at)
	case ProtocolLink:
		t.checkLink(in, at)
		t.checkOther(in, at)
	default:
		in.report(at, "not supported for listeners with protocol %s, only with http and link", protocol)
	}
}

// checkHTTP checks the tls of an HTTP listener.
func (t *ListenerTLS) checkHTTP(in scope, at path) {
	in.refuseIf(t.Cert == "" && t.Key == "", at.key("cert"), "missing; an http listener with tls needs cert and key")
	in.refuseIf(len(t.Certificates) > maxCertificates, at.key("certificates"), "%d of them; at most %d", len(t.Certificates), maxCertificates)
	for i, pair := range t.Certificates {
		in.refuseIf(pair.Cert == "" || pair.Key == "", at.key("certificates").item(i), "cert and key must be set together")
	}
	switch {
	case !t.Names():
		const unused = "set, but client_certificate is none; expected optional or required"
		in.refuseIf(t.CA != "", at.key("ca"), unused)
		in.refuseIf(len(t.Peers) > 0, at.key("peers"), unused)
	case t.CA == "":
		in.report(at.key("ca"), "missing; client_certificate needs the authorities that sign the certificates of clients")
	case t.CA == SystemCA && len(t.Peers) == 0:
		in.report(at.key("peers"), "missing; without it every client with a certificate of a public authority would be accepted")
	}
}

// checkOther reports keys of a listener's tls that another protocol does not have.
func (t *ListenerTLS) checkOther(in scope, at path) {
	for _, key := range []struct {
		name  string
		given bool
	}{
		{"certificates", len(t.Certificates) > 0},
		{"client_certificate", t.Names()},
		{"min_version", t.MinVersion == TLS13},
	} {
		in.refuseIf(key.given, at.key(key.name), "only an http listener has it; this one is %s", in.listener.Protocol)
	}
}
