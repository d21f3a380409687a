package sources

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// source is a source of endpoints that a test controls. All replicas belong to the service compute.
type source struct {
	keys    string                         // more keys of registry in the configuration, after a comma
	find    string                         // keys of the service in the configuration; NAME is its name, and PORT that of the replicas
	command func(args ...string) *exec.Cmd // in which the sidecar runs; nil means as it is
	publish func(addrs []string, port string) error
	faults  []fault
	linger  int // replicas that serve on after they were removed, as the source tells late

	many         func(services int) error // publishes the services of TestManyServices
	manyProtocol string                   // that they have; "" means http
	watches      func() int               // that clients have on the source; nil if it has none
}

// fault is something bad that happens to a source.
type fault struct {
	name       string
	begin, end func()
	code       string // of the source while the fault lasts; "" if the source stays up, or may
	isLong     bool   // not in the short form
}

// sources are all sources, by the names that a sidecar shows. make skips the test if it lacks what the source needs.
var sources = []struct {
	name string
	make func(t *testing.T) *source
}{
	{"file", fileSource},
	{"etcd", etcdSource},
	{"kubernetes", kubernetesSource},
	{"zookeeper", zooKeeperSource},
	{"dns", namesSource},
}

// start starts a sidecar that finds the replicas in the source.
func (s *source) start(t *testing.T, r *replicas) (p *harness.Process, egress string) {
	t.Helper()
	if err := s.publish(r.addrs(), r.port); err != nil {
		t.Fatal(err)
	}
	egress = harness.FreeAddrs(t, 1)[0]
	p = harness.NewProcess(t, fmt.Sprintf(`
registry: {allow_addresses: ["127.0.0.0/8"], cache_dir: %q%s}
listeners: [{name: egress, address: %q, protocol: http, service: compute}]
services: {compute: {%s, protocol: http, idempotent: true, retry: {attempts: 2}}}`, t.TempDir(), s.keys, egress, s.findIn("compute", r.port)))
	p = s.launch(p)
	p.Ready()
	r.await(p, "at the start")
	return p, egress
}

// findIn returns the keys of a service in the configuration.
func (s *source) findIn(service, port string) string {
	return strings.NewReplacer("NAME", service, "PORT", port).Replace(s.find)
}

// launch starts a sidecar with the configuration of p.
func (s *source) launch(p *harness.Process) *harness.Process {
	if s.command == nil {
		return p.Again()
	}
	return p.Launch(s.command(p.Command().Args...))
}

// fileSource is a file of endpoints.
func fileSource(t *testing.T) *source {
	path := filepath.Join(t.TempDir(), "endpoints.json")
	write := func(text []byte) error {
		if err := os.WriteFile(path+".new", text, 0o600); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	}
	var last []byte
	restore := func() {
		if err := write(last); err != nil {
			t.Fatal(err)
		}
	}
	return &source{
		find: "discover: file", keys: fmt.Sprintf(", file: {path: %q}", path),
		publish: func(addrs []string, port string) error {
			list := []string{}
			for _, a := range addrs {
				list = append(list, net.JoinHostPort(a, port))
			}
			last, _ = json.Marshal(map[string][]string{"compute": list})
			return write(last)
		},
		many: func(services int) error {
			all := map[string][]string{}
			for i := range services {
				for _, a := range manyAddrs(i) {
					all[manyName(i)] = append(all[manyName(i)], a+":80")
				}
			}
			text, _ := json.Marshal(all)
			return write(text)
		},
		watches: func() int { return 1 }, // it is one file
		faults: []fault{
			{name: "removed", begin: func() { _ = os.Remove(path) }, end: restore, code: "missing"},
			{name: "half written", begin: func() { must.WriteFile(t, path, bytes.TrimSuffix(last, []byte("]}"))) }, end: restore, code: "invalid"},
		},
	}
}
