package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
)

// leaves parses descriptions that must be right.
func leaves(t *testing.T, texts ...string) []Leaf {
	t.Helper()
	all, err := ParseLeaves(texts)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestMake: certificates verify with the authority, for the names and uses that they were made
// for and no others, and only their owner can read keys.
func TestMake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	paths, err := Make(dir, leaves(t, "web=spiffe://example.org/web,example.test,*.example.test,10.0.0.1,::1", "other=localhost"), 24*time.Hour)
	if err != nil || len(paths) != 6 {
		t.Fatalf("%q: %v", paths, err)
	}
	for _, path := range paths {
		isKey, _ := filepath.Match("*-key.pem", filepath.Base(path))
		if info, err := os.Stat(path); err != nil || isKey && info.Mode() != 0o600 {
			t.Errorf("%s: %v, mode %v", path, err, info.Mode())
		}
	}
	authorities := x509.NewCertPool()
	pem, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil || !authorities.AppendCertsFromPEM(pem) {
		t.Fatalf("no authority: %v", err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "web.pem"), filepath.Join(dir, "web-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	verify := func(name string, at time.Time, use x509.ExtKeyUsage) error {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{
			Roots: authorities, DNSName: name, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{use},
		})
		return err
	}
	for _, name := range []string{"example.test", "a.example.test", "10.0.0.1", "::1", ""} {
		for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
			if err := verify(name, time.Now(), use); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if uris := pair.Leaf.URIs; len(uris) != 1 || uris[0].String() != "spiffe://example.org/web" {
		t.Errorf("URIs %v", uris)
	}
	for name, err := range map[string]error{
		"another name": verify("localhost", time.Now(), x509.ExtKeyUsageServerAuth),
		"another use":  verify("", time.Now(), x509.ExtKeyUsageCodeSigning),
		"tomorrow":     verify("", time.Now().Add(25*time.Hour), x509.ExtKeyUsageServerAuth),
		"yesterday":    verify("", time.Now().Add(-24*time.Hour), x509.ExtKeyUsageServerAuth),
	} {
		if err == nil {
			t.Errorf("%s: verified", name)
		}
	}
	if ca, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca-key.pem")); err != nil || !ca.Leaf.IsCA || pair.Leaf.IsCA {
		t.Errorf("the authority: %v", err)
	}
}

// TestMakeReplacesNothing: a file that exists is kept, and no other is left behind.
func TestMakeReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "b-key.pem")
	must.WriteFile(t, kept, "mine")
	paths, err := Make(dir, leaves(t, "a=localhost", "b=localhost"), time.Hour)
	if !errors.Is(err, fs.ErrExist) || paths != nil {
		t.Errorf("%q: %v", paths, err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	if text, err := os.ReadFile(kept); err != nil || string(text) != "mine" || !slices.Equal(left, []string{kept}) {
		t.Errorf("%q, %q: %v", text, left, err)
	}
	if _, err := Make(filepath.Join(kept, "x"), nil, time.Hour); err == nil {
		t.Error("a file was taken for a directory")
	}
	if _, err := Make(dir, leaves(t, "a=localhost", "a=localhost"), time.Hour); err == nil {
		t.Error("two certificates have one name")
	}
}

// TestParseLeaves: descriptions of no certificate are refused.
func TestParseLeaves(t *testing.T) {
	for _, text := range []string{
		"", "a", "a=", "=b", "../a=b", "a b=c", ".a=b", "-a=b", "ca=b", "a=b,,c", "a=b c", "a=b/c", "a=*", "a=b.*.c", "a=b:80", "a=spiffe://",
		"a=spiffe://x:1/y", "a=spiffe://u@x/y", "a=spiffe://x/y?z", "a=https://x/y", "a=spiffe://x/y,spiffe://x/z", "a=1.2.3.4/8",
	} {
		if got, err := ParseLeaves([]string{text}); err == nil {
			t.Errorf("%q: got %+v", text, got)
		}
	}
}
