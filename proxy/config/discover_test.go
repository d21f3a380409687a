package config

import "testing"

// TestSourceRules checks the sources of services, and the settings of registries.
func TestSourceRules(t *testing.T) {
	of := func(service, registry string) string {
		return `{registry: {` + registry + `}, services: {s: {` + service + `}}}`
	}
	const both = `etcd: {endpoints: ["10.0.0.1:2379"]}, file: {path: /run/endpoints.json}`
	checkRules(t, []rule{
		{of(`discover: file`, both), ""},
		{of(`discover: [etcd, file]`, both), ""},
		{of(`discover: [etcd, static], endpoints: ["10.0.0.1:80"]`, both), ""},
		{of(`discover: [etcd, file], combine: merge`, both), ""},
		{of(`discover: []`, both), "empty; leave it out"},
		{of(`discover: [etcd, etcd]`, both), "services.s.discover[1]: etcd is listed twice"},
		{of(`discover: file, combine: merge`, both), "nothing to merge with file alone"},
		{of(`discover: [etcd, file], endpoints: ["10.0.0.1:80"]`, both), "set, but discover is etcd, file; expected discover: static"},
		{of(`discover: [etcd, static]`, both), "missing; a static service needs endpoints"},
		{of(`discover: [kubernetes, file]`, ""), "services.s.discover[1]: is file, but registry.file.path is empty"},
		{of(`discover: file`, "file: {path: endpoints.json}"), `expected an absolute path, got "endpoints.json"`},
		{of(`discover: [etcd, static]`, "file: {path: /a}"), "services.s.discover[0]: is etcd, but registry.etcd.endpoints is empty; expected addresses there, or discover: static"},
		{of(`discover: kubernetes`, ""), ""},
		{of(`discover: kubernetes`, "kubernetes: {services: [{service: s, port: http}]}"), ""},
		{of(`discover: kubernetes`, "kubernetes: {services: [{port: http}]}"), "services[0].service: missing"},
		{of(`discover: kubernetes`, "kubernetes: {services: [{service: s, port: http}, {service: s}]}"), "services[1].service: s is listed twice"},
	})
}

// TestServers: how many servers the clients of all registries may have connections to. The Kubernetes API has one address.
func TestServers(t *testing.T) {
	for registry, want := range map[string]int{
		``:                           1,
		`file: {path: /a}`:           2,
		`etcd: {endpoints: ["b:1"]}`: 2,
		`etcd: {endpoints: ["b:1", "c:1"]}, zookeeper: {servers: ["d:1", "e:1", "f:1"]}, file: {path: /a}`: 7,
	} {
		if got := mustParse(t, `registry: {`+registry+`}`).Registry.Servers(); got != want {
			t.Errorf("%q: %d servers, want %d", registry, got, want)
		}
	}
}

// TestNowhereToRegister: the error names what is missing of each registry that takes registrations.
func TestNowhereToRegister(t *testing.T) {
	checkRules(t, []rule{{`{services: {s: {discover: static, endpoints: ["a:1"]}}, listeners: [{name: l, address: "b:1", protocol: http, service: s}],
registry: {file: {path: /a}}, register: [{service: s, listener: l, advertise: "c:1"}]}`,
		"register[0]: there is nowhere to register: registry.etcd.endpoints is empty, registry.zookeeper.servers is empty"}})
}
