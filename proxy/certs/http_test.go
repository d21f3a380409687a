package certs

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/testcerts"
)

// openHTTP opens an identity of HTTP.
func openHTTP(t *testing.T, d testcerts.Dir, h HTTP, peers ...string) *Source {
	t.Helper()
	s, err := Open(Options{Cert: d.Cert, Key: d.Key, CA: d.CA, Peers: peers, HTTP: &h, Interval: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestHTTPNames: a server must prove the name that was dialled, by SNI or as an address.
func TestHTTPNames(t *testing.T) {
	ca := testcerts.New(t)
	d := testcerts.NewDir(t, ca, nil, nil)
	d.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"a.test", "127.0.0.1"}}))
	more := testcerts.NewDir(t, ca, nil, nil)
	more.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"b.test"}}))
	server := openHTTP(t, d, HTTP{More: []KeyPair{{more.Cert, more.Key}}})
	client := openHTTP(t, testcerts.Dir{CA: d.CA}, HTTP{})
	byPeer := openHTTP(t, testcerts.Dir{CA: d.CA}, HTTP{}, "b.test")
	for _, c := range []struct {
		from       *Source
		addr, name string
		ok         bool
	}{
		{client, "127.0.0.1:1", "a.test", true},
		{client, "127.0.0.1:1", "b.test", true},
		{client, "127.0.0.1:1", "c.test", false},
		{client, "127.0.0.1:1", "", true},
		{client, "127.0.0.2:1", "", false},
		{byPeer, "127.0.0.1:1", "b.test", true},
		{byPeer, "127.0.0.1:1", "a.test", false}, // another certificate, without the name
	} {
		_, err := handshake(t, server.Server(), c.from.ClientFor(c.addr, c.name))
		var refused *VerifyError
		if (err == nil) != c.ok || err != nil && (!errors.As(err, &refused) || refused.Code != CodeWrongPeer) {
			t.Errorf("%s, %q: %v", c.addr, c.name, err)
		}
	}
}

// resumed makes one handshake, and reports whether it resumed a session.
func resumed(t *testing.T, server, client *tls.Config) (did bool) {
	t.Helper()
	client = client.Clone()
	verify := client.VerifyConnection
	client.VerifyConnection = func(cs tls.ConnectionState) error {
		did = cs.DidResume
		return verify(cs)
	}
	if a, b := handshake(t, server, client); a != nil || b != nil {
		t.Fatalf("%v, %v", a, b)
	}
	return did
}

// TestHTTPResumes: a session is resumed with its endpoint and name, and not with another
// configuration. What its peer is allowed is asked again.
func TestHTTPResumes(t *testing.T) {
	ca := testcerts.New(t)
	d := testcerts.NewDir(t, ca, nil, nil)
	d.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"a.test", "b.test"}}))
	server := openHTTP(t, d, HTTP{Clients: tls.RequireAnyClientCert})
	client := openHTTP(t, d, HTTP{})
	own := server.Server()
	for i, c := range []struct {
		addr, name string
		want       bool
	}{
		{"127.0.0.1:1", "a.test", false}, {"127.0.0.1:1", "a.test", true}, {"127.0.0.1:2", "a.test", false}, {"127.0.0.1:1", "b.test", false},
		{"127.0.0.1:2", "a.test", true},
	} {
		if got := resumed(t, own, client.ClientFor(c.addr, c.name)); got != c.want {
			t.Errorf("connection %d: resumed %t", i, got)
		}
	}
	// The server's view of a client that is no longer accepted.
	strict := own.Clone()
	refusal := &VerifyError{CodeWrongPeer, errors.New("not any more")}
	strict.VerifyConnection = func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 {
			t.Error("a resumed session has no certificate")
		}
		return refusal
	}
	if err, _ := handshake(t, strict, client.ClientFor("127.0.0.1:1", "a.test")); !errors.Is(err, refusal) {
		t.Errorf("the server accepted it: %v", err)
	}
	// A changed file ends all sessions, of both sides.
	loads := client.Stats().Loads
	d.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"a.test", "b.test"}}))
	await(t, "the new files", func() bool { return client.Stats().Loads > loads && server.Stats().Loads > loads })
	if resumed(t, server.Server(), client.ClientFor("127.0.0.1:1", "a.test")) {
		t.Error("a session of the former certificate was resumed")
	}
}

// TestHTTPCheck: the faults of further certificates name their settings.
func TestHTTPCheck(t *testing.T) {
	ca := testcerts.New(t)
	d := testcerts.NewDir(t, ca, nil, nil)
	d.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"a.test"}}))
	other := testcerts.NewDir(t, ca, nil, nil)
	other.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"b.test"}}))
	o := Options{Cert: d.Cert, Key: d.Key, HTTP: &HTTP{More: []KeyPair{{other.Cert, other.Key}, {other.Cert, d.Key}, {d.Cert + ".none", d.Key}}}}
	var keys []string
	for _, f := range Check(o, time.Now()) {
		keys = append(keys, f.Key)
	}
	if len(keys) != 2 || keys[0] != "certificates[1].key" || keys[1] != "certificates[2].cert" {
		t.Errorf("faults of %q", keys)
	}
	same := o
	same.HTTP = &HTTP{More: o.HTTP.More}
	changed := o
	changed.HTTP = &HTTP{More: o.HTTP.More[:1]}
	if s := (&Source{opt: o}); !s.Has(same) || s.Has(changed) || s.Has(Options{Cert: d.Cert, Key: d.Key}) {
		t.Error("Has is wrong")
	}
}

