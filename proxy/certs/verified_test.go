package certs

import (
	"crypto/x509"
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/mint"
)

const (
	asClient = x509.ExtKeyUsageClientAuth
	asServer = x509.ExtKeyUsageServerAuth
)

// issuer issues certificates that begin an hour ago and end in an hour.
type issuer struct {
	t    testing.TB
	root *mint.Certificate
}

func newIssuer(t testing.TB) issuer {
	i := issuer{t: t}
	i.root = i.mint(&x509.Certificate{IsCA: true, NotAfter: time.Now().Add(24 * time.Hour)}, nil)
	return i
}

func (i issuer) mint(template *x509.Certificate, by *mint.Certificate) *mint.Certificate {
	i.t.Helper()
	template.BasicConstraintsValid = true
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	made, err := mint.New(template, by)
	if err != nil {
		i.t.Fatal(err)
	}
	return made
}

// client is a chain for clients only.
func (i issuer) client(names ...string) []*x509.Certificate {
	made := i.mint(&x509.Certificate{DNSNames: names, ExtKeyUsage: []x509.ExtKeyUsage{asClient}}, i.root)
	return []*x509.Certificate{made.X509()}
}

func (i issuer) authorities() *authorities {
	roots := x509.NewCertPool()
	roots.AddCert(i.root.X509())
	return &authorities{roots: roots}
}

// TestVerified: a chain that was good stays good while it is valid, for the same use and at the same authorities.
func TestVerified(t *testing.T) {
	now, i := time.Now(), newIssuer(t)
	a, chain := i.authorities(), i.client("a.test")
	for range 2 { // the second time it is remembered
		for name, c := range map[string]struct {
			usage x509.ExtKeyUsage
			at    time.Time
			good  bool
		}{
			"now":                {asClient, now, true},
			"for another use":    {asServer, now, false},
			"before it begins":   {asClient, now.Add(-2 * time.Hour), false},
			"after it has ended": {asClient, now.Add(2 * time.Hour), false},
		} {
			if err := a.verify(chain, c.usage, c.at); (err == nil) != c.good {
				t.Errorf("%s: %v", name, err)
			}
		}
		if len(a.verified) != 1 {
			t.Errorf("%d chains are remembered, want 1", len(a.verified))
		}
	}
	if err := newIssuer(t).authorities().verify(chain, asClient, now); err == nil {
		t.Error("another authority has accepted it")
	}
}

// TestVerifiedEnds: a chain is remembered until the first of its certificates ends.
func TestVerifiedEnds(t *testing.T) {
	now, i := time.Now(), newIssuer(t)
	between := i.mint(&x509.Certificate{IsCA: true, NotAfter: now.Add(time.Minute)}, i.root)
	leaf := i.mint(&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{asClient}}, between)
	a, chain := i.authorities(), []*x509.Certificate{leaf.X509(), between.X509()}
	if err := a.verify(chain, asClient, now); err != nil {
		t.Fatal(err)
	}
	if err := a.verify(chain, asClient, now.Add(2*time.Minute)); err == nil {
		t.Error("it is good after its authority has ended")
	}
}

// TestVerifiedOnce: a remembered chain is not verified again.
func TestVerifiedOnce(t *testing.T) {
	now, i := time.Now(), newIssuer(t)
	a, chain := i.authorities(), i.client("a.test")
	if err := a.verify(chain, asClient, now); err != nil {
		t.Fatal(err)
	}
	a.roots = x509.NewCertPool() // would refuse it
	if err := a.verify(chain, asClient, now); err != nil {
		t.Error(err)
	}
}

// TestVerifiedBounds: some chains are remembered, but no long ones, and none that was refused.
func TestVerifiedBounds(t *testing.T) {
	now, i := time.Now(), newIssuer(t)
	a := i.authorities()
	for range maxVerified + 10 {
		if err := a.verify(i.client(), asClient, now); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(a.verified); n != maxVerified {
		t.Errorf("%d chains are remembered, want %d", n, maxVerified)
	}
	var names []string
	for n := range maxChain / 20 {
		names = append(names, fmt.Sprintf("a-name-of-many-%d.test", n))
	}
	revoked := i.client("revoked.test")
	listed := &revocations{serials: map[string]map[string]struct{}{
		string(revoked[0].RawIssuer): {string(revoked[0].SerialNumber.Bytes()): {}},
	}}
	for name, c := range map[string]struct {
		chain   []*x509.Certificate
		by      *authorities
		refused bool
	}{
		"a long one":                  {i.client(names...), i.authorities(), false},
		"a revoked one":               {revoked, &authorities{roots: i.authorities().roots, lists: listed}, true},
		"one of an unknown authority": {i.client(), newIssuer(t).authorities(), true},
	} {
		if err := c.by.verify(c.chain, asClient, now); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
		if len(c.by.verified) > 0 {
			t.Errorf("%s is remembered", name)
		}
	}
}

// BenchmarkVerify measures the verification of a chain that is remembered, and of one that is not.
func BenchmarkVerify(b *testing.B) {
	i := newIssuer(b)
	a, chain, now := i.authorities(), i.client("a.test"), time.Now()
	for _, remembered := range []bool{false, true} {
		b.Run(fmt.Sprintf("remembered=%t", remembered), func(b *testing.B) {
			for b.Loop() {
				if !remembered {
					clear(a.verified)
				}
				if err := a.verify(chain, asClient, now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
