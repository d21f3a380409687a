package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// Fault is what is wrong with one file of an identity.
type Fault struct {
	Key string // whose file: cert, key or ca
	Err error  // it names the file
}

// Check reads the files that o names and returns all that is wrong with them at
// the time now: what would make Open fail, and what peers would refuse us for.
func Check(o Options, now time.Time) (faults []Fault) {
	fault := func(key string, err error) bool {
		if err != nil {
			faults = append(faults, Fault{key, err})
		}
		return err != nil
	}
	cert, err := readPEM(o.Cert)
	noCert := fault("cert", err) || cert == nil || fault("cert", checkOwn(o.Cert, cert, now))
	key, err := readPEM(o.Key)
	if !fault("key", err) && key != nil && !noCert {
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			fault("key", fmt.Errorf("%s, for %s: %w", o.Key, o.Cert, err))
		}
	}
	ca, err := readPEM(o.CA)
	if !fault("ca", err) && ca != nil {
		fault("ca", checkAuthorities(o.CA, ca, now))
	}
	return faults
}

// checkOwn holds the leaf of a chain against the time.
func checkOwn(path string, chain []byte, now time.Time) error {
	all, err := parse(path, chain)
	if err != nil {
		return err
	}
	return inTime(path, all[0], now)
}

// checkAuthorities wants one that is not over: bundles carry old ones along.
func checkAuthorities(path string, bundle []byte, now time.Time) error {
	all, err := parse(path, bundle)
	for _, c := range all {
		if err = inTime(path, c, now); err == nil {
			return nil
		}
	}
	return err
}

// parse reads the certificates of a file, of which there must be one.
func parse(path string, b []byte) (all []*x509.Certificate, err error) {
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: %w", path, errNoCertificate)
	}
	return all, nil
}

var errNoCertificate = errors.New("no certificate in it")

// inTime tells whether c is valid at the time now.
func inTime(path string, c *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(c.NotBefore):
		return fmt.Errorf("%s: not valid before %s", path, c.NotBefore.Format(time.RFC3339))
	case now.After(c.NotAfter):
		return fmt.Errorf("%s: expired at %s", path, c.NotAfter.Format(time.RFC3339))
	}
	return nil
}
