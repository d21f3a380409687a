package certs

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"sync"
	"time"
)

const (
	maxVerified = 128      // chains that are remembered, each of which takes some 10 KiB
	maxChain    = 16 << 10 // bytes of such a chain: a peer may send more than it needs
)

// authorities verify the chains of peers. They are of one state of the files, so a chain that was good stays
// good until one of its certificates ends. So it is remembered: to verify it takes a seventh of the CPU of a
// handshake on a link. Any goroutine may call the methods.
type authorities struct {
	roots *x509.CertPool // nil means those of the system, whose judgement is never remembered
	lists *revocations   // nil means none

	mu       sync.Mutex
	verified map[verifiedKey]*verified
}

// verifiedKey names a chain, and what it was good for.
type verifiedKey struct {
	usage x509.ExtKeyUsage
	chain [sha256.Size]byte
}

// verified is a good chain. Its certificates are kept, so that package tls need not parse them again.
type verified struct {
	chain        []*x509.Certificate
	begins, ends time.Time // when all its certificates are valid
}

// accept checks a peer's chain, leaf first, and its leaf by acceptLeaf.
func (a *authorities) accept(chain []*x509.Certificate, usage x509.ExtKeyUsage, acceptLeaf func(*x509.Certificate) error) error {
	if len(chain) == 0 {
		return &VerifyError{CodeNoCertificate, errors.New("no certificate")}
	}
	if err := a.verify(chain, usage, time.Now()); err != nil {
		return err
	}
	return acceptLeaf(chain[0])
}

// verify checks a chain against the authorities and the revocation lists.
func (a *authorities) verify(chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) error {
	key := keyOf(chain, usage)
	if a.knows(key, now) {
		return nil
	}
	o := x509.VerifyOptions{Roots: a.roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{usage}, CurrentTime: now}
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	chains, err := chain[0].Verify(o)
	if err != nil {
		return &VerifyError{codeOf(err), err}
	}
	if err := a.lists.check(chains); err != nil {
		return err
	}
	if a.roots != nil {
		a.remember(key, chain, chains)
	}
	return nil
}

func keyOf(chain []*x509.Certificate, usage x509.ExtKeyUsage) verifiedKey {
	h := sha256.New()
	for _, c := range chain {
		sum := sha256.Sum256(c.Raw)
		h.Write(sum[:])
	}
	return verifiedKey{usage, [sha256.Size]byte(h.Sum(nil))}
}

func (a *authorities) knows(key verifiedKey, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.verified[key]
	return v != nil && !now.Before(v.begins) && !now.After(v.ends)
}

// remember remembers a chain that leads to an authority by chains. In the place of one too many, any other one is
// forgotten.
func (a *authorities) remember(key verifiedKey, chain []*x509.Certificate, chains [][]*x509.Certificate) {
	size := 0
	for _, c := range chain {
		size += len(c.Raw)
	}
	if size > maxChain {
		return
	}
	v := &verified{chain: chain, begins: chain[0].NotBefore, ends: chain[0].NotAfter}
	for _, way := range chains {
		for _, c := range way {
			if c.NotBefore.After(v.begins) {
				v.begins = c.NotBefore
			}
			if c.NotAfter.Before(v.ends) {
				v.ends = c.NotAfter
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.verified == nil {
		a.verified = make(map[verifiedKey]*verified)
	}
	for other := range a.verified {
		if len(a.verified) < maxVerified {
			break
		}
		delete(a.verified, other)
	}
	a.verified[key] = v
}
