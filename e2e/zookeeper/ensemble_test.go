package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
	"github.com/remora-proxy/remora/registry/zookeeper/session"
)

// startEnsemble starts three servers that are one ZooKeeper.
func startEnsemble(t *testing.T) (all []*server) {
	t.Helper()
	const members = 3
	addrs := harness.FreeAddrs(t, 3*members) // each has one for clients and two for the others
	settings := "initLimit=40\nsyncLimit=20\n"
	for i := range members {
		host, port, _ := net.SplitHostPort(addrs[3*i])
		_, election, _ := net.SplitHostPort(addrs[3*i+1])
		settings += fmt.Sprintf("server.%d=%s:%s:%s\n", i+1, host, port, election)
	}
	for i := range members {
		s := newServer(t, addrs[3*i+2], settings)
		if err := os.Mkdir(s.file("data"), 0o700); err != nil {
			t.Fatal(err)
		}
		must.WriteFile(t, s.file("data/myid"), fmt.Sprint(i+1))
		all = append(all, s)
	}
	for _, s := range all {
		s.start()
	}
	return all
}

// helloPath is where the records of an interface are.
const helloPath = "/dubbo/demo.Hello/providers"

// addProvider writes the record of a provider of that interface.
func (s *server) addProvider(addr string) error {
	err := errors.New("no connection")
	s.makeNodes(helloPath)
	s.ask(func(ctx context.Context, raw *session.Session) {
		err = raw.Create(ctx, helloPath+"/"+url.QueryEscape("dubbo://"+addr+"/demo.Hello?side=provider"), nil, false)
	})
	if err == session.NodeExists {
		return nil
	}
	return err
}

// owner returns the session that has the node below a path.
func (s *server) owner(path string) (id int64, err error) {
	err = errors.New("no connection")
	s.ask(func(ctx context.Context, raw *session.Session) {
		var names []string
		if names, err = raw.Children(ctx, path, false); err != nil {
			return
		}
		err = fmt.Errorf("%d nodes below %s", len(names), path)
		for _, name := range names {
			var st session.Stat
			st, err = raw.Exists(ctx, path+"/"+name, false)
			id = st.Owner
		}
	})
	return id, err
}

// TestEnsemble: the session of a sidecar, with its registration, moves to another server when one is killed, and changes come.
func TestEnsemble(t *testing.T) {
	all := startEnsemble(t)
	var servers []string
	for _, s := range all {
		servers = append(servers, fmt.Sprintf("%q", s.addr))
	}
	eventually.Nil(t, "the first record", func() error { return all[0].addProvider("10.0.0.1:1") })
	ingress := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
registry: {zookeeper: {servers: [%s], session_timeout: 10s, services: [{service: hello, interface: demo.Hello}]}}
listeners: [{name: ingress, address: %q, protocol: dubbo, service: local}]
services:
  hello: {discover: zookeeper, protocol: dubbo}
  local: {discover: static, endpoints: ["127.0.0.1:9"], protocol: dubbo}
register: [{service: own, listener: ingress, advertise: "10.0.0.99:1"}]`, strings.Join(servers, ", "), ingress))
	p.Ready()
	const ownPath = "/dubbo/own/providers"
	var before int64
	eventually.Nil(t, "the registration", func() (err error) {
		before, err = all[1].owner(ownPath)
		return err
	})
	for i, killed := range all { // one of them has the session
		killed.kill()
		other := all[(i+1)%len(all)]
		added := fmt.Sprintf("10.0.0.%d:1", i+2)
		eventually.Nil(t, "to change a record", func() error { return other.addProvider(added) })
		eventually.True(t, "the change of "+added, func() bool {
			_, body := p.Get("/endpoints")
			return strings.Contains(body, `"`+added+`"`)
		})
		now := int64(0)
		eventually.Nil(t, "the registration", func() (err error) {
			now, err = other.owner(ownPath)
			return err
		})
		if now != before {
			t.Errorf("after the end of server %d the registration is of the session %x, and was of %x", i+1, now, before)
		}
		killed.start()
		eventually.Nil(t, "the server to be back", func() error {
			_, err := killed.owner(ownPath)
			return err
		})
	}
}

// TestTLS: a server of ZooKeeper proves its name, and a sidecar that does not trust its authority says so.
func TestTLS(t *testing.T) {
	addrs := harness.FreeAddrs(t, 2)
	host, port, _ := net.SplitHostPort(addrs[1])
	ca, stranger := testcerts.New(t), testcerts.New(t)
	cert, key := ca.Issue(testcerts.Leaf{Names: []string{host}})
	pem := t.TempDir() + "/server.pem"
	must.WriteFile(t, pem, string(key)+string(cert))
	s := newServer(t, addrs[0], fmt.Sprintf(`secureClientPort=%s
secureClientPortAddress=%s
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location=%s
ssl.keyStore.type=PEM
ssl.clientAuth=none
`, port, host, pem))
	s.start()
	harness.AwaitListener(t, "ZooKeeper with TLS", addrs[1])
	eventually.Nil(t, "the record", func() error { return s.addProvider("10.0.0.1:1") })
	sidecar := func(ca *testcerts.CA) *harness.Process {
		file := t.TempDir() + "/ca.pem"
		must.WriteFile(t, file, string(ca.PEM))
		return harness.Start(t, fmt.Sprintf(`
registry: {zookeeper: {servers: [%q], services: [{service: hello, interface: demo.Hello}], tls: {ca: %q}}}
listeners: [{name: egress, address: %q, protocol: http, service: hello}]
services: {hello: {discover: zookeeper, protocol: dubbo}}`, addrs[1], file, harness.FreeAddrs(t, 1)[0]))
	}
	trusting := sidecar(ca)
	trusting.Ready()
	if _, body := trusting.Get("/endpoints"); !strings.Contains(body, `"10.0.0.1:1"`) {
		t.Errorf("the endpoints are %s", body)
	}
	other := sidecar(stranger)
	eventually.True(t, "the code denied", func() bool {
		_, body := other.Get("/endpoints")
		return strings.Contains(body, `"code": "denied"`)
	})
	if _, body := other.Get("/endpoints"); strings.Contains(body, "10.0.0.1:1") {
		t.Errorf("a server that is not trusted is believed: %s", body)
	}
}
