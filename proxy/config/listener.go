package config

import (
	"io/fs"
	"net/netip"
	"strconv"
	"strings"

	"github.com/remora-proxy/remora/internal/bindaddr"
	"github.com/remora-proxy/remora/internal/unixaddr"
)

// Listener accepts downstream connections.
type Listener struct {
	// Required and unique. `register`, logs and metrics use it.
	Name string `yaml:"name" reload:"new listener"`
	// Required. `ip:port`, `unix:/path` or `unix:@name`. `0.0.0.0` means all IPv4 addresses, `[::]` or no host all addresses, port 0 any port. A name is resolved at the start.
	Address string `yaml:"address" reload:"new listener"`
	// Mode of the file of a Unix socket, such as `"0660"`. Empty means that the umask decides.
	Mode FileMode `yaml:"mode" reload:"new listener"`
	// Required. What peers speak.
	Protocol string `yaml:"protocol" list:"listener protocols" reload:"new listener"`
	// Service of all traffic. Empty means by `routes`. Required for `link`.
	Service string `yaml:"service"`
	// A `link` listener off loopback needs no `tls`: its network is trusted.
	Insecure bool `yaml:"insecure"`
	// Accepts connections that the kernel redirects. `http` only.
	Transparent bool `yaml:"transparent" reload:"new listener"`
	// Accepted connections, within `limits.connections`. One more is closed at once. 0 means no own limit.
	Connections int `yaml:"connections" max:"1000000000" reload:"new listener"`

	Path Path `yaml:"path"`

	// Requests of a proxy's client that no route matches: 404 `no-route`, or on to the host that they name. `http` only.
	Unrouted string `yaml:"unrouted" oneof:"refuse direct"`
	Direct   Direct `yaml:"direct"`

	// Who tells a client that waits with its body (`Expect: 100-continue`) to send it: the sidecar, or the application. `http` only.
	Expect string `yaml:"expect" oneof:"answer forward"`

	RateLimit     RateLimit     `yaml:"rate_limit"`
	ProxyProtocol ProxyProtocol `yaml:"proxy_protocol"`
	Forwarded     Forwarded     `yaml:"forwarded"`
	Allow         Allow         `yaml:"allow"`

	TLS ListenerTLS `yaml:"tls"`
}

// Listener returns the listener with a name, or nil.
func (c *Config) Listener(name string) *Listener {
	for i := range c.Listeners {
		if c.Listeners[i].Name == name {
			return &c.Listeners[i]
		}
	}
	return nil
}

// Continues reports whether a reload can make was into l. Otherwise l is a new listener, which takes over the
// sockets of those that end at its address.
func (l *Listener) Continues(was *Listener) bool {
	return l.Name == was.Name && l.Address == was.Address && l.Mode == was.Mode && l.Protocol == was.Protocol &&
		l.Transparent == was.Transparent && l.Connections == was.Connections &&
		l.ProxyProtocol.Enabled() == was.ProxyProtocol.Enabled() && l.TLS.Enabled() == was.TLS.Enabled()
}

// HasRoutes reports whether the routes direct the HTTP requests of l.
func (l *Listener) HasRoutes() bool { return l.Protocol == ProtocolHTTP && l.Service == "" }

// Who answers `Expect: 100-continue`.
const (
	ExpectAnswer  = "answer"  // the sidecar
	ExpectForward = "forward" // the application
)

func (v *validator) listeners() {
	c := v.config
	names, sockets := map[string]int{}, []socket{socketOf("admin.address", c.Admin.Address)}
	for i := range c.Listeners {
		l := &c.Listeners[i]
		at := path("listeners").item(i)
		first, dup := names[l.Name]
		switch {
		case l.Name == "":
			v.report(at.key("name"), "missing; a listener needs a name")
		case dup:
			v.report(at.key("name"), "%q is already the name of listeners[%d]", l.Name, first)
		default:
			names[l.Name] = i
		}
		if v.socketAddress(at.key("address"), l.Address, bindable) && !strings.HasSuffix(l.Address, ":0") {
			here := socketOf(at.key("address"), l.Address)
			v.freeAddress(here, sockets)
			sockets = append(sockets, here)
		}
		v.listener(at, l)
	}
}

