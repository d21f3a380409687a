package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/mint"
)

const (
	asClient = x509.ExtKeyUsageClientAuth
	asServer = x509.ExtKeyUsageServerAuth
)

// issuer issues certificates that begin an hour ago and end in an hour, unless their templates say otherwise.
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
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
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

// judge is acceptAt of any leaf.
func (a *authorities) judge(chain []*x509.Certificate, usage x509.ExtKeyUsage, at time.Time) error {
	return a.acceptAt(at, chain, usage, func(*x509.Certificate) error { return nil })
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
			if err := a.judge(chain, c.usage, c.at); (err == nil) != c.good {
				t.Errorf("%s: %v", name, err)
			}
		}
		if len(a.verified) != 1 {
			t.Errorf("%d chains are remembered, want 1", len(a.verified))
		}
	}
	if err := newIssuer(t).authorities().judge(chain, asClient, now); err == nil {
		t.Error("another authority has accepted it")
	}
}

// TestVerifiedTimes: a remembered chain is good from when the last of its certificates begins until the first one ends.
func TestVerifiedTimes(t *testing.T) {
	now, i := time.Now().Truncate(time.Second), newIssuer(t)
	begin, end := now.Add(-time.Minute), now.Add(time.Minute)
	short := func() *x509.Certificate { return &x509.Certificate{NotBefore: begin, NotAfter: end} }
	for name, templates := range map[string][2]*x509.Certificate{
		"the authority": {short(), {}}, "the leaf": {{}, short()},
	} {
		of, template := templates[0], templates[1]
		of.IsCA, template.ExtKeyUsage = true, []x509.ExtKeyUsage{asClient}
		between := i.mint(of, i.root)
		a, chain := i.authorities(), []*x509.Certificate{i.mint(template, between).X509(), between.X509()}
		if err := a.judge(chain, asClient, now); err != nil {
			t.Fatal(err)
		}
		for at, want := range map[time.Time]bool{begin.Add(-1): false, begin: true, end: true, end.Add(1): false} {
			if err := a.judge(chain, asClient, at); (err == nil) != want {
				t.Errorf("%s is short: at %s, from %s to %s: %v", name, at, begin, end, err)
			}
		}
	}
}

// TestVerifiedOnce: a remembered chain is not verified again.
func TestVerifiedOnce(t *testing.T) {
	now, i := time.Now(), newIssuer(t)
	a, chain := i.authorities(), i.client("a.test")
	if err := a.judge(chain, asClient, now); err != nil {
		t.Fatal(err)
	}
	a.roots = x509.NewCertPool() // would refuse it
	if err := a.judge(chain, asClient, now); err != nil {
		t.Error(err)
	}
}

// TestVerifiedBounds: a bounded number of chains is remembered.
func TestVerifiedBounds(t *testing.T) {
	now, i := time.Now(), newIssuer(t)
	a := i.authorities()
	for range maxVerified + 10 {
		if err := a.judge(i.client(), asClient, now); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(a.verified); n != maxVerified {
		t.Errorf("%d chains are remembered, want %d", n, maxVerified)
	}
}

// TestVerifiedMemorable: a chain is remembered only if it was accepted, is small and has no certificate too many.
func TestVerifiedMemorable(t *testing.T) {
	i := newIssuer(t)
	between := i.mint(&x509.Certificate{IsCA: true}, i.root).X509()
	below := i.mint(&x509.Certificate{IsCA: true}, i.root)
	leaf, root, junk := i.client("a.test")[0], i.root.X509(), i.client("junk.test")[0]
	deep := i.mint(&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{asClient}}, below).X509()
	inMessage := func(size int) *x509.Certificate {
		c, err := x509.ParseCertificate(append(make([]byte, 0, size), leaf.Raw...))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ours := func() *authorities { return i.authorities() }
	revoking := func() *authorities {
		return &authorities{roots: ours().roots, lists: &revocations{serials: map[string]map[string]struct{}{
			string(leaf.RawIssuer): {string(leaf.SerialNumber.Bytes()): {}},
		}}}
	}
	refusal := errors.New("refused")
	for _, c := range []struct {
		name       string
		chain      []*x509.Certificate
		by         func() *authorities
		acceptLeaf error
		accepted   bool
		remembered bool
	}{
		{"a leaf", chainOf(leaf), ours, nil, true, true},
		{"with its authority", chainOf(leaf, root), ours, nil, true, true},
		{"with all its authorities", chainOf(deep, below.X509(), root), ours, nil, true, true},
		{"without the last one", chainOf(deep, below.X509()), ours, nil, true, true},
		{"in a small message", chainOf(inMessage(maxMessage)), ours, nil, true, true},
		{"in a large message", chainOf(inMessage(maxMessage + 1)), ours, nil, true, false},
		{"with another leaf", chainOf(leaf, junk), ours, nil, true, false},
		{"with another authority", chainOf(leaf, between), ours, nil, true, false},
		{"with a certificate too many", chainOf(leaf, root, junk), ours, nil, true, false},
		{"twice", chainOf(leaf, leaf), ours, nil, true, false},
		{"in another order", chainOf(deep, root, below.X509()), ours, nil, true, false},
		{"of a leaf that is refused", chainOf(leaf), ours, refusal, false, false},
		{"revoked", chainOf(leaf), revoking, nil, false, false},
		{"of an unknown authority", chainOf(leaf), newIssuer(t).authorities, nil, false, false},
	} {
		a := c.by()
		err := a.accept(c.chain, asClient, func(*x509.Certificate) error { return c.acceptLeaf })
		if (err == nil) != c.accepted {
			t.Errorf("%s: %v", c.name, err)
		}
		if (len(a.verified) > 0) != c.remembered {
			t.Errorf("%s: %d are remembered", c.name, len(a.verified))
		}
	}
}

// TestVerifiedBySystem: no chain to an authority of the system is remembered.
func TestVerifiedBySystem(t *testing.T) {
	i := newIssuer(t)
	chain := i.client("a.test")
	ours, ofSystem := i.authorities(), &authorities{}
	ways, err := ours.verify(chain, asClient, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if !ours.isMemorable(chain, ways) || ofSystem.isMemorable(chain, ways) {
		t.Error("the wrong chain is remembered")
	}
}

func chainOf(chain ...*x509.Certificate) []*x509.Certificate { return chain }

// TestVerifiedLeaf: the leaf of a remembered chain is judged each time.
func TestVerifiedLeaf(t *testing.T) {
	i := newIssuer(t)
	a, chain := i.authorities(), i.client("a.test")
	for _, want := range []error{nil, errors.New("refused"), nil} {
		if err := a.accept(chain, asClient, func(*x509.Certificate) error { return want }); err != want {
			t.Errorf("got %v, want %v", err, want)
		}
		if len(a.verified) != 1 {
			t.Errorf("%d chains are remembered", len(a.verified))
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
				if err := a.judge(chain, asClient, now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
