package stream

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/testcerts"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/registry"
)

// listen opens a listener on the loops of s, with TLS unless secure is nil.
func (s *sidecar) listen(c *config.Listener, secure func() *tls.Config) (addr string) {
	s.t.Helper()
	byLoop := map[loop.Loop]*proxy.Worker{}
	for i, l := range s.reactor.Loops() {
		byLoop[l] = s.proc.Workers()[i]
	}
	listener := s.proc.Generation().Listener(c.Name)
	l, err := s.reactor.Listen(c.Address, reactor.ListenOptions{TLS: secure}, func(l loop.Loop, _ string) loop.Receiver {
		return listener.Accept(byLoop[l])
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return l.Addr().String()
}

// chain is sidecars that pass requests on over links, the last one to the application.
// Its limit of a message is low, so that short bodies are streams already.
type chain struct {
	t      *testing.T
	nodes  []*sidecar // the first has an http listener, the others link listeners
	addr   string     // of the first
	secure bool       // the links are encrypted
	client *http.Client
}

// longest is limits.message of a chain.
const longest = 64 << 10

// chainOptions are the options of a chain.
type chainOptions struct {
	sidecars int           // 0 means 2
	secure   bool          // TLS on the links
	more     string        // keys of the configuration of each sidecar
	limits   string        // keys of limits
	timeout  string        // of the service; empty means 1m
	service  string        // keys of the service
	last     string        // keys of the service of the last sidecar
	window   time.Duration // of paces; 0 means paceWindow
	park     time.Duration // of responses; 0 means parkTime
	requests bool          // the service takes requests only
}

// newChain starts sidecars in front of the applications.
func newChain(t *testing.T, o chainOptions, apps ...string) *chain {
	t.Helper()
	c := &chain{t: t, secure: o.secure, nodes: make([]*sidecar, cmp.Or(o.sidecars, 2))}
	var id *certs.Source
	if o.secure {
		id = identity(t)
	}
	for i := len(c.nodes) - 1; i >= 0; i-- {
		s, protocol := c.start(&o, i, id), config.ProtocolLink
		var own func() *tls.Config
		if i == len(c.nodes)-1 {
			protocol = config.ProtocolHTTP
		}
		var list []registry.Endpoint
		for _, addr := range apps {
			list = append(list, registry.Endpoint{Addr: addr, Weight: 1, Protocol: protocol})
		}
		s.update(list...)
		if i > 0 && o.secure {
			own = id.Server
		}
		s.addr = s.listen(&s.srv.opt.Process.Config().Listeners[0], own)
		c.nodes[i], apps = s, []string{s.addr}
	}
	c.addr = c.nodes[0].addr
	c.client = &http.Client{Timeout: waitLimit, Transport: &http.Transport{}}
	t.Cleanup(c.client.CloseIdleConnections)
	return c
}

func (c *chain) start(o *chainOptions, i int, id *certs.Source) *sidecar {
	c.t.Helper()
	in, out := "protocol: link, service: app", config.ProtocolLink
	if i == 0 {
		in = "protocol: http" // no service: CONNECT needs a route
	}
	var engine reactor.Options
	service := o.service
	if i == len(c.nodes)-1 {
		out, service = config.ProtocolHTTP, o.service+o.last
	} else if id != nil {
		engine.DialTLS = func(_, _, _ string) func() *tls.Config { return id.Client }
	}
	s := startSidecar(c.t, fmt.Sprintf(`
admin: {address: ""}
limits: {message: %d, %s}
listeners: [{name: in, address: "127.0.0.1:0", %s}]
routes: [{match: {host: bytes, method: [CONNECT]}, service: app}, {match: {host: app}, service: app}, {match: {host: 127.0.0.1}, service: app}]
services: {app: {discover: static, endpoints: ["127.0.0.1:1"], protocol: %s, opaque: %t, connect_timeout: 15s, timeout: %s, %s}}
%s`, longest, o.limits, in, out, !o.requests, cmp.Or(o.timeout, "1m"), service, o.more), engine)
	s.proc.SetStreams(s.srv)
	s.srv.window, s.srv.parking.expiry = cmp.Or(o.window, paceWindow), cmp.Or(o.park, parkTime)
	return s
}

// identity returns a certificate that all sidecars use and trust.
func identity(t *testing.T) *certs.Source {
	t.Helper()
	const name = "spiffe://test/sidecar"
	ca := testcerts.New(t)
	cert, key := ca.Issue(testcerts.Leaf{Names: []string{name}})
	d := testcerts.NewDir(t, ca, cert, key)
	id, err := certs.Open(certs.Options{Cert: d.Cert, Key: d.Key, CA: d.CA, Peers: []string{name}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(id.Close)
	return id
}

// linked calls test with a chain, with its links in plain text and with TLS, and then
// checks that no stream is left.
func linked(t *testing.T, o chainOptions, test func(t *testing.T, c *chain), apps ...string) {
	for _, o.secure = range []bool{false, true} {
		t.Run(map[bool]string{false: "plain", true: "tls"}[o.secure], func(t *testing.T) {
			c := newChain(t, o, apps...)
			test(t, c)
			c.waitNoStreams()
		})
	}
}

// waitNoStreams waits until no stream is left. The connections that the loops keep for
// the next message may stay.
func (c *chain) waitNoStreams() {
	c.t.Helper()
	c.client.CloseIdleConnections()
	for i, s := range c.nodes {
		s.eventually(fmt.Sprintf("sidecar %d to have no stream", i), func() error {
			kept := 0
			if i > 0 {
				kept = c.nodes[i-1].counts.endpointConnections()
			}
			return s.counts.checkNoStreams(int64(kept))
		})
	}
}
