package names

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab"
)

// TestProxyOfEnvironment: a proxy that the environment names is for applications. It is often the sidecar itself. What
// a sidecar needs to serve goes past it: etcd, endpoints and their checks.
func TestProxyOfEnvironment(t *testing.T) {
	e, err := lab.StartEtcd(lab.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	// Go passes a proxy by for loopback addresses and localhost, but not for localhost in capitals.
	here := strings.NewReplacer("127.0.0.1", "LOCALHOST")
	app := harness.Describing(t)
	addrs := harness.FreeAddrs(t, 3)
	p := harness.NewProcess(t, fmt.Sprintf(`
loops: 1
registry: {etcd: {endpoints: [%q]}}
listeners:
  - {name: ingress, address: %q, protocol: link, service: local}
  - {name: egress, address: %q, protocol: http, service: compute}
services:
  local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, check: {http: /}}
  compute: {discover: etcd, connect_timeout: 15s, timeout: 2m}
register: [{service: compute, listener: ingress, advertise: %q, check: {http: /}}]`,
		here.Replace(e.Endpoint()), addrs[0], addrs[1], here.Replace(app), addrs[0]))
	cmd := p.Command()
	cmd.Env = os.Environ()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		cmd.Env = append(cmd.Env, name+"=http://"+addrs[2], strings.ToLower(name)+"=http://"+addrs[2])
	}
	p = p.Launch(cmd)
	p.Ready()
	eventually.Nil(t, "the provider to be registered", func() error {
		if status, code, _, err := harness.Get(addrs[1]); status != 200 || err != nil {
			return fmt.Errorf("response %d %s, %v", status, code, err)
		}
		return nil
	})
}
