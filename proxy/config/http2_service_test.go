package config

import (
	"strings"
	"testing"
)

// TestHTTP2Services checks where services of HTTP/2 and gRPC may be named.
func TestHTTP2Services(t *testing.T) {
	for _, protocol := range []string{ProtocolHTTP2, ProtocolGRPC} {
		to := func(listener string) string {
			return withService("protocol: "+protocol) + "\nlisteners: [{name: l, address: \"127.0.0.1:1\", protocol: " + listener + ", service: s}]"
		}
		checkRules(t, []rule{
			{to(ProtocolHTTP), ""},
			{to(ProtocolLink), ""},
			{to(ProtocolDubbo), "Dubbo calls can't be converted to it"},
			{to(ProtocolTCP), "listeners[0].service: service s speaks " + protocol + "; opaque tcp needs a service with protocol: tcp, http or link"},
			{withService("protocol: "+protocol) + "\nlisteners: [{name: l, address: \"127.0.0.1:1\", protocol: tcp}]\nroutes: [{match: {sni: a.test}, service: s}]", "opaque tcp needs a service"},
			{withService("protocol: "+protocol) + "\nlisteners: [{name: l, address: \"127.0.0.1:1\", protocol: http}]\nroutes: [{match: {method: [CONNECT]}, service: s}]", "routes[0].service: match.method has CONNECT, and service s speaks " + protocol},
			{withService("protocol: "+protocol) + "\nlisteners: [{name: l, address: \"127.0.0.1:1\", protocol: http}]\nroutes: [{match: {method: [GET, CONNECT]}, service: [{name: s, weight: 1}]}]", "routes[0].service[0].name: match.method has CONNECT"},
			{to(protocol), "expected one of " + strings.Join(ListenerProtocols, ", ")},
			{withService("protocol: " + protocol + ", check: {http: /}"), "check.http: the endpoints speak " + protocol},
			{withService("protocol: " + protocol + ", check: {tcp: true}"), ""},
		})
	}
}
