// Package certs makes certificates for trying things out: an authority, and leaf certificates
// that it signs, in a directory.
package certs

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/remora-proxy/remora/internal/mint"
)

// Leaf is a certificate for a client or server. Name is that of its files, Names are its subject
// alternative names: SPIFFE ids, IP addresses and host names.
type Leaf struct {
	Name  string
	Names []string
}

// Default describes certificates for two sidecars on one machine.
var Default = []string{
	"consumer=spiffe://example.org/consumer,localhost,127.0.0.1,::1",
	"provider=spiffe://example.org/provider,localhost,127.0.0.1,::1",
}

// authority is the name of the files of the authority.
const authority = "ca"

// ParseLeaves reads a list of "name=san,san".
func ParseLeaves(texts []string) (leaves []Leaf, err error) {
	for _, text := range texts {
		l, err := parseLeaf(text)
		if err != nil {
			return nil, err
		}
		leaves = append(leaves, l)
	}
	return leaves, nil
}

func parseLeaf(text string) (Leaf, error) {
	name, list, _ := strings.Cut(text, "=")
	l := Leaf{Name: name, Names: strings.Split(list, ",")}
	isBad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	}
	switch {
	case name == "" || name[0] == '.' || name[0] == '-' || strings.ContainsFunc(name, isBad):
		return l, fmt.Errorf("%q: expected name=san,san with a name of letters, digits, dots, - and _", text)
	case name == authority:
		return l, fmt.Errorf("%q: %s is the name of the authority", text, authority)
	case list == "":
		return l, fmt.Errorf("%q: expected name=san,san, as in %s=localhost,127.0.0.1", text, name)
	}
	return l, l.addTo(new(x509.Certificate))
}

// addTo adds the names of l to a certificate.
func (l Leaf) addTo(c *x509.Certificate) error {
	for _, name := range l.Names {
		u, err := url.Parse(name)
		ip := net.ParseIP(name)
		switch {
		case ip != nil:
			c.IPAddresses = append(c.IPAddresses, ip)
		case strings.Contains(name, "://"):
			if err != nil || u.Scheme != "spiffe" || u.Host == "" || u.Port() != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
				return fmt.Errorf("%s: expected spiffe://domain/path, got %q", l.Name, name)
			}
			c.URIs = append(c.URIs, u)
		case isHost(name):
			c.DNSNames = append(c.DNSNames, name)
		default:
			return fmt.Errorf("%s: expected a SPIFFE id, an IP address or a host name, got %q", l.Name, name)
		}
	}
	if len(c.URIs) > 1 {
		return fmt.Errorf("%s: more than one SPIFFE id; a certificate has one identity", l.Name)
	}
	return nil
}

// isHost reports whether name is a host name, or one with a wildcard as its first label.
func isHost(name string) bool {
	return !slices.ContainsFunc(strings.Split(strings.TrimPrefix(name, "*."), "."), func(label string) bool {
		isBad := func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
		}
		return label == "" || len(label) > 63 || strings.ContainsFunc(label, isBad)
	})
}

// earlier is how long before now certificates become valid, for clocks that are late.
const earlier = 5 * time.Minute

// Make writes ca.pem, and NAME.pem for each leaf, with their keys in ca-key.pem and NAME-key.pem,
// which only their owner can read. Certificates are valid for so long from now on. Make replaces
// no file: then, and after other errors, it writes none.
func Make(dir string, leaves []Leaf, valid time.Duration) (paths []string, err error) {
	now := time.Now()
	base := x509.Certificate{NotBefore: now.Add(-earlier), NotAfter: now.Add(valid)}
	root := base
	root.Subject = pkix.Name{CommonName: "remora-lab authority"}
	root.IsCA, root.BasicConstraintsValid, root.MaxPathLenZero = true, true, true
	root.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	ca, err := mint.New(&root, nil)
	if err != nil {
		return nil, err
	}
	var files []file
	if files, err = add(files, dir, authority, ca); err != nil {
		return nil, err
	}
	for _, l := range leaves {
		template := base
		template.Subject = pkix.Name{CommonName: l.Name}
		template.KeyUsage = x509.KeyUsageDigitalSignature
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		if err := l.addTo(&template); err != nil {
			return nil, err
		}
		cert, err := mint.New(&template, ca)
		if err != nil {
			return nil, err
		}
		if files, err = add(files, dir, l.Name, cert); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return write(files)
}

// file is one to write.
type file struct {
	path string
	mode fs.FileMode
	text []byte
}

// add adds a certificate and its key.
func add(files []file, dir, name string, c *mint.Certificate) ([]file, error) {
	cert, key, err := c.PEM()
	path := filepath.Join(dir, name+".pem")
	if slices.ContainsFunc(files, func(f file) bool { return f.path == path }) {
		err = errors.Join(err, fmt.Errorf("%s: two certificates have this name", name))
	}
	return append(files, file{path, 0o644, cert}, file{filepath.Join(dir, name+"-key.pem"), 0o600, key}), err
}

// write creates the files, and removes them again if one can't be written.
func write(files []file) (paths []string, err error) {
	for _, f := range files {
		if err = create(f); err != nil {
			break
		}
		paths = append(paths, f.path)
	}
	if err == nil {
		return paths, nil
	}
	for _, path := range paths {
		err = errors.Join(err, os.Remove(path))
	}
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%w; nothing is replaced: choose another directory", err)
	}
	return nil, err
}

func create(f file) error {
	to, err := os.OpenFile(f.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, f.mode)
	if err != nil {
		return err
	}
	_, err = bytes.NewReader(f.text).WriteTo(to)
	if err = errors.Join(err, to.Close()); err != nil {
		err = errors.Join(err, os.Remove(f.path))
	}
	return err
}
