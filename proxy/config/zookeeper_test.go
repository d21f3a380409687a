package config

import "testing"

// TestZooKeeperRules checks the settings of ZooKeeper, and that its records can be endpoints of their services.
func TestZooKeeperRules(t *testing.T) {
	of := func(service, zookeeper string) string {
		return `{registry: {zookeeper: {servers: ["10.0.0.1:2181"], ` + zookeeper + `}}, services: {s: {discover: zookeeper, ` + service + `}}}`
	}
	checkRules(t, []rule{
		{of("protocol: dubbo", ""), ""},
		{of("", ""), ""}, // between sidecars
		{of("protocol: grpc", "services: [{service: s, interface: a.B, group: '*', version: '1,2', applications: [x], protocol: tri}]"), ""},
		{of("protocol: http2", "services: [{service: s, protocol: tri}]"), ""},
		{of("protocol: http", "services: [{service: s, protocol: rest}]"), ""},
		{of("protocol: http", ""), "services.s.protocol: is http, but registry.zookeeper.services takes records of dubbo for it; expected dubbo or link, or other records"},
		{of("protocol: grpc", "services: [{service: s}]"), "is grpc, but registry.zookeeper.services takes records of dubbo for it"},
		{of("protocol: tcp", "services: [{service: s, protocol: tri}]"), "is tcp, but registry.zookeeper.services takes records of tri for it"},
		{of("", "services: [{service: s, protocol: thrift}]"), "thrift"},
		{of("", "chroot: shop"), `registry.zookeeper.chroot: expected a path such as /shop, got "shop"`},
		{of("", "chroot: /shop/"), "expected a path such as /shop"},
		{of("", "group: a/b"), "registry.zookeeper.group: expected the name of a node"},
		{of("", "group: ''"), "registry.zookeeper.group: expected the name of a node"},
		{of("", "chroot: /shop"), ""},
		{of("", "username: me"), "registry.zookeeper: username and password must be set together"},
		{of("", "password: me"), "registry.zookeeper: username and password must be set together"},
		{of("", "services: [{service: s, applications: ['']}]"), "services[0].applications[0]: expected the name of an application"},
		{of("", "username: me, password: secret, chroot: /shop, group: other, session_timeout: 30s"), ""},
		{of("", "session_timeout: 10ms"), "session_timeout"},
		{of("", "services: [{interface: a}]"), "services[0].service: missing"},
		{of("", "services: [{service: s}, {service: s}]"), "services[1].service: s is listed twice"},
		{of("", "services: [{service: s, interface: a/b}]"), "services[0].interface: expected the name of an interface"},
		{of("", "services: [{service: s, applications: [a, b/c]}]"), "services[0].applications[1]: expected the name of an application"},
		{of("", "tls: {cert: a.pem}"), "registry.zookeeper.tls"},
		{`{registry: {zookeeper: {servers: ["10.0.0.1"]}}, services: {s: {discover: zookeeper}}}`, "registry.zookeeper.servers[0]: expected host:port"},
		{`{services: {s: {discover: zookeeper}}}`, "is zookeeper, but registry.zookeeper.servers is empty"},
	})
}

// TestZooKeeperRegistrations checks that what is registered in ZooKeeper can be called by consumers of Dubbo.
func TestZooKeeperRegistrations(t *testing.T) {
	of := func(protocol, registry string) string {
		return `{listeners: [{name: l, address: "127.0.0.1:1", protocol: ` + protocol + `, service: s}],
			services: {s: {discover: static, protocol: ` + protocol + `, endpoints: [{address: "127.0.0.1:2"}]}},
			register: [{service: a, listener: l, advertise: "10.0.0.1:1"}], registry: {` + registry + `}}`
	}
	const zookeeper = `zookeeper: {servers: ["10.0.0.1:2181"]}`
	checkRules(t, []rule{
		{of("dubbo", zookeeper), ""},
		{of("http", zookeeper), ""},
		{of("tcp", zookeeper), "register[0].listener: l is tcp, which consumers of Dubbo can't call; expected a listener that is dubbo or http"},
		{of("link", zookeeper), "register[0].listener: l is link, which consumers of Dubbo can't call"},
		{of("tcp", zookeeper+`, etcd: {endpoints: ["10.0.0.1:2379"]}`), ""}, // etcd comes first
		{of("dubbo", `zookeeper: {servers: ["10.0.0.1:2181"], services: [{service: a, group: g, version: '1'}, {service: b, group: '*'}]}`), ""},
		{of("dubbo", `zookeeper: {servers: ["10.0.0.1:2181"], services: [{service: a, group: '*'}]}`), `register[0].service: has group "*"`},
		{of("dubbo", `zookeeper: {servers: ["10.0.0.1:2181"], services: [{service: a, version: '1,2'}]}`), `register[0].service: has version "1,2"`},
	})
}

// TestZooKeeperServices: what endpoints of a service in ZooKeeper speak follows from its records, which are of Dubbo unless
// the file says otherwise.
func TestZooKeeperServices(t *testing.T) {
	c := mustParse(t, `registry: {zookeeper: {servers: ["10.0.0.1:2181"], services: [{service: a, protocol: tri}, {service: b, protocol: rest}, {service: c}]}}`)
	for name, want := range map[string]string{"a": ProtocolGRPC, "b": ProtocolHTTP, "c": ProtocolDubbo, "d": ProtocolDubbo} {
		if s := c.Registry.ZooKeeper().Of(name); s.Service != name || s.Speaks() != want {
			t.Errorf("the endpoints of %s: %+v, which speak %s; want %s", name, s, s.Speaks(), want)
		}
	}
}
