package stream

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/remora-proxy/remora/internal/testcerts"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
)

// listen gives s a listener on its loops, with TLS if secure says so.
func (s *sidecar) listen(c *config.Listener, secure func() *tls.Config) (addr string) {
	s.t.Helper()
	byLoop := map[loop.Loop]*proxy.Worker{}
	for i, l := range s.engine.Loops() {
		byLoop[l] = s.proc.Workers()[i]
	}
	entrance := s.proc.Generation().Listener(c.Name)
	l, err := s.engine.Listen(c.Address, reactor.ListenOptions{TLS: secure}, func(l loop.Loop, _ string) loop.Stream {
		return entrance.Accept(byLoop[l])
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return l.Addr().String()
}

// chain is sidecars that pass requests on over links, the last of them to the
// application. Messages are short there, so that little is a stream.
type chain struct {
	t      *testing.T
	nodes  []*sidecar // the first has an http listener, the others link listeners
	addr   string     // of the first
	secure bool       // the links are encrypted
	client *http.Client
}

// longest is limits.message of a chain.
const longest = 64 << 10

// chainOptions are what tests change of a chain.
type chainOptions struct {
	sidecars int    // 0: two
	secure   bool   // TLS on the links
	more     string // of each one's configuration
	limits   string
	service  string // keys of the service of each
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
	c.client = &http.Client{Timeout: patience, Transport: &http.Transport{}}
	t.Cleanup(c.client.CloseIdleConnections)
	return c
}

func (c *chain) start(o *chainOptions, i int, id *certs.Source) *sidecar {
	c.t.Helper()
	in, out := "protocol: link, service: app", config.ProtocolLink
	if i == 0 {
		in = "protocol: http" // by route: CONNECT needs that
	}
	var engine reactor.Options
	if i == len(c.nodes)-1 {
		out = config.ProtocolHTTP
	} else if id != nil {
		engine.DialTLS = func(string) func() *tls.Config { return id.Client }
	}
	s := startSidecar(c.t, fmt.Sprintf(`
admin: {address: ""}
limits: {message: %d, %s}
listeners: [{name: in, address: "127.0.0.1:0", %s}]
routes: [{match: {method: [CONNECT]}, service: app}, {service: app}]
services: {app: {discover: static, endpoints: ["127.0.0.1:1"], protocol: %s, connect_timeout: 15s, timeout: 1m, %s}}
%s`, longest, o.limits, in, out, o.service, o.more), engine)
	s.proc.SetStreams(s.srv)
	return s
}

// identity is a certificate that all sidecars share, each trusting it.
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

// linked calls test with two sidecars, the link between them in plain text and
// with TLS, and wants nothing left afterwards.
func linked(t *testing.T, o chainOptions, test func(t *testing.T, c *chain), apps ...string) {
	for _, o.secure = range []bool{false, true} {
		t.Run(map[bool]string{false: "plain", true: "tls"}[o.secure], func(t *testing.T) {
			c := newChain(t, o, apps...)
			test(t, c)
			c.over()
		})
	}
}

// over waits until nothing is left of any stream: the connections that stay are
// those that the loops keep for the next message.
func (c *chain) over() {
	c.t.Helper()
	c.client.CloseIdleConnections()
	for i, s := range c.nodes {
		s.eventually(fmt.Sprintf("sidecar %d to have no stream", i), func() error {
			kept := 0
			if i > 0 {
				kept = c.nodes[i-1].kept()
			}
			return s.settled(int64(kept))
		})
	}
}

// settled tells what is left of streams where inbound connections may stay.
func (s *sidecar) settled(inbound int64) error {
	s.t.Helper()
	sum, _ := s.totals()
	st := s.engine.Stats()
	if st.Inbound != inbound || sum.StreamsOpen != 0 || s.proc.Pending() != 0 || s.srv.Open() != 0 {
		return fmt.Errorf("%d streams count, %d are open, %d pending, %d connections may stay of %+v",
			sum.StreamsOpen, s.srv.Open(), s.proc.Pending(), inbound, st)
	}
	for _, r := range s.reports() {
		if svc := r.Services[0]; svc.HedgesInFlight != 0 {
			return errors.New("a hedge is in flight")
		}
		for _, e := range r.Services[0].Endpoints {
			if e.Pending != 0 {
				return fmt.Errorf("endpoint %+v", e)
			}
		}
	}
	return nil
}

// kept is how many connections to endpoints the loops have.
func (s *sidecar) kept() (n int) {
	for _, r := range s.reports() {
		for _, e := range r.Services[0].Endpoints {
			n += e.Connections
		}
	}
	return n
}

// departures is how many connections and bodies have left the loops of s so.
func (s *sidecar) departures(d stats.Handoff) (n uint64) {
	for _, r := range s.reports() {
		n += r.Stats.Handoffs[d]
	}
	return n
}
