package certs

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// maxVerified limits the chains that are remembered. A chain of two certificates takes some 6 KiB. The largest
	// takes some 50 KiB, but only an authority can make one: a certificate of 8 KiB that is full of names.
	maxVerified = 128

	// maxMessage limits the message of a remembered certificate, in bytes. The certificate keeps it in memory, since
	// package x509 copies no certificate. What comes before the certificate in the message does not count.
	maxMessage = 8 << 10
)

// authorities verify the chains of peers. An authorities value belongs to one state of the files: a good chain stays good
// until one of its certificates ends, and is remembered. To verify a chain takes a seventh of the CPU of a handshake on
// a link. Any goroutine may call the methods.
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

// accept checks a peer's chain, leaf first, and its leaf by acceptLeaf. Package tls asks before the peer has proved
// that it has the leaf's key, so the chain may be somebody else's.
func (a *authorities) accept(chain []*x509.Certificate, usage x509.ExtKeyUsage, acceptLeaf func(*x509.Certificate) error) error {
	if len(chain) == 0 {
		return &VerifyError{CodeNoCertificate, errors.New("no certificate")}
	}
	return a.acceptAt(time.Now(), chain, usage, acceptLeaf)
}

// acceptAt is accept at a time.
func (a *authorities) acceptAt(now time.Time, chain []*x509.Certificate, usage x509.ExtKeyUsage, acceptLeaf func(*x509.Certificate) error) error {
	key := keyOf(chain, usage)
	if a.knows(key, now) {
		return acceptLeaf(chain[0])
	}
	ways, err := a.verify(chain, usage, now)
	if err != nil {
		return err
	}
	if err := acceptLeaf(chain[0]); err != nil {
		return err
	}
	if a.isMemorable(chain, ways) {
		a.remember(key, chain, ways)
	}
	return nil
}

// verify checks a chain against the authorities and the revocation lists. It returns all ways from the leaf to an
// authority.
func (a *authorities) verify(chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) (ways [][]*x509.Certificate, _ error) {
	o := x509.VerifyOptions{Roots: a.roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{usage}, CurrentTime: now}
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	ways, err := chain[0].Verify(o)
	if err != nil {
		return nil, &VerifyError{codeOf(err), err}
	}
	return ways, a.lists.check(ways)
}

// isMemorable reports whether a chain is small, and the beginning of one of the ways. Otherwise anybody could add
// certificates to a leaf, and each such chain would take the place of another one.
func (a *authorities) isMemorable(chain []*x509.Certificate, ways [][]*x509.Certificate) bool {
	if a.roots == nil {
		return false
	}
	for _, c := range chain {
		if cap(c.Raw) > maxMessage { // its bytes are a part of the message
			return false
		}
	}
	return slices.ContainsFunc(ways, func(way []*x509.Certificate) bool {
		return len(chain) <= len(way) && slices.EqualFunc(chain, way[:len(chain)], (*x509.Certificate).Equal)
	})
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

// remember keeps a chain that leads to an authority by ways. If there are too many chains, it forgets any other chain.
func (a *authorities) remember(key verifiedKey, chain []*x509.Certificate, ways [][]*x509.Certificate) {
	v := &verified{chain: chain, begins: chain[0].NotBefore, ends: chain[0].NotAfter}
	for _, way := range ways {
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
