package sidecar

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/config"
)

// identities are the certificates of a configuration, by config.TLSName of their tls
// blocks.
type identities map[string]*certs.Source

// openIdentities opens the files of the tls blocks of cfg. A block that has not
// changed keeps its identity in old. After an error no new identity is open. onTrust is
// certs.Options.OnTrust.
func openIdentities(cfg *config.Config, old identities, log *slog.Logger, onTrust func()) (identities, error) {
	next := make(identities)
	for _, block := range cfg.TLSBlocks() {
		name, o := block.Name, CertOptions(&block)
		o.Logger, o.OnTrust = log, onTrust
		if source := old[name]; source != nil && source.Has(o) {
			next[name] = source
			continue
		}
		source, err := certs.Open(o)
		if err != nil {
			next.closeExcept(old)
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		next[name] = source
	}
	return next, nil
}

// ofService returns the identity of a service, or nil.
func (ids identities) ofService(name string) *certs.Source {
	return ids[config.TLSName("services", name)]
}

// CertOptions returns the files and the peers of a tls block.
func CertOptions(b *config.TLSBlock) certs.Options {
	t := b.TLS
	o := certs.Options{Cert: t.Cert, Key: t.Key, CA: t.CAFile(), CRL: t.CRL, Peers: t.Peers}
	if !b.HTTP {
		return o
	}
	o.HTTP = &certs.HTTP{}
	if l := b.Listener; l != nil {
		for _, pair := range l.Certificates {
			o.HTTP.More = append(o.HTTP.More, certs.KeyPair(pair))
		}
		switch l.ClientCertificate {
		case config.CertificateOptional:
			o.HTTP.Clients = tls.RequestClientCert
		case config.CertificateRequired:
			o.HTTP.Clients = tls.RequireAnyClientCert
		}
		if l.MinVersion == config.TLS13 {
			o.HTTP.MinVersion = tls.VersionTLS13
		}
	}
	return o
}

// closeExcept stops watching the files of the identities that are not in kept. Users
// of a closed identity keep its last certificate.
func (ids identities) closeExcept(kept identities) {
	for name, source := range ids {
		if kept[name] != source {
			source.Close()
		}
	}
}

// clientCerts are the certificates for connections to services, by the services' keys;
// nil stands for plain text. The driver of the loops reads them while a reload replaces
// them.
type clientCerts struct {
	byKey  atomic.Pointer[map[string]*certs.Source]
	former []string // keys of services that reloads have removed or replaced, the oldest first
}

// maxFormer bounds clientCerts.former. Requests to older ones can't dial any more.
const maxFormer = 1000

// set applies the services of next, whose identities are ids. Those of old that it does
// not have become former ones. With busy the earlier ones stay, too: while any request is
// in flight, one may still go there.
func (c *clientCerts) set(old, next *proxy.Generation, ids identities, busy bool) {
	keys, m := next.Keys(), make(map[string]*certs.Source)
	if !busy {
		c.former = nil
	}
	for key := range old.Keys() {
		if keys[key] == "" {
			c.former = append(c.former, key)
		}
	}
	c.former = c.former[max(0, len(c.former)-maxFormer):]
	for _, key := range c.former {
		m[key] = (*c.byKey.Load())[key]
	}
	for key, name := range keys {
		m[key] = ids.ofService(name)
	}
	c.byKey.Store(&m)
}

// unknownService is the configuration for a service that is not known any more: no
// handshake succeeds with it, and nothing is sent in plain text.
var unknownService = &tls.Config{MinVersion: tls.VersionTLS13, MaxVersion: tls.VersionTLS12}

// client returns the function that the driver calls for the TLS configuration of a
// connection at addr to the service with this key, which must prove name. It returns nil
// for plain text. Connections of no service have no key.
func (c *clientCerts) client(key, addr, name string) func() *tls.Config {
	source, known := (*c.byKey.Load())[key]
	switch {
	case source != nil:
		return func() *tls.Config { return source.ClientFor(addr, name) }
	case !known && key != "":
		return func() *tls.Config { return unknownService }
	}
	return nil
}

// checkTLS returns the configuration for checks of a service's endpoints by HTTP; nil means that
// they are in plain text. source is the identity of the service, if it has one.
func checkTLS(c *config.Service, source *certs.Source) func(addr, host string) *tls.Config {
	if source == nil || !c.HTTPS() {
		return nil
	}
	return func(addr, host string) *tls.Config { return source.ClientFor(addr, c.TLS.ServerName(host, addr)) }
}
