package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/syncbuffer"
	"github.com/remora-proxy/remora/internal/testcerts"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const timeout = time.Minute

func open(t *testing.T, d testcerts.Dir, peers ...string) *Source {
	t.Helper()
	s, err := Open(Options{
		Cert: d.Cert, Key: d.Key, CA: d.CA, Peers: peers,
		Interval: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// connected returns both ends of a connection.
func connected(t *testing.T) (a, b net.Conn) {
	t.Helper()
	ln := must.Listen(t)
	b = must.Dial(t, "tcp", ln.Addr().String())
	a, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a, b
}

// handshake makes one handshake and returns its error on either side. The server
// writes a byte, because a TLS 1.3 client finishes before it is verified.
func handshake(t *testing.T, server, client *tls.Config) (serverErr, clientErr error) {
	t.Helper()
	a, b := connected(t)
	end := time.Now().Add(timeout)
	_ = a.SetDeadline(end)
	_ = b.SetDeadline(end)
	done := make(chan error, 1)
	go func() {
		c := tls.Server(a, server)
		defer a.Close()
		err := c.Handshake()
		if err == nil {
			_, err = c.Write([]byte{1})
		}
		done <- err
	}()
	c := tls.Client(b, client)
	clientErr = c.Handshake()
	if clientErr == nil {
		_, clientErr = c.Read(make([]byte, 1))
	}
	b.Close()
	return <-done, clientErr
}

func TestPeers(t *testing.T) {
	cert := &x509.Certificate{DNSNames: []string{"A.Svc", "*.wild", "x.y.deep", "dotted.test."}}
	uri, err := url.Parse("spiffe://d/ns/a/sa/b")
	if err != nil {
		t.Fatal(err)
	}
	cert.URIs = []*url.URL{uri}
	for _, c := range []struct {
		pattern string
		want    bool
	}{
		{"a.svc", true}, {"dns:a.svc", true}, {"A.SVC", true}, {"*.svc", true}, {"dns:*.SVC", true},
		{"A.svc.", true}, {"dns:*.svc.", true}, {"dotted.test", false}, {"dotted.test.", false}, // no name has a dot at its end (RFC 5280)
		{"b.svc", false}, {"svc", false}, {"xa.svc", false}, {"a.svc.x", false}, {"*.a.svc", false},
		{"*.wild", false}, {"x.wild", false},
		{"*.deep", false}, {"*.y.deep", true}, {"y.deep", false},
		{"spiffe://d/ns/a/sa/b", true}, {"spiffe://d/*", true}, {"spiffe://d/ns/a/*", true},
		{"spiffe://d/ns/a/sa", false}, {"spiffe://d/ns/a/sa/b/*", false}, {"spiffe://d/n/*", false},
		{"spiffe://e/*", false}, {"https://d/ns/a/sa/b", false}, {"spiffe://d/ns/a/sa/*", true},
	} {
		p, err := ParsePeers([]string{c.pattern})
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		if got := p.accept(cert); got != c.want {
			t.Errorf("%s matches: %t, want %t", c.pattern, got, c.want)
		}
	}
	prefix, err := ParsePeers([]string{"spiffe://d/ns/*"})
	if err != nil {
		t.Fatal(err)
	}
	for below, want := range map[string]bool{
		"a": true, "a/b-1_2.C": true, "..a": true, "": false, "a/": false, "/a": false, "a//b": false, "../prov": false, "a/../../prov": false,
		"./a": false, "a/..": false, "%2e%2e/prov": false, "..%2fprov": false, "a?b": false, "a#b": false, "a;b": false, "a b": false, "é": false,
	} {
		uri, err := url.Parse("spiffe://d/ns/" + below)
		if err != nil {
			t.Fatal(err)
		}
		if got := prefix.accept(&x509.Certificate{URIs: []*url.URL{uri}}); got != want {
			t.Errorf("%s below the prefix: %t, want %t", below, got, want)
		}
	}
	for _, bad := range []string{"", "*", "dns:", "*.", ".", "..", ".svc", ".svc.", "a.*", "*a.svc", "a b", "127.0.0.1:80", "spiffe://", "spiffe:///x", "spiffe://d/*/x", "spiffe://*/x"} {
		if _, err := ParsePeers([]string{bad}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestVerify: a peer without an accepted name fails the handshake, as a client and
// as a server, and the error has the right code.
func TestVerify(t *testing.T) {
	ca, other := testcerts.New(t), testcerts.New(t)
	good := testcerts.NewDir(t, ca, nil, nil)
	good.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"spiffe://test/good"}}))
	pair := func(cert, key []byte) []tls.Certificate {
		p, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{p}
	}
	names := []string{"spiffe://test/good"}
	for _, c := range []struct {
		name string
		cert []tls.Certificate
		code string
	}{
		{"good", pair(ca.Issue(testcerts.Leaf{Names: names})), ""},
		{"expired", pair(ca.Issue(testcerts.Leaf{Names: names, Expired: true})), CodeExpired},
		{"another name", pair(ca.Issue(testcerts.Leaf{Names: []string{"spiffe://test/bad"}})), CodeWrongPeer},
		{"no name", pair(ca.Issue(testcerts.Leaf{})), CodeWrongPeer},
		{"self-signed", pair(testcerts.SelfSigned(t, testcerts.Leaf{Names: names})), CodeUnknownCA},
		{"another authority", pair(other.Issue(testcerts.Leaf{Names: names})), CodeUnknownCA},
		{"for other uses", pair(ca.Issue(testcerts.Leaf{Names: names, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}})), CodeBadCert},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, good, "spiffe://test/good")
			// As a client, and as a server.
			serverErr, _ := handshake(t, s.Server(), &tls.Config{Certificates: c.cert, InsecureSkipVerify: true})
			_, clientErr := handshake(t, &tls.Config{Certificates: c.cert, ClientAuth: tls.RequestClientCert}, s.Client())
			for who, err := range map[string]error{"server": serverErr, "client": clientErr} {
				var refused *VerifyError
				switch {
				case c.code == "" && err != nil:
					t.Errorf("%s: %v", who, err)
				case c.code != "" && (!errors.As(err, &refused) || refused.Code != c.code):
					t.Errorf("%s: %v, want code %s", who, err, c.code)
				}
			}
		})
	}
	s := open(t, good, "spiffe://test/good")
	if err, _ := handshake(t, s.Server(), &tls.Config{InsecureSkipVerify: true}); err == nil {
		t.Error("a client without a certificate was accepted")
	}
	old := &tls.Config{Certificates: pair(ca.Issue(testcerts.Leaf{Names: names})), InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}
	if err, _ := handshake(t, s.Server(), old); err == nil {
		t.Error("TLS 1.2 was accepted from a client")
	}
	if _, err := handshake(t, old, s.Client()); err == nil {
		t.Error("TLS 1.2 was accepted from a server")
	}
}