func (v *validator) listener(at path, l *Listener) {
	switch l.Protocol {
	case "":
		v.report(at.key("protocol"), "missing; expected one of %s", strings.Join(ListenerProtocols, ", "))
	case ProtocolLink:
		v.refuseIf(l.Address != "" && !isLoopback(l.Address) && !l.Insecure && !l.TLS.Enabled(),
			at, "a link that is not on loopback needs tls, or insecure: true")
		v.refuseIf(l.Insecure && l.TLS.Enabled(), at.key("insecure"), "contradicts tls")
		v.refuseIf(l.Service == "",
			at.key("service"), "missing; a link listener needs the service that takes its traffic")
	default:
		v.refuseIf(l.Insecure,
			at.key("insecure"), "only a link listener can be insecure; this one is %s", l.Protocol)
		isTCP := l.Protocol == ProtocolTCP
		v.refuseIf(l.Service == "" && isTCP && !v.hasRoutes(true), at.key("service"),
			"missing, and no route has match.sni; a tcp listener needs the service that takes its connections, or such routes")
		v.refuseIf(l.Service == "" && !isTCP && !v.hasRoutes(false) && l.Unrouted != UnroutedDirect,
			at.key("service"), "missing, and there are no routes: no request could be answered")
	}
	v.socketMode(at.key("mode"), l)
	v.proxyProtocol(at.key("proxy_protocol"), l)
	v.refuseIf((l.Protocol != ProtocolHTTP || l.Service != "") && l.Path != DefaultPath(),
		at.key("path"), "only an http listener without a service looks at paths")
	v.rateLimit(at, &l.RateLimit)
	v.rateKey(at, &l.RateLimit, l.Protocol == ProtocolDubbo)
	v.refuseIf(l.Protocol == ProtocolTCP && l.RateLimit != RateLimit{}, at.key("rate_limit"),
		"a tcp listener sees no requests; expected it at the service")
	v.forwarded(at.key("forwarded"), l)
	v.direct(at, l)
	v.refuseIf(l.Protocol != ProtocolHTTP && l.Expect == ExpectForward, at.key("expect"), "only an http listener has clients that wait")
	if l.Transparent {
		v.transparent(at, l)
	}
	if l.Service != "" {
		v.reference(at.key("service"), l.Service)
		if l.Protocol != ProtocolLink { // a link carries requests and tcp
			v.protocols(at.key("service"), l.Service, l.Protocol)
		} else if s := v.config.Services[l.Service]; s != nil {
			v.refuseIf(s.LB.Sticky.Cookie != "", at.key("service"),
				"service %s has lb.sticky, and requests on links come from sidecars that have picked; expected it there", l.Service)
		}
	}
	v.listenerTLS(at.key("tls"), l)
}

// transparent reports settings that a transparent listener can't have.
func (v *validator) transparent(at path, l *Listener) {
	shown := at.key("transparent")
	switch {
	case l.Protocol != ProtocolHTTP:
		v.report(shown, "only an http listener can be transparent; this one is %s", l.Protocol)
	case l.Service != "":
		v.report(shown, "contradicts service: the routes decide which requests go to a service and which pass through")
	case l.TLS.Enabled():
		v.report(shown, "contradicts tls: connections that pass through must stay unchanged")
	case l.ProxyProtocol.Enabled():
		v.report(shown, "contradicts proxy_protocol: the kernel redirects connections, and no proxy makes them")
	case unixaddr.Is(l.Address):
		v.report(shown, "the kernel redirects no connections to a Unix socket")
	}
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

// socket is a listening socket, and the setting that has its address.
type socket struct {
	setting path
	address string
	at      netip.AddrPort // of address, if isIP
	isIP    bool
}

func socketOf(setting path, address string) socket {
	at, isIP := bindaddr.Parse(address)
	return socket{setting, address, at, isIP}
}

// freeAddress checks that the system can have one socket beside others.
func (v *validator) freeAddress(s socket, others []socket) {
	for _, other := range others {
		switch {
		case s.address == other.address:
			v.report(s.setting, "%s is already used by %s", s.address, other.setting)
			return
		case s.isIP && other.isIP && bindaddr.Overlap(s.at, other.at):
			v.report(s.setting, "%s overlaps %s, the address of %s", s.address, other.address, other.setting)
			return
		}
	}
}
