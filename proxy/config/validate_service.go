package config

import (
	"io/fs"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/remora-proxy/remora/internal/unixaddr"
)

func (v *validator) service(s *Service) {
	at := path("services").entry(s.Name)
	v.refuseIf(s.Name == "" || strings.ContainsAny(s.Name, "/ \t\n"),
		at, "expected a name without spaces and /, got %q", s.Name)
	endpoints := at.key("endpoints")
	switch {
	case s.Discover == DiscoverStatic && len(s.Endpoints) == 0:
		v.report(endpoints, "missing; a static service needs endpoints")
	case s.Discover != DiscoverStatic && len(s.Endpoints) > 0:
		v.report(endpoints, "set, but discover is %s; expected discover: %s", s.Discover, DiscoverStatic)
	case s.Discover == DiscoverEtcd && len(v.config.Registry.Etcd.Endpoints) == 0:
		v.report(at.key("discover"), "is %s, but registry.etcd.endpoints is empty", DiscoverEtcd)
	}
	seen := map[string]bool{}
	for i, e := range s.Endpoints {
		shown := endpoints.item(i)
		if v.socketAddress(shown, e.Address, dialable) {
			v.refuseIf(seen[e.Address], shown, "%s is listed twice", e.Address)
		}
		seen[e.Address] = true
	}
	v.serviceCheck(at.key("check"), s)
	v.refuseIf(s.Outlier.Latency == 1, at.key("outlier").key("latency"),
		"1 would eject endpoints for being slower than half of them; expected 0 or at least 2")
	v.hash(at.key("lb").key("hash"), &s.LB)
	v.sticky(at.key("lb").key("sticky"), &s.LB)
	v.rateLimit(at, &s.RateLimit)
	v.refuseIf(s.RateLimit.Key != "", at.key("rate_limit").key("key"), "only the limits of listeners and routes have a key")
	v.serviceTLS(at.key("tls"), s)
	v.refuseIf(s.ProxyProtocol != ProxyProtocolOff && s.Protocol != ProtocolTCP, at.key("proxy_protocol"),
		"only a service with protocol %s sends it; a pooled connection carries the requests of many clients, whom X-Forwarded-For names", ProtocolTCP)
	v.retry(at, &s.Policy)
	v.tryTimeout(at, &s.Policy)
	v.hedge(at, &s.Policy)
}

// hash reports keys that no request has.
func (v *validator) hash(at path, lb *LB) {
	h, kinds := &lb.Hash, 0
	for _, given := range []bool{h.Header != "", h.Cookie != "", h.Query != "", h.Path, h.Source} {
		if given {
			kinds++
		}
	}
	needed := lb.Policy == LBConsistentHash
	const one = "expected exactly one of header, cookie, query, path and source"
	v.refuseIf(needed && kinds == 0, at, "missing; "+one)
	v.refuseIf(kinds > 1, at, one+", got %d", kinds)
	v.refuseIf(kinds > 0 && !needed, at, "not used by lb.policy: %s; expected %s", lb.Policy, LBConsistentHash)
	v.refuseIf(h.TTL > 0 && h.Cookie == "", at.key("ttl"), "needs cookie, the name of the cookie that is set")
	v.cookieTTL(at.key("ttl"), h.TTL)
	v.refuseIf(h.Balance > 0 && h.Balance <= 1, at.key("balance"),
		"expected more than 1, got %v: not all endpoints can have less than the mean; 0 means no bound", h.Balance)
	v.cookieName(at.key("cookie"), h.Cookie)
	switch lower := strings.ToLower(h.Header); {
	case h.Header == "":
	case !isHeaderName(h.Header):
		v.report(at.key("header"), "expected the name of a header, got %q", h.Header)
	case lower == "host":
		v.report(at.key("header"), "the host is no key; routes by match.host may lead to services of their own")
	case strings.HasPrefix(lower, "x-remora-"):
		v.report(at.key("header"), "the sidecar removes its own headers before it makes keys")
	}
}

// minSecret is the shortest secret of a sticky cookie, in bytes.
const minSecret = 16

func (v *validator) sticky(at path, lb *LB) {
	s := &lb.Sticky
	if s.Cookie == "" {
		v.refuseIf(*s != Sticky{}, at.key("cookie"), "missing; expected the name of a cookie")
		return
	}
	v.cookieName(at.key("cookie"), s.Cookie)
	v.cookieTTL(at.key("ttl"), s.TTL)
	v.refuseIf(len(s.Secret) < minSecret, at.key("secret"), "expected at least %d bytes, the same in all sidecars", minSecret)
	v.refuseIf(lb.Hash.Cookie != "", at, "lb.hash.cookie makes sessions, too; expected one of both")
}

