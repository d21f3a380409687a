package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// Fault is a fault of one file of an identity.
type Fault struct {
	Key string // the setting that names the file: cert, key, ca, crl, or as in certificates[0].cert
	Err error  // names the file
}

// Check reads the files of o and returns their faults at the time now: those that
// would make Open fail, and those for which peers would refuse the identity.
func Check(o Options, now time.Time) (faults []Fault) {
	fault := func(key string, err error) bool {
		if err != nil {
			faults = append(faults, Fault{key, err})
		}
		return err != nil
	}
	pair := func(prefix string, p KeyPair) {
		cert, err := readFile(p.Cert, maxFile)
		noCert := fault(prefix+"cert", err) || cert == nil || fault(prefix+"cert", checkOwn(p.Cert, cert, now))
		key, err := readFile(p.Key, maxFile)
		if !fault(prefix+"key", err) && key != nil && !noCert {
			if _, err := tls.X509KeyPair(cert, key); err != nil {
				fault(prefix+"key", fmt.Errorf("%s, for %s: %w", p.Key, p.Cert, err))
			}
		}
	}
	pair("", KeyPair{o.Cert, o.Key})
	if o.HTTP != nil {
		for i, p := range o.HTTP.More {
			pair(fmt.Sprintf("certificates[%d].", i), p)
		}
	}
	ca, err := readFile(o.CA, maxFile)
	noCA := fault("ca", err) || ca == nil || fault("ca", checkAuthorities(o.CA, ca, now))
	crl, err := readFile(o.CRL, maxLists)
	if !fault("crl", err) && !noCA {
		_, err := parseRevocations(o.CRL, crl, ca)
		fault("crl", err)
	}
	return faults
}

// checkOwn checks that the leaf of a chain is valid at the time now.
func checkOwn(path string, chain []byte, now time.Time) error {
	all, err := parse(path, chain)
	if err != nil {
		return err
	}
	return checkTime(path, all[0], now)
}

// checkAuthorities wants one authority that is valid at now: bundles often have expired ones.
func checkAuthorities(path string, bundle []byte, now time.Time) error {
	all, err := parse(path, bundle)
	for _, c := range all {
		if err = checkTime(path, c, now); err == nil {
			return nil
		}
	}
	return err
}

// parse reads the certificates of a file, which must contain at least one.
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

var errNoCertificate = errors.New("contains no certificate")

func checkTime(path string, c *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(c.NotBefore):
		return fmt.Errorf("%s: not valid before %s", path, c.NotBefore.Format(time.RFC3339))
	case now.After(c.NotAfter):
		return fmt.Errorf("%s: expired at %s", path, c.NotAfter.Format(time.RFC3339))
	}
	return nil
}