// TestHTTPClients: which clients a server accepts, by its mode and peers.
func TestHTTPClients(t *testing.T) {
	ca, other := testcerts.New(t), testcerts.New(t)
	d := testcerts.NewDir(t, ca, nil, nil)
	d.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"server.test"}}))
	by := func(ca *testcerts.CA, name string) []tls.Certificate {
		t.Helper()
		pair, err := tls.X509KeyPair(ca.Issue(testcerts.Leaf{Names: []string{name}}))
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{pair}
	}
	a, b, foreign := by(ca, "a.test"), by(ca, "b.test"), by(other, "a.test")
	const may, must = tls.RequestClientCert, tls.RequireAnyClientCert
	for _, c := range []struct {
		name    string
		mode    tls.ClientAuthType
		peers   []string
		client  []tls.Certificate
		refused string // empty, a code, or what package tls says
	}{
		{"none asked for", tls.NoClientCert, nil, nil, ""},
		{"none asked for, one there", tls.NoClientCert, nil, foreign, ""},
		{"none, may", may, nil, nil, ""},
		{"none, may, with peers", may, []string{"a.test"}, nil, ""},
		{"none, must", must, nil, nil, "didn't provide a certificate"},
		{"any name, may", may, nil, b, ""},
		{"any name, must", must, nil, b, ""},
		{"accepted, may", may, []string{"a.test"}, a, ""},
		{"accepted, must", must, []string{"a.test"}, a, ""},
		{"another name, may", may, []string{"a.test"}, b, CodeWrongPeer},
		{"another name, must", must, []string{"a.test"}, b, CodeWrongPeer},
		{"another authority, may", may, nil, foreign, CodeUnknownCA},
		{"another authority, must", must, []string{"a.test"}, foreign, CodeUnknownCA},
	} {
		s := openHTTP(t, d, HTTP{Clients: c.mode}, c.peers...)
		named := 0 // authorities that the server names to the client
		client := &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			named = len(info.AcceptableCAs)
			if c.client == nil {
				return &tls.Certificate{}, nil
			}
			return &c.client[0], nil
		}}
		err, _ := handshake(t, s.Server(), client)
		got := ""
		var refused *VerifyError
		if errors.As(err, &refused) {
			got = refused.Code
		} else if err != nil {
			got = err.Error()
		}
		if (got == "") != (c.refused == "") || !strings.Contains(got, c.refused) {
			t.Errorf("%s: %v, want %q", c.name, err, c.refused)
		}
		if asked := c.mode != tls.NoClientCert; (named == 1) != asked {
			t.Errorf("%s: the server named %d authorities", c.name, named)
		}
	}
}

// TestHTTPMoreReload: a changed further certificate is used, too.
func TestHTTPMoreReload(t *testing.T) {
	ca := testcerts.New(t)
	d, more := testcerts.NewDir(t, ca, nil, nil), testcerts.NewDir(t, ca, nil, nil)
	d.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"a.test"}}))
	more.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"b.test"}}))
	server := openHTTP(t, d, HTTP{More: []KeyPair{{more.Cert, more.Key}}})
	client := openHTTP(t, testcerts.Dir{CA: d.CA}, HTTP{}).ClientFor("127.0.0.1:1", "c.test")
	if _, err := handshake(t, server.Server(), client); err == nil {
		t.Error("a name was proven that no certificate has")
	}
	more.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"c.test"}}))
	await(t, "the new certificate", func() bool { return server.Stats().Loads == 2 })
	if _, err := handshake(t, server.Server(), client); err != nil {
		t.Errorf("with the new certificate: %v", err)
	}
}

// TestLinkClientFor: a link does not need the name of its peer.
func TestLinkClientFor(t *testing.T) {
	ca := testcerts.New(t)
	d := testcerts.NewDir(t, ca, nil, nil)
	d.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"a.test"}}))
	if s := open(t, d, "a.test"); s.ClientFor("127.0.0.1:1", "b.test") != s.Client() {
		t.Error("a name changes the configuration")
	}
}

// TestHTTPCipherSuites: with TLS 1.2 a server accepts no cipher suite without forward secrecy or authenticated encryption.
func TestHTTPCipherSuites(t *testing.T) {
	ca := testcerts.New(t)
	d := testcerts.NewDir(t, ca, nil, nil)
	d.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"a.test"}}))
	server := openHTTP(t, d, HTTP{})
	accepted := 0
	for _, suite := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		if !slices.Contains(suite.SupportedVersions, tls.VersionTLS12) {
			continue
		}
		serverErr, clientErr := handshake(t, server.Server(), &tls.Config{
			MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite.ID}, InsecureSkipVerify: true,
		})
		ok := serverErr == nil && clientErr == nil
		good := strings.HasPrefix(suite.Name, "TLS_ECDHE_") && (strings.Contains(suite.Name, "_GCM_") || strings.Contains(suite.Name, "_POLY1305_"))
		if ok && !good {
			t.Errorf("accepted: %s", suite.Name)
		}
		if ok {
			accepted++
		}
	}
	if accepted != 3 { // of the six good ones those that fit the key
		t.Errorf("%d suites are accepted, want 3", accepted)
	}
}