// await waits until ok reports that the Source's goroutine has done what.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(timeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout waiting for %s", what)
		}
	}
}

// TestReload: changed files are used for the next handshake. Files that can't be
// used only raise a counter, once for each content.
func TestReload(t *testing.T) {
	ca := testcerts.New(t)
	dir := testcerts.NewDir(t, ca, nil, nil)
	cert, key := ca.Issue(testcerts.Leaf{Names: []string{"one"}})
	dir.Rotate(cert, key)
	s := open(t, dir, "one", "two")
	before, first := s.Server(), s.Stats()
	if first.Loads != 1 || first.Expires.IsZero() {
		t.Fatalf("%+v", first)
	}
	dir.Write(dir.Cert, []byte("half of a"))
	await(t, "a failed reload", func() bool { return s.Stats().Failures == 1 })
	if err := os.Remove(dir.Key); err != nil {
		t.Fatal(err)
	}
	await(t, "a second failed reload", func() bool { return s.Stats().Failures == 2 })
	if s.Server() != before {
		t.Error("broken files are in use")
	}
	cert, key = ca.Issue(testcerts.Leaf{Names: []string{"two"}})
	dir.Write(dir.Key, key)
	dir.Write(dir.Cert, cert)
	await(t, "a reload", func() bool { return s.Stats().Loads == 2 })
	peer, err := ParsePeers([]string{"two"})
	if err != nil || s.Server() == before || !peer.accept(s.Server().Certificates[0].Leaf) {
		t.Errorf("%v; the certificate in use is not the new one", err)
	}

	next := testcerts.New(t)
	dir.Write(dir.CA, next.PEM)
	await(t, "new authorities", func() bool { return s.Stats().Loads == 3 })
	p, err := tls.X509KeyPair(ca.Issue(testcerts.Leaf{Names: []string{"one"}}))
	if err != nil {
		t.Fatal(err)
	}
	var refused *VerifyError
	err, _ = handshake(t, s.Server(), &tls.Config{Certificates: []tls.Certificate{p}, InsecureSkipVerify: true})
	if !errors.As(err, &refused) || refused.Code != CodeUnknownCA {
		t.Errorf("a client of the former authority: %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	ca := testcerts.New(t)
	dir := testcerts.NewDir(t, ca, nil, nil)
	dir.Rotate(ca.Issue(testcerts.Leaf{}))
	_, otherKey := ca.Issue(testcerts.Leaf{})
	other := dir.Key + "2"
	dir.Write(other, otherKey)
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Cert: dir.Cert}, "together"},
		{Options{Cert: dir.Cert, Key: "/none"}, "/none"},
		{Options{Key: dir.Key}, "together"},
		{Options{Cert: dir.Cert, Key: other}, "private key does not match"},
		{Options{Cert: dir.Cert, Key: other}, dir.Cert + " and " + other},
		{Options{Cert: dir.Cert, Key: other, HTTP: &HTTP{More: []KeyPair{{dir.Cert, dir.Key}}}}, "private key does not match"},
		{Options{Cert: dir.Cert, Key: dir.Key, HTTP: &HTTP{More: []KeyPair{{dir.Cert, other}}}}, dir.Cert + " and " + other},
		{Options{Cert: dir.Cert, Key: dir.Key, HTTP: &HTTP{More: []KeyPair{{dir.Cert, "/none"}}}}, "/none"},
		{Options{Cert: dir.Cert, Key: dir.Key, HTTP: &HTTP{More: []KeyPair{{"/none", dir.Key}}}}, "/none"},
		{Options{CA: string(ca.PEM)}, "expected the path of a file, got its content"},
		{Options{Cert: dir.Cert, Key: dir.Key, CA: dir.Key}, "no certificate"},
		{Options{CA: dir.CA, Peers: []string{"*"}}, "peers"},
	} {
		s, err := Open(c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
		if err == nil {
			s.Close()
		}
	}
}

