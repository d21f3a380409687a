package certs

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/syncbuffer"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// meshName is a name that the peers of these tests accept.
const meshName = "spiffe://test/sidecar"

func issue(ca *testcerts.CA) (cert, key []byte) {
	return ca.Issue(testcerts.Leaf{Names: []string{meshName, "127.0.0.1"}})
}

// TestRevoked: either end refuses a certificate on a list, and no other.
func TestRevoked(t *testing.T) {
	ca, other := testcerts.New(t), testcerts.New(t)
	badCert, badKey := issue(ca)
	good, bad := testcerts.NewDir(t, ca, nil, nil), testcerts.NewDir(t, ca, badCert, badKey)
	good.Rotate(issue(ca))
	elsewhere, _ := issue(other)
	list, empty := ca.List(nil, badCert), ca.List(nil)
	for _, c := range []struct {
		name    string
		file    []byte
		revoked bool
	}{
		{"PEM", testcerts.ListPEM(list), true},
		{"DER", list, true},
		{"the second in PEM", testcerts.ListPEM(empty, list), true},
		{"the second in DER", slices.Concat(empty, list), true},
		{"beside certificates", slices.Concat(ca.PEM, testcerts.ListPEM(list)), true},
		{"empty", testcerts.ListPEM(empty), false},
		{"of another", ca.List(nil, elsewhere), false},
		{"outdated", ca.List(func(l *x509.RevocationList) { l.NextUpdate = l.ThisUpdate.Add(time.Minute) }, badCert), true},
		{"for a part", ca.List(extension(oidDistributionPoint, []byte{0x30, 3, 0x81, 1, 0xff}), badCert), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			good.Write(good.CRL, c.file)
			own, peer := openWithList(t, good, nil, meshName), open(t, bad, meshName)
			byName := openWithList(t, testcerts.Dir{CA: good.CA, CRL: good.CRL}, nil) // without peers
			named := byName.Client().Clone()
			named.ServerName = "127.0.0.1"
			server, _ := handshake(t, own.Server(), peer.Client())
			_, client := handshake(t, peer.Server(), own.Client())
			anonymous := peer.Server().Clone()
			anonymous.ClientAuth, anonymous.VerifyConnection = 0, nil
			_, dialled := handshake(t, anonymous, named)
			for _, err := range []error{server, client, dialled} {
				var refused *VerifyError
				if errors.As(err, &refused) != c.revoked || c.revoked && refused.Code != CodeRevoked || !c.revoked && err != nil {
					t.Errorf("the handshake ended with %v", err)
				}
			}
		})
	}
}

// extension returns a change of a list that adds a critical extension.
func extension(id asn1.ObjectIdentifier, value []byte) func(*x509.RevocationList) {
	return func(l *x509.RevocationList) {
		l.ExtraExtensions = []pkix.Extension{{Id: id, Critical: true, Value: value}}
	}
}

func openWithList(t *testing.T, d testcerts.Dir, log *slog.Logger, peers ...string) *Source {
	t.Helper()
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s, err := Open(Options{Cert: d.Cert, Key: d.Key, CA: d.CA, CRL: d.CRL, Peers: peers, Interval: time.Millisecond, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestRevokedAuthority: a chain through a revoked authority is refused, unless there is another.
func TestRevokedAuthority(t *testing.T) {
	leaf := &x509.Certificate{RawIssuer: []byte("authority")}
	authority := &x509.Certificate{RawIssuer: []byte("root")}
	for _, c := range []*x509.Certificate{leaf, authority} {
		c.SerialNumber = big.NewInt(7)
	}
	r := &revocations{serials: map[string]map[string]struct{}{"root": {"\x07": {}}}}
	through, beside := []*x509.Certificate{leaf, authority}, []*x509.Certificate{leaf}
	if err := r.check([][]*x509.Certificate{through}); err == nil {
		t.Error("a revoked authority was accepted")
	}
	if err := r.check([][]*x509.Certificate{through, beside}); err != nil {
		t.Errorf("with another chain: %v", err)
	}
}

// TestListRefused: a file that can't be used prevents the start, and is a fault of its key.
func TestListRefused(t *testing.T) {
	ca, other := testcerts.New(t), testcerts.New(t)
	cert, key := issue(ca)
	d := testcerts.NewDir(t, ca, cert, key)
	list := ca.List(nil, cert)
	forged := bytes.Clone(list)
	forged[len(forged)-1] ^= 1
	entry := func(l *x509.RevocationList) {
		l.RevokedCertificateEntries[0].ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 29}, Critical: true, Value: []byte{0x30, 0}}}
	}
	for _, c := range []struct {
		name string
		file []byte
		want string
	}{
		{"text", []byte("no list\n"), "contains no revocation list"},
		{"empty", []byte{}, "contains no revocation list"},
		{"certificates", ca.PEM, "contains no revocation list"},
		{"more than a list", slices.Concat(list, []byte{0}), "contains no revocation list"},
		{"half a list", list[:len(list)/2], "contains no revocation list"},
		{"no list in PEM", testcerts.ListPEM([]byte("x")), "list 1: x509: malformed crl"},
		{"a forged list", forged, "ECDSA verification failure"},
		{"another authority's", testcerts.ListPEM(list, other.List(nil)), "list 2: "},
		{"a delta", ca.List(extension(asn1.ObjectIdentifier{2, 5, 29, 27}, []byte{2, 1, 1})), "critical extension that is not supported: 2.5.29.27"},
		{"an indirect one", ca.List(extension(oidDistributionPoint, []byte{0x30, 3, 0x84, 1, 0xff})), "not supported: 2.5.29.28"},
		{"a point that is no structure", ca.List(extension(oidDistributionPoint, []byte{1})), "not supported: 2.5.29.28"},
		{"a point with more behind it", ca.List(extension(oidDistributionPoint, []byte{0x30, 0, 0})), "not supported: 2.5.29.28"},
		{"an entry of another issuer", ca.List(entry, cert), "entry 1 has a critical extension"},
		{"too large", make([]byte, maxLists+1), "larger than 4 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d.Write(d.CRL, c.file)
			o := Options{Cert: d.Cert, Key: d.Key, CA: d.CA, CRL: d.CRL, Peers: []string{meshName}}
			if s, err := Open(o); err == nil || !strings.Contains(err.Error(), c.want) {
				if s != nil {
					s.Close()
				}
				t.Errorf("Open: %v, want %q", err, c.want)
			}
			faults := Check(o, time.Now())
			if len(faults) != 1 || faults[0].Key != "crl" || !strings.Contains(faults[0].Err.Error(), c.want) {
				t.Errorf("faults %v, want %q", faults, c.want)
			}
		})
	}
}

