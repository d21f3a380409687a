package config

import (
	"io/fs"
	"net/netip"
	"reflect"
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

func (l *Listener) setDefaults() { l.Unrouted, l.Expect = UnroutedRefuse, ExpectAnswer }

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

func checkListeners(in scope) {
	c := in.config
	names, sockets := map[string]int{}, []socket{socketOf("admin.address", c.Admin.Address)}
	for i := range c.Listeners {
		l := &c.Listeners[i]
		at := path("listeners").item(i)
		first, dup := names[l.Name]
		switch {
		case l.Name == "":
			in.report(at.key("name"), "missing; a listener needs a name")
		case dup:
			in.report(at.key("name"), "%q is already the name of listeners[%d]", l.Name, first)
		default:
			names[l.Name] = i
		}
		if checkSocketAddress(in, at.key("address"), l.Address, bindable) && !strings.HasSuffix(l.Address, ":0") {
			here := socketOf(at.key("address"), l.Address)
			here.checkFree(in, sockets)
			sockets = append(sockets, here)
		}
		l.check(in, at)
	}
}

func (l *Listener) check(in scope, at path) {
	in.listener = l
	switch l.Protocol {
	case "":
		in.report(at.key("protocol"), "missing; expected one of %s", strings.Join(ListenerProtocols, ", "))
	case ProtocolLink:
		in.refuseIf(l.Address != "" && !isLoopback(l.Address) && !l.Insecure && !l.TLS.Enabled(),
			at, "a link that is not on loopback needs tls, or insecure: true")
		in.refuseIf(l.Insecure && l.TLS.Enabled(), at.key("insecure"), "contradicts tls")
		in.refuseIf(l.Service == "",
			at.key("service"), "missing; a link listener needs the service that takes its traffic")
	default:
		in.refuseIf(l.Insecure,
			at.key("insecure"), "only a link listener can be insecure; this one is %s", l.Protocol)
		isTCP := l.Protocol == ProtocolTCP
		in.refuseIf(l.Service == "" && isTCP && !in.config.hasRoutes(true), at.key("service"),
			"missing, and no route has match.sni; a tcp listener needs the service that takes its connections, or such routes")
		in.refuseIf(l.Service == "" && !isTCP && !in.config.hasRoutes(false) && l.Unrouted != UnroutedDirect && !in.partly["routes"],
			at.key("service"), "missing, and there are no routes: no request could be answered")
	}
	l.checkMode(in, at.key("mode"))
	l.checkUnrouted(in, at.key("unrouted"))
	in.refuseIf(l.Protocol != ProtocolHTTP && l.Expect == ExpectForward, at.key("expect"), "only an http listener has clients that wait")
	if l.Transparent {
		l.checkTransparent(in, at.key("transparent"))
	}
	if l.Service != "" {
		in.reference(at.key("service"), l.Service)
		if l.Protocol != ProtocolLink { // a link carries requests and tcp
			checkProtocol(in, at.key("service"), l.Service, l.Protocol)
		} else if s := in.config.Services[l.Service]; s != nil {
			in.refuseIf(s.LB.Sticky.Cookie != "", at.key("service"),
				"service %s has lb.sticky, and requests on links come from sidecars that have picked; expected it there", l.Service)
		}
	}
	in.sections(reflect.ValueOf(l).Elem(), at)
}

// checkTransparent reports settings that a transparent listener can't have.
func (l *Listener) checkTransparent(in scope, shown path) {
	switch {
	case l.Protocol != ProtocolHTTP:
		in.report(shown, "only an http listener can be transparent; this one is %s", l.Protocol)
	case l.Service != "":
		in.report(shown, "contradicts service: the routes decide which requests go to a service and which pass through")
	case l.TLS.Enabled():
		in.report(shown, "contradicts tls: connections that pass through must stay unchanged")
	case l.ProxyProtocol.Enabled():
		in.report(shown, "contradicts proxy_protocol: the kernel redirects connections, and no proxy makes them")
	case unixaddr.Is(l.Address):
		in.report(shown, "the kernel redirects no connections to a Unix socket")
	}
}

// FileMode is the mode of a file as text in octal digits; empty means none.
type FileMode string

// Bits returns the mode as a number; 0 means none.
func (m FileMode) Bits() fs.FileMode {
	bits, _ := strconv.ParseUint(string(m), 8, 9)
	return fs.FileMode(bits)
}

// checkMode reports what is no mode, or has no file.
func (l *Listener) checkMode(in scope, at path) {
	bits, err := strconv.ParseUint(string(l.Mode), 8, 9)
	switch {
	case l.Mode == "":
	case err != nil || bits == 0:
		in.report(at, `expected octal digits such as "0660", got %q`, string(l.Mode))
	case !strings.HasPrefix(l.Address, "unix:/"):
		in.report(at, "only unix:/path has a file")
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

// checkFree checks that the system can have one socket beside others.
func (s socket) checkFree(in scope, others []socket) {
	for _, other := range others {
		switch {
		case s.address == other.address:
			in.report(s.setting, "%s is already used by %s; expected another port or address", s.address, other.setting)
			return
		case s.isIP && other.isIP && bindaddr.Overlap(s.at, other.at):
			in.report(s.setting, "%s overlaps %s, the address of %s; expected another port or address", s.address, other.address, other.setting)
			return
		}
	}
}