// TestFileSize: a file of a certificate may have so many bytes, and no more.
func TestFileSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large.pem")
	for size, want := range map[int]string{maxFile: "", maxFile + 1: "larger than 1 MiB"} {
		must.WriteFile(t, path, make([]byte, size))
		b, err := readFile(path, maxFile)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err == nil && len(b) != size {
			t.Errorf("%d bytes: read %d, %v, want %q", size, len(b), err, want)
		}
	}
}

// TestOnTrust: OnTrust is called if other peers are accepted, and not for a new certificate of the identity.
func TestOnTrust(t *testing.T) {
	ca := testcerts.New(t)
	d := testcerts.NewDir(t, ca, nil, nil)
	d.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"a"}}))
	var told atomic.Int32
	s, err := Open(Options{Cert: d.Cert, Key: d.Key, CA: d.CA, Peers: []string{"a"}, Interval: time.Millisecond,
		Logger: slog.New(slog.DiscardHandler), OnTrust: func() { told.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	d.Write(d.CA, testcerts.New(t).PEM)
	await(t, "the call", func() bool { return told.Load() == 1 })
	d.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"a"}}))
	await(t, "the certificate", func() bool { return s.Stats().Loads == 3 })
	s.Close()
	if n := told.Load(); n != 1 {
		t.Errorf("called %d times", n)
	}
	select {
	case <-s.done:
	default:
		t.Error("the files are still watched after Close")
	}
}

