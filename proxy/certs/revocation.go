package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// maxLists bounds a file of revocation lists, in bytes: some 100,000 certificates.
const maxLists = 4 << 20

// revocations are the certificates on the lists of one file, and immutable. nil has none.
type revocations struct {
	serials map[string]map[string]struct{} // by issuer, as DER; a serial is its big-endian bytes
	outdate time.Time                      // the first nextUpdate; zero if no list has one
}

// parseRevocations reads the revocation lists of a file (RFC 5280, section 5), in PEM or DER.
// Each must be signed by an authority in ca, which is PEM. nil is returned for a nil file.
func parseRevocations(path string, file []byte, ca []byte) (*revocations, error) {
	if file == nil {
		return nil, nil
	}
	wrong := func(err error) (*revocations, error) { return nil, fmt.Errorf("%s: %w", path, err) }
	authorities, err := parse("ca", ca)
	if err != nil {
		return wrong(err)
	}
	lists, err := splitLists(file)
	if err != nil {
		return wrong(err)
	}
	r := &revocations{serials: make(map[string]map[string]struct{})}
	for i, der := range lists {
		if err := r.add(der, authorities); err != nil {
			return wrong(fmt.Errorf("list %d: %w", i+1, err))
		}
	}
	return r, nil
}

var errNoList = errors.New("contains no revocation list")

// splitLists returns the DER of each list of a file.
func splitLists(file []byte) (lists [][]byte, err error) {
	block, rest := pem.Decode(file)
	if block == nil { // rest is the whole file
		for len(rest) > 0 {
			var list asn1.RawValue
			if rest, err = asn1.Unmarshal(rest, &list); err != nil {
				return nil, errNoList
			}
			lists = append(lists, list.FullBytes)
		}
	}
	for ; block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "X509 CRL" {
			lists = append(lists, block.Bytes)
		}
	}
	if len(lists) == 0 {
		return nil, errNoList
	}
	return lists, nil
}

func (r *revocations) add(der []byte, authorities []*x509.Certificate) error {
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return err
	}
	if err := checkSigner(list, authorities); err != nil {
		return err
	}
	if err := checkExtensions(list); err != nil {
		return err
	}
	of := r.serials[string(list.RawIssuer)]
	if of == nil {
		of = make(map[string]struct{}, len(list.RevokedCertificateEntries))
		r.serials[string(list.RawIssuer)] = of
	}
	for i := range list.RevokedCertificateEntries {
		of[string(list.RevokedCertificateEntries[i].SerialNumber.Bytes())] = struct{}{}
	}
	r.outdate = earliest(r.outdate, list.NextUpdate)
	return nil
}

// earliest returns the earlier of two times. The zero time means none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// checkSigner wants a list that the authority of its name has signed.
func checkSigner(list *x509.RevocationList, authorities []*x509.Certificate) error {
	err := errors.New("not in ca")
	for _, authority := range authorities {
		if !bytes.Equal(authority.RawSubject, list.RawIssuer) {
			continue
		}
		if authority.KeyUsage != 0 && authority.KeyUsage&x509.KeyUsageCRLSign == 0 {
			err = errors.New("its key usage lacks cRLSign")
		} else if err = list.CheckSignatureFrom(authority); err == nil {
			return nil
		}
	}
	return fmt.Errorf("issuer %q: %w", list.Issuer, err)
}

// Extensions of lists. A list with a critical one that is not understood must not be used
// (RFC 5280, section 5.2), nor with a critical one of an entry (section 5.3).
var (
	oidDistributionPoint = asn1.ObjectIdentifier{2, 5, 29, 28}

	errCritical = errors.New("has a critical extension that is not supported")
)

func checkExtensions(list *x509.RevocationList) error {
	for _, e := range list.Extensions {
		if e.Critical && !(e.Id.Equal(oidDistributionPoint) && ownCertificates(e.Value)) {
			return fmt.Errorf("%w: %s", errCritical, e.Id)
		}
	}
	for i := range list.RevokedCertificateEntries {
		for _, e := range list.RevokedCertificateEntries[i].Extensions {
			if e.Critical {
				return fmt.Errorf("entry %d %w: %s", i+1, errCritical, e.Id)
			}
		}
	}
	return nil
}

// ownCertificates reports whether an issuingDistributionPoint is of a list that has only
// certificates of its own issuer. Whichever part of them it is for, those on it are revoked.
func ownCertificates(extension []byte) bool {
	var point struct {
		Name       asn1.RawValue  `asn1:"optional,tag:0"`
		User       bool           `asn1:"optional,tag:1"`
		CA         bool           `asn1:"optional,tag:2"`
		Reasons    asn1.BitString `asn1:"optional,tag:3"`
		Indirect   bool           `asn1:"optional,tag:4"`
		Attributes bool           `asn1:"optional,tag:5"`
	}
	rest, err := asn1.Unmarshal(extension, &point)
	return err == nil && len(rest) == 0 && !point.Indirect
}

// check returns an error if each of the verified chains has a certificate on a list.
func (r *revocations) check(chains [][]*x509.Certificate) error {
	if r == nil || len(chains) == 0 {
		return nil
	}
	var found *x509.Certificate
	for _, chain := range chains {
		cert := r.revoked(chain)
		if cert == nil {
			return nil
		}
		found = cert
	}
	return &VerifyError{CodeRevoked, fmt.Errorf("revoked: serial %x of %q, subject %q",
		found.SerialNumber, found.Issuer, found.Subject)}
}

// revoked returns a certificate of chain that is on a list, or nil.
func (r *revocations) revoked(chain []*x509.Certificate) *x509.Certificate {
	for _, cert := range chain {
		if _, listed := r.serials[string(cert.RawIssuer)][string(cert.SerialNumber.Bytes())]; listed {
			return cert
		}
	}
	return nil
}

// warnOutdated logs that a list is past its nextUpdate, once for each state of the files. The
// list stays in use: those on it are revoked all the same.
func (s *Source) warnOutdated(now time.Time) {
	c := s.current.Load()
	lists := c.trusted.lists
	if c.warned || lists == nil || lists.outdate.IsZero() || now.Before(lists.outdate) {
		return
	}
	c.warned = true
	s.opt.Logger.Warn("revocation list is outdated, and stays in use: later revocations are not known",
		"code", "tls_crl_outdated", "crl", s.opt.CRL, "next_update", lists.outdate)
}
