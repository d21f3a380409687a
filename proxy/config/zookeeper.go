package config

import (
	"slices"
	"strings"
	"time"
)

// ZooKeeper is the ZooKeeper that applications of Dubbo register in.
type ZooKeeper struct {
	// `host:port` of each server. `discover: zookeeper` requires it.
	Servers []string `yaml:"servers" reload:"restart"`
	// Path of a node that all others are under, such as `/shop`.
	Chroot string `yaml:"chroot" reload:"restart"`
	// Name of Dubbo's node, the `group` of Dubbo's registry.
	Group string `yaml:"group" reload:"restart"`
	// How long a registration outlives a killed sidecar. The server may choose another time.
	SessionTimeout time.Duration `yaml:"session_timeout" min:"1s" reload:"restart"`
	// For the scheme `digest`. Requires `password`.
	Username string `yaml:"username" reload:"restart"`
	// Requires `username`. `/config` does not show it.
	Password string `yaml:"password" secret:"true" reload:"restart"`
	// Services whose interface has another name, or a group or version.
	Services []ZooKeeperService `yaml:"services" reload:"restart"`
	TLS      TLS                `yaml:"tls"`
}

// ZooKeeperService is a service of Dubbo.
type ZooKeeperService struct {
	// Required: name of the service here.
	Service string `yaml:"service" reload:"restart"`
	// Name of the interface. Without one, that of the service here.
	Interface string `yaml:"interface" reload:"restart"`
	// Groups of the providers that count, with commas between them. `*` is all, nothing those without a group.
	Group string `yaml:"group" reload:"restart"`
	// As `group`.
	Version string `yaml:"version" reload:"restart"`
	// Applications whose instances have the interface. Without any, those that Dubbo has mapped it to.
	Applications []string `yaml:"applications" reload:"restart"`
	// Protocol of the records that count, as Dubbo names it. `tri` is Triple, which endpoints speak as `grpc`; `rest` is `http`.
	Protocol string `yaml:"protocol" oneof:"dubbo tri rest" reload:"restart"`
}

func (s *ZooKeeperService) setDefaults() { s.Protocol = ProtocolDubbo }

// protocolTriple is Dubbo's name of Triple.
const protocolTriple = "tri"

// zooKeeperProtocols has, for the protocol of records, what a service with such endpoints may speak. The first is what the
// endpoints speak.
var zooKeeperProtocols = map[string][]string{
	ProtocolDubbo:  {ProtocolDubbo, ProtocolLink},
	protocolTriple: {ProtocolGRPC, ProtocolHTTP2, ProtocolLink},
	"rest":         {ProtocolHTTP, ProtocolLink},
}

// Speaks returns what the endpoints of a service of a valid configuration speak.
func (s *ZooKeeperService) Speaks() string { return zooKeeperProtocols[s.Protocol][0] }

// ZooKeeperScheme is how consumers of Dubbo call a listener.
type ZooKeeperScheme struct {
	Listener      string // protocol of the listener
	Name          string // of the protocol, as Dubbo says
	Serialization string // that consumers must use; "" means any
}

// ZooKeeperSchemes are those of all listeners that can be registered. A listener of HTTP takes Triple, which is HTTP/2.
var ZooKeeperSchemes = []ZooKeeperScheme{
	{Listener: ProtocolDubbo, Name: ProtocolDubbo, Serialization: SerializationHessian2},
	{Listener: ProtocolHTTP, Name: protocolTriple},
}

// DiscoverZooKeeper is the value of Service.Discover for endpoints in ZooKeeper.
const DiscoverZooKeeper = "zookeeper"

func init() { declareRegistry(DiscoverZooKeeper, new(ZooKeeper)) }

// ZooKeeper returns the settings of ZooKeeper.
func (r *Registry) ZooKeeper() *ZooKeeper { return block[ZooKeeper](r.Blocks) }

func (z *ZooKeeper) setDefaults() { z.Group, z.SessionTimeout = "dubbo", 10*time.Second }

// Local reports whether all servers of ZooKeeper are on loopback.
func (z *ZooKeeper) Local() bool { return allLocal(z.Servers) }

func (z *ZooKeeper) servers() (key string, n int) { return "servers", len(z.Servers) }

func (z *ZooKeeper) registers() bool { return true }

func (z *ZooKeeper) tls() *TLS {
	if z.TLS.Enabled() {
		return &z.TLS
	}
	return nil
}

// check reports bad addresses of servers, names that no node can have, and keys that contradict each other.
func (z *ZooKeeper) check(in scope, at path) {
	for i, server := range z.Servers {
		checkAddress(in, at.key("servers").item(i), server, dialable)
	}
	z.TLS.check(in, at.key("tls"))
	in.refuseIf(z.Chroot != "" && (!strings.HasPrefix(z.Chroot, "/") || strings.HasSuffix(z.Chroot, "/")),
		at.key("chroot"), "expected a path such as /shop, got %q", z.Chroot)
	in.refuseIf(z.Group == "" || strings.Contains(z.Group, "/"), at.key("group"), "expected the name of a node, such as dubbo, got %q", z.Group)
	in.refuseIf((z.Username == "") != (z.Password == ""), at, "username and password must be set together")
	for i, s := range z.Services {
		shown := at.key("services").item(i)
		of := shown.key("service")
		in.refuseIf(s.Service == "", of, "missing; expected the name of a service")
		in.refuseIf(slices.ContainsFunc(z.Services[:i], func(o ZooKeeperService) bool { return o.Service == s.Service }), of,
			"%s is listed twice", s.Service)
		in.refuseIf(strings.Contains(s.Interface, "/"), shown.key("interface"), "expected the name of an interface, got %q", s.Interface)
		for j, name := range s.Applications {
			in.refuseIf(name == "" || strings.Contains(name, "/"), shown.key("applications").item(j), "expected the name of an application, got %q", name)
		}
	}
	for name, s := range in.config.Services {
		records := z.Of(name).Protocol
		may := zooKeeperProtocols[records]
		in.refuseIf(s.finds(DiscoverZooKeeper) && may != nil && !slices.Contains(may, s.Protocol), path("services").key(name).key("protocol"),
			"is %s, but registry.zookeeper.services takes records of %s for it; expected %s, or other records", s.Protocol, records, strings.Join(may, " or "))
	}
}

// checkRegistration reports a registration that consumers of Dubbo can't call.
func (z *ZooKeeper) checkRegistration(in scope, at path, r *Register, l *Listener) {
	canCall := func(s ZooKeeperScheme) bool { return s.Listener == l.Protocol }
	if !slices.ContainsFunc(ZooKeeperSchemes, canCall) {
		var may []string
		for _, s := range ZooKeeperSchemes {
			may = append(may, s.Listener)
		}
		in.report(at.key("listener"), "%s is %s, which consumers of Dubbo can't call; expected a listener that is %s", l.Name, l.Protocol, strings.Join(may, " or "))
	}
	of := z.Of(r.Service)
	in.refuseIf(strings.ContainsAny(of.Group, ",*"), at.key("service"), "has group %q in registry.zookeeper.services; expected one group to register it", of.Group)
	in.refuseIf(strings.ContainsAny(of.Version, ",*"), at.key("service"), "has version %q in registry.zookeeper.services; expected one version to register it", of.Version)
}

// Of returns what is set for a service.
func (z *ZooKeeper) Of(name string) *ZooKeeperService {
	if i := slices.IndexFunc(z.Services, func(s ZooKeeperService) bool { return s.Service == name }); i >= 0 {
		return &z.Services[i]
	}
	s := &ZooKeeperService{Service: name}
	s.setDefaults()
	return s
}
