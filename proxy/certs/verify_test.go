package certs

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/mint"
)

// TestVerifyChain: a chain may have authorities between its leaf and the root, in any order.
func TestVerifyChain(t *testing.T) {
	issued := func(name string, authority bool, by *mint.Certificate) (*mint.Certificate, *x509.Certificate) {
		t.Helper()
		template := &x509.Certificate{
			Subject:   pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature,
		}
		if authority {
			template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		}
		made, err := mint.New(template, by)
		if err != nil {
			t.Fatal(err)
		}
		return made, made.X509()
	}
	signer, root := issued("root", true, nil)
	signer, upper := issued("upper", true, signer)
	signer, lower := issued("lower", true, signer)
	_, leaf := issued("leaf", false, signer)
	roots := x509.NewCertPool()
	roots.AddCert(root)
	for _, c := range []struct {
		name  string
		chain []*x509.Certificate
		code  string
	}{
		{"the whole chain", []*x509.Certificate{leaf, lower, upper}, ""},
		{"in another order", []*x509.Certificate{leaf, upper, lower}, ""},
		{"with the root", []*x509.Certificate{leaf, lower, upper, root}, ""},
		{"without the upper authority", []*x509.Certificate{leaf, lower}, CodeUnknownCA},
		{"without the lower authority", []*x509.Certificate{leaf, upper}, CodeUnknownCA},
		{"nothing", nil, CodeNoCertificate},
	} {
		err := (&authorities{roots: roots}).accept(c.chain, x509.ExtKeyUsageClientAuth, func(accepted *x509.Certificate) error {
			if accepted != leaf {
				t.Errorf("%s: the names of %q were asked for", c.name, accepted.Subject)
			}
			return nil
		})
		var refused *VerifyError
		if (err == nil) != (c.code == "") || err != nil && (!errors.As(err, &refused) || refused.Code != c.code) {
			t.Errorf("%s: %v, want code %q", c.name, err, c.code)
		}
	}
}

// TestRefusedIsPermission: a refusal is no other kind of error than one of permission.
func TestRefusedIsPermission(t *testing.T) {
	cause := errors.New("why")
	refused := error(&VerifyError{CodeWrongPeer, cause})
	for target, want := range map[error]bool{fs.ErrPermission: true, cause: true, fs.ErrNotExist: false} {
		if got := errors.Is(refused, target); got != want {
			t.Errorf("it is %q: %t", target, got)
		}
	}
}