func (v *validator) cookieName(at path, name string) {
	v.refuseIf(name != "" && !isHeaderName(name), at, "expected the name of a cookie, got %q", name)
}

func (v *validator) cookieTTL(at path, ttl time.Duration) {
	v.refuseIf(ttl > 0 && ttl < time.Second, at, "expected at least 1s, got %s", ttl)
}

// check reports errors that any check may have.
func (v *validator) check(at path, c *Check) {
	v.refuseIf(c.HTTP != "" && c.TCP, at, "expected http or tcp, got both")
	v.refuseIf(c.GRPC != "" && (c.HTTP != "" || c.TCP), at, "expected http, tcp or grpc, got grpc and another one")
	v.refuseIf(c.GRPC != "/" && strings.Contains(c.GRPC, "/"), at.key("grpc"),
		"expected the name of a service such as shop.Cart, or / for the server as a whole, got %q", public(c.GRPC))
	if _, err := url.ParseRequestURI(c.HTTP); c.HTTP != "" && (err != nil || !strings.HasPrefix(c.HTTP, "/")) {
		v.report(at.key("http"), `expected a path that starts with "/", got %q`, public(c.HTTP))
	}
	v.refuseIf(c.Host != "" && !isHostName(c.Host), at.key("host"), "expected a name or an IP address without a port, got %q", c.Host)
	v.refuseIf(!c.Enabled() && (c.Beside() || c.OnDown == OnDownClose), at, "expected http, tcp or grpc; without one there is no check")
}

// serviceCheck checks the check of a service's endpoints. Endpoints in etcd may have
// the protocol http although the service has another, so only static ones are checked.
func (v *validator) serviceCheck(at path, s *Service) {
	v.check(at, &s.Check)
	for _, e := range s.Endpoints {
		v.refuseIf(unixaddr.Is(e.Address) && s.Check.Beside() && (s.Check.Host == "" || s.Check.Port == 0), at,
			"expected host and port, since the endpoint %s has neither", e.Address)
	}
	if s.Check.Beside() {
		return
	}
	isForeign := s.Discover == DiscoverStatic && s.Protocol != ProtocolHTTP
	noGRPC := slices.Contains([]string{ProtocolLink, ProtocolDubbo, ProtocolTCP}, s.Protocol)
	v.refuseIf(s.Check.GRPC != "" && s.Discover == DiscoverStatic && noGRPC, at.key("grpc"),
		"the endpoints speak %s, not gRPC; expected tcp: true", s.Protocol)
	v.refuseIf(s.Check.HTTP != "" && isForeign, at.key("http"),
		"the endpoints speak %s, not %s; expected tcp: true", s.Protocol, ProtocolHTTP)
}

// registerCheck checks the check of the application behind a listener. l is nil if
// there is no such listener.
func (v *validator) registerCheck(at path, c *Check, l *Listener) {
	v.check(at, c)
	if !c.Enabled() || l == nil {
		return
	}
	s := v.config.Services[l.Service]
	switch {
	case l.Service == "":
		v.report(at, "listener %q has no service, so there is nothing to check", l.Name)
	case s != nil && s.TLS.ByHost() && !c.Beside() && (c.HTTP != "" || c.GRPC != ""):
		v.report(at, "contradicts tls.sni: host of service %s: a check is no request, and has no Host; expected tcp: true", s.Name)
	case s != nil && s.Discover != DiscoverStatic:
		v.report(at, "service %s has no static endpoints, so there is nothing to check", s.Name)
	}
}

func (v *validator) rateLimit(at path, l *RateLimit) {
	v.refuseIf(l.Burst > 0 && l.Rate == 0,
		at.key("rate_limit").key("rate"), "missing; a burst alone limits nothing")
	v.refuseIf(l.Key != "" && l.Rate == 0,
		at.key("rate_limit").key("rate"), "missing; a key alone limits nothing")
}

