package main

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// TestCheckFiles: "remora check" reads the files of tls blocks, and reports their errors
// at the keys that name them.
func TestCheckFiles(t *testing.T) {
	ca := testcerts.New(t)
	good := harness.CertFiles(t, ca, harness.ProviderName)
	other := harness.CertFiles(t, ca, harness.ProviderName)
	text := filepath.Join(t.TempDir(), "text.pem")
	must.WriteFile(t, text, "no PEM\n")
	expired := testcerts.NewDir(t, ca, nil, nil)
	expired.Rotate(ca.Issue(testcerts.Leaf{Names: []string{harness.ProviderName}, Expired: true}))
	chain := testcerts.NewDir(t, ca, nil, nil) // its authority has expired
	old, _ := testcerts.SelfSigned(t, testcerts.Leaf{Expired: true, Usage: []x509.ExtKeyUsage{}})
	chain.Write(chain.CA, old)
	bundle := testcerts.NewDir(t, ca, nil, nil)
	bundle.Write(bundle.CA, append(old, ca.PEM...))

	for _, c := range []struct {
		name          string
		cert, key, ca string
		want          string // a regular expression for all of the output
	}{
		{"good", good.Cert, good.Key, good.CA, ``},
		{"an expired authority beside a valid one", good.Cert, good.Key, bundle.CA, ``},
		{"missing", "/none/cert.pem", good.Key, good.CA, `\S+:6:13: services\.compute\.tls\.cert: open /none/cert.pem: no such file.*\n`},
		{"unreadable", good.Cert, t.TempDir(), good.CA, `\S+:7:12: services\.compute\.tls\.key: read .*: is a directory\n`},
		{"mismatched", good.Cert, other.Key, good.CA, `\S+:7:12: services\.compute\.tls\.key: \S+key.pem, for \S+cert.pem: .*does not match.*\n`},
		{"expired", expired.Cert, expired.Key, good.CA, `\S+:6:13: services\.compute\.tls\.cert: \S+cert.pem: expired at 20.*Z\n`},
		{"no PEM", text, good.Key, text, `\S+:6:13: services\.compute\.tls\.cert: \S+text.pem: contains no certificate\n` +
			`\S+:8:11: services\.compute\.tls\.ca: \S+text.pem: contains no certificate\n`},
		{"an expired authority", good.Cert, good.Key, chain.CA, `\S+:8:11: services\.compute\.tls\.ca: \S+: expired at .*\n`},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The host names have no addresses: the command looks up none.
			file := filepath.Join(t.TempDir(), "remora.yaml")
			if err := os.WriteFile(file, fmt.Appendf(nil, `services:
  compute:
    discover: static
    endpoints: ["compute.invalid:1"]
    tls:
      cert: %q
      key: %q
      ca: %q
      peers: [%q]
    protocol: link
listeners: [{name: in, address: "127.0.0.1:1", protocol: tcp, service: compute}]
`, c.cert, c.key, c.ca, harness.ProviderName), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			code := execute([]string{"check", file}, io.Discard, &out)
			if (code == 0) != (c.want == "") || !matches(c.want, out.String()) {
				t.Errorf("exit code %d, output\n%s", code, &out)
			}
		})
	}
}

// TestCheckBlocks: all tls blocks are checked. Their errors and all others are in the
// order of the file.
func TestCheckBlocks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "remora.yaml")
	if err := os.WriteFile(file, []byte(`loops: x
registry: {etcd: {endpoints: ["https://etcd.invalid:2379"], tls: {ca: /none/1}}}
listeners:
  - {name: in, address: "127.0.0.1:1", protocol: link, service: app.v1, tls: {cert: /none/2, key: /none/3, ca: /none/4, peers: [a], crl: /none/crl}}
services:
  app.v1: {discover: etcd, protocol: http, loops: 1}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	execute([]string{"check", file}, io.Discard, &out)
	if !matches(`\S+:1:8: loops: .*
\S+:2:71: registry\.etcd\.tls\.ca: open /none/1: .*
\S+:4:85: listeners\[0\]\.tls\.cert: open /none/2: .*
\S+:4:99: listeners\[0\]\.tls\.key: open /none/3: .*
\S+:4:112: listeners\[0\]\.tls\.ca: open /none/4: .*
\S+:4:138: listeners\[0\]\.tls\.crl: open /none/crl: .*
\S+:6:\d+: services\["app\.v1"\]\.loops: .*
`, out.String()) {
		t.Errorf("output:\n%s", &out)
	}
}
