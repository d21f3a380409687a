package proxy_test

import (
	"fmt"
	"testing"

	"github.com/remora-proxy/remora/proxy/allow"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestReloadRules checks that changed rules apply to the next request on an open connection,
// and that unchanged rules keep their counts.
func TestReloadRules(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	client := m.Dial(proxytest.Egress)
	m.RunUntil("the connection", func() bool { return client.Conn != nil })
	get := func(want string) {
		t.Helper()
		c := m.Get("/a")
		client.Calls = append(client.Calls, c)
		m.Clients.Do(client.Send)
		m.Finish(c)
		proxytest.Equal(t, "the response", fmt.Sprint(c.Status, " ", c.Code), want)
	}
	reload := func(routes, service string) {
		t.Helper()
		m.Consumer.Reload(proxytest.ReloadYAML(m, routes, "compute: {%s, "+service+"}"))
	}
	const rules = `allow: {rules: [{name: get, method: [GET]}]}`
	get("200 ")
	reload("{service: compute}", "allow: {rules: [{method: [PUT]}]}")
	get("403 not-allowed")
	reload("{service: compute}", "allow: {enforce: false, rules: [{method: [PUT]}]}")
	get("200 ")
	reload("{service: compute, allow: {rules: [{path: [/b]}]}}", rules)
	get("403 not-allowed")
	reload("{service: compute}", rules)
	get("200 ")
	reload("{service: compute, timeout: 1m}", rules+", max_pending: 7")
	get("200 ")
	counts := m.Consumer.Proc.Generation().RuleCounts()
	want := []allow.Count{
		{Set: "services.compute", Rule: "get", Enforced: true, Calls: 2},
		{Set: "services.compute", Rule: allow.NoRule, Enforced: true},
	}
	proxytest.Equal(t, "the counts", fmt.Sprint(counts), fmt.Sprint(want))
	m.Settled()
}