// TestDefaults: files are read each 5 s, and what happens goes to the usual log, unless the options say otherwise.
func TestDefaults(t *testing.T) {
	ca := testcerts.New(t)
	d := testcerts.NewDir(t, ca, nil, nil)
	d.Rotate(ca.Issue(testcerts.Leaf{Expired: true}))
	var log syncbuffer.Buffer
	usual := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(usual)
	s, err := Open(Options{Cert: d.Cert, Key: d.Key})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if s.opt.Interval != 5*time.Second || !strings.Contains(log.String(), CodeExpired) {
		t.Errorf("interval %s, log %q", s.opt.Interval, log.String())
	}
}

// TestLogs: each change of the files is logged once, and an expired certificate is.
func TestLogs(t *testing.T) {
	ca := testcerts.New(t)
	d := testcerts.NewDir(t, ca, nil, nil)
	d.Rotate(ca.Issue(testcerts.Leaf{}))
	var log syncbuffer.Buffer
	s, err := Open(Options{Cert: d.Cert, Key: d.Key, CA: d.CA, Interval: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if log.String() != "" {
		t.Errorf("at the start: %s", log.String())
	}
	_, key := ca.Issue(testcerts.Leaf{})
	d.Write(d.Key, key)
	await(t, "the wrong key", func() bool { return s.Stats().Failures == 1 })
	cert, key := ca.Issue(testcerts.Leaf{Expired: true})
	if err := os.Remove(d.Key); err != nil {
		t.Fatal(err)
	}
	await(t, "the removed key", func() bool { return s.Stats().Failures == 2 })
	d.Write(d.Cert, cert) // nobody reads it without a key
	d.Write(d.Key, key)
	await(t, "the expired certificate", func() bool { return s.Stats().Loads == 2 })
	s.Close()
	// A file may have been read while another was written.
	for line, want := range map[string]int{"code=tls_reload": int(s.Stats().Failures), "TLS files reloaded": 1, "code=" + CodeExpired: 1} {
		if got := strings.Count(log.String(), line); got != want {
			t.Errorf("%d lines with %q, want %d: %s", got, line, want, log.String())
		}
	}
}

// TestStats: of several certificates the one that ends first counts, wherever it is.
func TestStats(t *testing.T) {
	ca := testcerts.New(t)
	long, short := testcerts.NewDir(t, ca, nil, nil), testcerts.NewDir(t, ca, nil, nil)
	long.Rotate(ca.Issue(testcerts.Leaf{Lasts: 30 * time.Minute}))
	short.Rotate(ca.Issue(testcerts.Leaf{Lasts: 10 * time.Minute}))
	for first, second := range map[testcerts.Dir]testcerts.Dir{long: short, short: long} {
		s := openHTTP(t, first, HTTP{More: []KeyPair{{second.Cert, second.Key}}})
		all, err := parse(short.Cert, must.ReadFile(t, short.Cert))
		if err != nil {
			t.Fatal(err)
		}
		if st, leaf := s.Stats(), all[0]; !st.Begins.Equal(leaf.NotBefore) || !st.Expires.Equal(leaf.NotAfter) || !st.Outdates.IsZero() {
			t.Errorf("%+v, want from %s to %s", st, leaf.NotBefore, leaf.NotAfter)
		}
	}
}
