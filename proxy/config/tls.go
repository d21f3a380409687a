package config

import (
	"maps"
	"slices"
	"strings"
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

	// Names accepted of the peer: `spiffe://…`, `dns:name`, `*.suffix`. Empty means the name that was dialled towards etcd, `sni` towards HTTP, and any HTTP client.
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
	for name, b := range c.Registry.blocks() {
		if t := b.tls(); t != nil {
			add("registry", name, path("registry").key(name), TLSBlock{TLS: t})
		}
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

// check checks the keys of a tls block together.
func (t *TLS) check(in scope, at path) {
	in.refuseIf((t.Cert == "") != (t.Key == ""), at, "cert and key must be set together")
	in.refuseIf(t.CRL != "" && t.CAFile() == "", at.key("crl"), "needs the file ca, whose authorities sign the lists")
	for i, name := range t.Peers {
		in.refuseIf(!isPeer(name), at.key("peers").item(i),
			"expected spiffe://domain/path, dns:name or *.suffix, got %q", name)
	}
}

// checkLink checks the tls of a link. Both sidecars of a link prove their identity, so
// all keys are required.
func (t *TLS) checkLink(in scope, at path) {
	const missing = "missing; a link with tls needs cert, key, ca and peers"
	in.refuseIf(t.Cert == "" && t.Key == "", at.key("cert"), missing)
	in.refuseIf(t.CA == "", at.key("ca"), missing)
	in.refuseIf(len(t.Peers) == 0, at.key("peers"), missing)
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