// rateKey reports a key that no request has. dubbo says that only calls of Dubbo come.
func (v *validator) rateKey(at path, l *RateLimit, dubbo bool) {
	kind, header := l.KeyParts()
	at = at.key("rate_limit").key("key")
	switch {
	case l.Key == "" || kind != KeyHeader && header == "" && (kind == KeyPeer || kind == KeyPath):
	case kind != KeyHeader:
		v.report(at, "expected peer, path or header NAME, got %q%s", l.Key, didYouMean(kind, []string{KeyPeer, KeyPath, KeyHeader}))
	case !isHeaderName(header):
		v.report(at, "expected header and the name of a header, such as header x-user, got %q", l.Key)
	case strings.EqualFold(header, "host"):
		v.report(at, "the host is no key; routes by match.host may have limits of their own")
	case strings.HasPrefix(strings.ToLower(header), "x-remora-"):
		v.report(at, "the sidecar removes its own headers before it looks at limits")
	case dubbo:
		v.report(at, "calls of Dubbo have no headers")
	}
}

func (v *validator) register(i int, r *Register) {
	c, at := v.config, path("register").item(i)
	v.refuseIf(r.Service == "" || strings.ContainsAny(r.Service, "/ \t\n"), at.key("service"),
		"expected the name under which others find the service, got %q", r.Service)
	var listener *Listener
	var names []string
	for j := range c.Listeners {
		names = append(names, c.Listeners[j].Name)
		if c.Listeners[j].Name == r.Listener {
			listener = &c.Listeners[j]
		}
	}
	if listener == nil {
		v.report(at.key("listener"), "there is no listener %q%s", r.Listener, knownNames(r.Listener, names))
	}
	v.address(at.key("advertise"), r.Advertise, dialable)
	v.refuseIf(len(c.Registry.Etcd.Endpoints) == 0,
		at, "there is nowhere to register: registry.etcd.endpoints is empty")
	for j, earlier := range c.Register[:i] {
		if earlier.Service == r.Service && earlier.Advertise == r.Advertise {
			v.report(at, "register[%d] registers the same", j)
			break
		}
	}
	v.registerCheck(at.key("check"), &r.Check, listener)
}

// purpose is the purpose of an address.
type purpose uint8

const (
	bindable purpose = iota // to listen: no host means all, port 0 means any
	dialable                // to connect: host and port are required
)

// address reports an address that is not suitable for its purpose, and returns false
// for one.
func (v *validator) address(at path, addr string, use purpose) bool {
	i := strings.LastIndexByte(addr, ':')
	if addr == "" || i < 0 {
		v.report(at, "expected host:port, got %q", public(addr))
		return false
	}
	host, port := addr[:i], addr[i+1:]
	inner, bracketed := strings.CutPrefix(host, "[")
	if bracketed {
		host = strings.TrimSuffix(inner, "]")
		_, err := netip.ParseAddr(host)
		bracketed = err == nil && inner != host
	}
	if strings.ContainsAny(host, "/ []@") || strings.Contains(host, ":") && !bracketed {
		v.report(at, "expected host:port, an IPv6 host as in [::1]:80, got %q", public(addr))
		return false
	}
	number, err := parseInt(port)
	if err != nil || number < 0 || number > 65535 || number == 0 && use == dialable {
		v.report(at, "expected a port from %d to 65535, got %q", int(use), public(port))
		return false
	}
	if use == dialable {
		ip, err := netip.ParseAddr(host)
		if host == "" || err == nil && ip.IsUnspecified() {
			v.report(at, "expected a host that can be connected to, got %q", public(addr))
			return false
		}
	}
	return true
}

// socketAddress is address for one that may be a Unix socket.
func (v *validator) socketAddress(at path, addr string, use purpose) bool {
	if !unixaddr.Is(addr) {
		return v.address(at, addr, use)
	}
	if err := unixaddr.Check(addr); err != nil {
		v.report(at, "%s; got %q", err, public(addr))
		return false
	}
	return true
}

// isLoopback reports whether only this host can reach addr.
func isLoopback(addr string) bool {
	if unixaddr.Is(addr) {
		return true
	}
	host := addr[:max(strings.LastIndexByte(addr, ':'), 0)]
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}

// FileMode is the mode of a file as text in octal digits; empty means none.
type FileMode string

// Bits returns the mode as a number; 0 means none.
func (m FileMode) Bits() fs.FileMode {
	bits, _ := strconv.ParseUint(string(m), 8, 9)
	return fs.FileMode(bits)
}

// socketMode reports what is no mode, or has no file.
func (v *validator) socketMode(at path, l *Listener) {
	bits, err := strconv.ParseUint(string(l.Mode), 8, 9)
	switch {
	case l.Mode == "":
	case err != nil || bits == 0:
		v.report(at, `expected octal digits such as "0660", got %q`, string(l.Mode))
	case !strings.HasPrefix(l.Address, "unix:/"):
		v.report(at, "only unix:/path has a file")
	}
}