// TestSigner: a list counts if one of the authorities of its name has signed it, and may sign lists.
func TestSigner(t *testing.T) {
	ca, former := testcerts.New(t), testcerts.New(t)
	list, err := x509.ParseRevocationList(ca.List(nil))
	if err != nil {
		t.Fatal(err)
	}
	authority := func(of *testcerts.CA, change func(*x509.Certificate)) *x509.Certificate {
		t.Helper()
		all, err := parse("ca", of.PEM)
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(all[0])
		}
		return all[0]
	}
	signer := authority(ca, nil)
	another := authority(ca, func(c *x509.Certificate) { c.RawSubject = []byte("another") })
	for _, c := range []struct {
		name string
		ca   []*x509.Certificate
		want string // empty if the list counts
	}{
		{"its signer", []*x509.Certificate{signer}, ""},
		{"behind one of another name", []*x509.Certificate{another, signer}, ""},
		{"behind a former key", []*x509.Certificate{authority(former, nil), signer}, ""},
		{"with any key usage", []*x509.Certificate{authority(ca, func(c *x509.Certificate) { c.KeyUsage = 0 })}, ""},
		{"no lists", []*x509.Certificate{authority(ca, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCertSign })}, "its key usage lacks cRLSign"},
		{"another name", []*x509.Certificate{another}, "not in ca"},
		{"a former key", []*x509.Certificate{authority(former, nil)}, "verification failure"},
		{"none", nil, "not in ca"},
	} {
		err := checkSigner(list, c.ca)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestEarliest: of several lists, that which is outdated first counts. A list need not say when it is.
func TestEarliest(t *testing.T) {
	var never time.Time
	soon := time.Now()
	late := soon.Add(time.Hour)
	for _, c := range []struct{ a, b, want time.Time }{
		{never, never, never}, {never, late, late}, {late, never, late}, {soon, late, soon}, {late, soon, soon},
	} {
		if got := earliest(c.a, c.b); got != c.want {
			t.Errorf("of %s and %s: %s", c.a, c.b, got)
		}
	}
}

// TestOutdated: an outdated list is logged when the files are opened, too. A list that is not outdated is not logged.
func TestOutdated(t *testing.T) {
	ca := testcerts.New(t)
	cert, key := issue(ca)
	d := testcerts.NewDir(t, ca, cert, key)
	for _, c := range []struct {
		due  time.Duration
		want int // lines
	}{{-time.Minute, 1}, {time.Minute, 0}} {
		d.Write(d.CRL, ca.List(func(l *x509.RevocationList) { l.NextUpdate = time.Now().Add(c.due) }))
		var log syncbuffer.Buffer
		s, err := Open(Options{Cert: d.Cert, Key: d.Key, CA: d.CA, CRL: d.CRL, Peers: []string{meshName}, Interval: time.Hour,
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if n := strings.Count(log.String(), "tls_crl_outdated"); n != c.want {
			t.Errorf("due in %s: %d lines: %s", c.due, n, log.String())
		}
	}
}

// TestListReload: a new list is used without a reload, tells of the change, and a bad one leaves
// the last in use. An outdated list is logged.
func TestListReload(t *testing.T) {
	ca := testcerts.New(t)
	cert, key := issue(ca)
	d := testcerts.NewDir(t, ca, cert, key)
	d.Write(d.CRL, ca.List(nil))
	trust := make(chan struct{}, 8)
	var log syncbuffer.Buffer
	s, err := Open(Options{
		Cert: d.Cert, Key: d.Key, CA: d.CA, CRL: d.CRL, Peers: []string{meshName}, Interval: time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&log, nil)), OnTrust: func() { trust <- struct{}{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err, _ := handshake(t, s.Server(), s.Client()); err != nil {
		t.Fatal(err)
	}
	outdated := time.Now().Add(-time.Minute).UTC().Truncate(time.Second)
	d.Write(d.CRL, ca.List(func(l *x509.RevocationList) { l.NextUpdate = outdated }, cert))
	select {
	case <-trust:
	case <-time.After(timeout):
		t.Fatal("not told")
	}
	refuses := func() {
		t.Helper()
		var refused *VerifyError
		if _, err := handshake(t, s.Server(), s.Client()); !errors.As(err, &refused) || refused.Code != CodeRevoked {
			t.Errorf("the handshake ended with %v", err)
		}
	}
	refuses()
	if got := s.Stats().Outdates; !got.Equal(outdated) {
		t.Errorf("outdated at %s, want %s", got, outdated)
	}
	d.Write(d.CRL, []byte("no list"))
	await(t, "the bad list to be noticed", func() bool { return s.Stats().Failures > 0 })
	refuses()
	if n := strings.Count(log.String(), "tls_crl_outdated"); n != 1 {
		t.Errorf("%d lines of outdated lists: %s", n, log.String())
	}
}
