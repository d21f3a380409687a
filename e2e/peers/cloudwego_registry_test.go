package peers

import (
	"fmt"
	"regexp"
	"slices"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab"
)

// awaitKeys waits until etcd has exactly these keys.
func awaitKeys(t *testing.T, client *clientv3.Client, want ...string) {
	t.Helper()
	slices.Sort(want)
	eventually.Nil(t, fmt.Sprintf("the keys %v", want), func() error {
		got, err := client.Get(t.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		var keys []string
		for _, kv := range got.Kvs {
			keys = append(keys, string(kv.Key))
		}
		if slices.Sort(keys); !slices.Equal(keys, want) {
			return fmt.Errorf("%v", keys)
		}
		return nil
	})
}

// TestKitexRegistry: Kitex's registry and Remora's share an etcd. A server of Kitex registers its
// sidecar's listener, which Kitex's client finds there. Another sidecar registers for Remora's
// consumers. Each registry leaves the other's keys alone, also those with the other's prefix.
func TestKitexRegistry(t *testing.T) {
	needCloudwego(t)
	for _, prefix := range []string{"kitex/registry-etcd", "/remora/services"} {
		t.Run(prefix, func(t *testing.T) {
			t.Parallel()
			e, err := lab.StartEtcd(lab.EtcdOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Close() })
			client, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Addr()}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { client.Close() })
			free := harness.FreeAddrs(t, 3)
			in, link, egress := free[0], free[1], free[2]
			app := startCloudwego(t, "kitex", "-etcd", e.Addr(), "-prefix", prefix, "-register", in)
			kitexKey, remoraKey := prefix+"/remora.Echo/"+in, "/remora/services/remora.Echo/n1@"+link
			awaitKeys(t, client, kitexKey)
			provider := harness.Start(t, fmt.Sprintf(`
node: {id: n1}
registry: {etcd: {endpoints: [%q]}}
listeners: [{name: in, address: %q, protocol: tcp, service: local}, {name: link, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: tcp, connect_timeout: 15s, timeout: 2m}}
register: [{service: remora.Echo, listener: link, advertise: %q}]`, e.Addr(), in, link, app.addr, link))
			provider.Ready()
			awaitKeys(t, client, kitexKey, remoraKey)
			consumer := harness.Start(t, fmt.Sprintf(`
registry: {etcd: {endpoints: [%q]}}
listeners: [{name: out, address: %q, protocol: tcp, service: remora.Echo}]
services: {remora.Echo: {discover: etcd, protocol: link, connect_timeout: 15s, timeout: 2m}}`, e.Addr(), egress))
			consumer.Ready()

			const streams = `remora_streams_total{result="connected",service="local"}`
			if prefix != "/remora/services" { // there Kitex's resolver takes Remora's values for instances without address
				runKitex(t, "thrift", []string{"-etcd", e.Addr(), "-prefix", prefix, "-transport", "framed"}, "echo", "errors")
				if n := provider.Metric(streams); n == 0 {
					t.Error("calls of Kitex's client do not pass the sidecar")
				}
			} else {
				consumer.AwaitLog("value in etcd is invalid, ignored", regexp.QuoteMeta(kitexKey))
			}
			before := provider.Metric(streams)
			runKitex(t, "thrift", []string{"-addr", egress, "-transport", "framed"}, "echo", "many")
			if provider.Metric(streams) == before {
				t.Error("calls through the consumer's sidecar do not pass the provider's")
			}
			checkDid(t, []*cloudwegoServer{app}, "many-", 400)

			// Each removes its own key at its end, and no other.
			app.stop()
			awaitKeys(t, client, remoraKey)
			app.start()
			awaitKeys(t, client, kitexKey, remoraKey)
			runKitex(t, "thrift", []string{"-addr", egress, "-transport", "framed"}, "echo")
			provider.Signal(syscall.SIGTERM)
			provider.Ends()
			awaitKeys(t, client, kitexKey)
		})
	}
}
