package certs

import (
	"crypto/tls"
	"testing"
)

// TestHas: a Source has the files and peers with which it was opened, and no others.
func TestHas(t *testing.T) {
	base := func() Options {
		return Options{Cert: "cert", Key: "key", CA: "ca", CRL: "crl", Peers: []string{"a"},
			HTTP: &HTTP{More: []KeyPair{{"cert2", "key2"}}, Clients: tls.RequestClientCert, MinVersion: tls.VersionTLS13}}
	}
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   bool
	}{
		{"nothing", func(*Options) {}, true},
		{"another interval", func(o *Options) { o.Interval = 7 }, true},
		{"another certificate", func(o *Options) { o.Cert = "x" }, false},
		{"another key", func(o *Options) { o.Key = "x" }, false},
		{"another authority", func(o *Options) { o.CA = "x" }, false},
		{"another list", func(o *Options) { o.CRL = "x" }, false},
		{"other peers", func(o *Options) { o.Peers = []string{"b"} }, false},
		{"a link", func(o *Options) { o.HTTP = nil }, false},
		{"other further certificates", func(o *Options) { o.HTTP.More[0].Key = "x" }, false},
		{"other clients", func(o *Options) { o.HTTP.Clients = tls.RequireAnyClientCert }, false},
		{"another version", func(o *Options) { o.HTTP.MinVersion = tls.VersionTLS12 }, false},
	} {
		other := base()
		c.change(&other)
		if got := (&Source{opt: base()}).Has(other); got != c.want {
			t.Errorf("with %s: %t", c.name, got)
		}
		if got := (&Source{opt: other}).Has(base()); got != c.want {
			t.Errorf("with %s, the other way round: %t", c.name, got)
		}
	}
	link := Options{Cert: "cert", Key: "key"}
	if !(&Source{opt: link}).Has(link) {
		t.Error("a link has other files than its own")
	}
}
