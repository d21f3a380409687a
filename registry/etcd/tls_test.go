package etcd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/testcerts"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/etcd"
	"github.com/remora-proxy/remora/registry/registrytest"
)

// secure starts an etcd that demands client certificates, and returns the authority of
// both sides.
func secure(t *testing.T, names ...string) (*lab.Etcd, *testcerts.CA) {
	t.Helper()
	ca := testcerts.New(t)
	server := testcerts.NewDir(t, ca, nil, nil)
	server.Rotate(ca.Issue(testcerts.Leaf{Names: names}))
	return startEtcd(t, lab.EtcdOptions{CertFile: server.Cert, KeyFile: server.Key, ClientCA: server.CA}), ca
}

// withFiles makes a Registry use the identity in dir, which is read again often.
func withFiles(t *testing.T, dir testcerts.Dir, peers ...string) func(*etcd.Options) {
	t.Helper()
	source, err := certs.Open(certs.Options{
		Cert: dir.Cert, Key: dir.Key, CA: dir.CA, Peers: peers, Interval: 5 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	return func(o *etcd.Options) { o.TLS = source.Client }
}

func TestTLS(t *testing.T) {
	for name, peers := range map[string][]string{"by the address dialled": nil, "by a name": {"etcd.example"}} {
		t.Run(name, func(t *testing.T) {
			s, ca := secure(t, "127.0.0.1", "etcd.example")
			dir := testcerts.NewDir(t, ca, nil, nil)
			dir.Rotate(ca.Issue(testcerts.Leaf{}))
			r := open(t, s.Endpoint(), withFiles(t, dir, peers...))
			got := registrytest.Watch(t, r, "compute")
			r.Register(at("10.0.0.1:80", 1))
			got.WaitAddrs("10.0.0.1:80")
		})
	}
}

// TestTLSRefused checks that an etcd counts as unavailable if it can't prove its
// identity or refuses the client certificate, and that the reason is reported. Once the
// files are right, it is available without a restart.
func TestTLSRefused(t *testing.T) {
	other := testcerts.New(t)
	for _, c := range []struct {
		name   string
		server []string // its names
		peers  []string
		spoil  func(dir testcerts.Dir, ca *testcerts.CA)
		repair func(dir testcerts.Dir, ca *testcerts.CA) // nil means that no file can help
		why    string                                    // in the error of probe and registration
	}{
		{
			"client certificate from another authority", []string{"127.0.0.1"}, nil,
			func(dir testcerts.Dir, _ *testcerts.CA) { dir.Rotate(other.Issue(testcerts.Leaf{})) },
			func(dir testcerts.Dir, ca *testcerts.CA) { dir.Rotate(ca.Issue(testcerts.Leaf{})) },
			"remote error: tls: unknown certificate authority",
		},
		{
			"client trusts another authority", []string{"127.0.0.1"}, nil,
			func(dir testcerts.Dir, _ *testcerts.CA) { dir.Write(dir.CA, other.PEM) },
			func(dir testcerts.Dir, ca *testcerts.CA) { dir.Write(dir.CA, ca.PEM) },
			"certificate signed by unknown authority",
		},
		{"server has another address", []string{"127.0.0.2"}, nil, nil, nil, "certificate is valid for 127.0.0.2, not 127.0.0.1"},
		{"server has another name", []string{"127.0.0.1", "etcd.example"}, []string{"other.example"}, nil, nil, "etcd.example"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, ca := secure(t, c.server...)
			dir := testcerts.NewDir(t, ca, nil, nil)
			dir.Rotate(ca.Issue(testcerts.Leaf{}))
			if c.spoil != nil {
				c.spoil(dir, ca)
			}
			r := open(t, s.Endpoint(), withFiles(t, dir, c.peers...))
			got := registrytest.Watch(t, r, "compute")
			h := r.Register(at("10.0.0.1:80", 1))
			hasReason := func(why string) bool { return strings.Contains(why, c.why) }
			eventually.True(t, "a failed probe", func() bool {
				return hasReason(r.Stats().LastError) && r.Condition().Code == registry.CodeDenied
			})
			eventually.True(t, "a failed registration", func() bool { err := h.Err(); return err != nil && hasReason(err.Error()) })
			if st := r.Stats(); st.Connected || len(got.History()) > 0 {
				t.Fatalf("connected: %+v %v", st, got.History())
			}
			if c.repair != nil {
				c.repair(dir, ca)
				got.WaitAddrs("10.0.0.1:80")
				eventually.True(t, "no error", func() bool { return r.Stats().LastError == "" })
			}
		})
	}
}

// TestTLSPlain checks that a secured etcd can't be used without TLS.
func TestTLSPlain(t *testing.T) {
	s, _ := secure(t, "127.0.0.1")
	r := open(t, "http://"+s.Addr(), nil)
	eventually.True(t, "a failed probe", func() bool { return strings.Contains(r.Stats().LastError, "preface") })
	if r.Stats().Connected {
		t.Error("connected in plain text")
	}
}
