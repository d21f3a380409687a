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
		{of(`discover: kubernetes`, ""), ""},
		{of(`discover: kubernetes`, "kubernetes: {services: [{service: s, port: http}]}"), ""},
		{of(`discover: kubernetes`, "kubernetes: {services: [{port: http}]}"), "services[0].service: missing"},
		{of(`discover: kubernetes`, "kubernetes: {services: [{service: s, port: http}, {service: s}]}"), "services[1].service: s is listed twice"},
	})
}
