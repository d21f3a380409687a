package sidecar

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
)

// keeping is a sidecar in this process whose service app has the endpoint at before.
type keeping struct {
	t    *testing.T
	s    *Sidecar
	z    *zone
	path string // of the file of endpoints
	free []string
}

const before = "10.77.0.1:80"

func newKeeping(t *testing.T, discover string) *keeping {
	t.Helper()
	procs := runtime.GOMAXPROCS(0)
	k := &keeping{t: t, z: &zone{lookups: map[string]int{}, remote: true}, path: filepath.Join(t.TempDir(), "endpoints.json"), free: harness.FreeAddrs(t, 2)}
	k.z.hosts = map[string]string{"known.test": "10.77.0.9", "empty.test": none, "refused.test": "127.0.0.9"}
	k.write()
	s, err := start(t.Context(), quiet(t, k.config("", "discover: static, endpoints: [%q]", "127.0.0.9:9"), ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop(); runtime.GOMAXPROCS(procs) })
	k.s = s
	s.discovery.disconnect() // the next reload connects again, with the resolver of the test
	clear(s.discovery.connections)
	s.discovery.dns = dns.Options{Lookup: k.z.lookup, Others: new(dns.Others), Failing: dns.NewFailing(), Interval: time.Millisecond, Timeout: harness.Patience, Logger: s.log}
	if discover == "discover: file" {
		k.write(before)
	}
	k.reload(k.config("", discover, before))
	s.awaitAddresses(t, before)
	return k
}

// config returns a configuration whose service has the given settings, in which %q is in place of the list of endpoints.
func (k *keeping) config(listeners, service string, endpoints ...string) *config.Config {
	k.t.Helper()
	if strings.Contains(service, "%q") {
		service = fmt.Sprintf(strings.Replace(service, "[%q]", "%s", 1), list(endpoints))
	}
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
admin: {address: ""}
registry: {file: {path: %q}}
listeners: [{name: egress, address: %q, protocol: http, service: app}%s]
services: {app: {protocol: http, %s}}`, k.path, k.free[0], listeners, service), nil)
	if err != nil {
		k.t.Fatal(err)
	}
	return cfg
}

func list(addrs []string) string {
	text, _ := json.Marshal(addrs)
	return string(text)
}

// write makes these the endpoints in the file.
func (k *keeping) write(addrs ...string) {
	k.t.Helper()
	err := os.WriteFile(k.path+".new", fmt.Appendf(nil, `{"app": %s}`, list(append([]string{}, addrs...))), 0o600)
	if err == nil {
		err = os.Rename(k.path+".new", k.path)
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *keeping) reload(cfg *config.Config) {
	k.t.Helper()
	k.s.changing.Lock()
	defer k.s.changing.Unlock()
	if err := k.s.reloads.apply(cfg); err != nil {
		k.t.Fatal(err)
	}
}

// TestKeepsLastEndpoints: while no name of a service leads to an endpoint, and one is not resolved, the last endpoints stay, whatever the
// source, and whatever the other names are. If all names are refused, none stays.
func TestKeepsLastEndpoints(t *testing.T) {
	const known = "10.77.0.9:80"
	for _, discover := range []string{
		"discover: static, endpoints: [%q]", "discover: file", "discover: [file, static], endpoints: [%q]",
		"discover: [file, static], combine: merge, endpoints: [%q]", "discover: static, endpoints: [%q], check: {tcp: true, interval: 2h}",
	} {
		for _, c := range []struct{ parts, want string }{
			{"failed", before}, {"empty", before}, {"refused", ""}, {"known", known},
			{"failed empty", before}, {"failed refused", before}, {"empty refused", before}, {"failed empty refused", before},
			{"failed known", known}, {"empty known", known}, {"refused known", known}, {"failed empty refused known", known},
		} {
			t.Run(discover+" "+c.parts, func(t *testing.T) {
				k := newKeeping(t, discover)
				var names []string
				for _, part := range strings.Fields(c.parts) {
					names = append(names, part+".test:80")
				}
				if discover == "discover: file" {
					k.write(names...)
				} else {
					k.reload(k.config("", discover, names...))
				}
				for _, name := range names {
					host, _, _ := net.SplitHostPort(name)
					k.z.awaitLookups(t, host)
				}
				k.s.awaitAddresses(t, strings.Fields(c.want)...)
			})
		}
	}
}

// TestKeptEndpointsAreJudged: an endpoint that stays as names do not resolve does not stay once it leads back to the sidecar.
func TestKeptEndpointsAreJudged(t *testing.T) {
	const discover = "discover: static, endpoints: [%q]"
	k := newKeeping(t, discover)
	_, port, _ := net.SplitHostPort(k.free[1])
	k.reload(k.config("", discover, k.free[1], "10.77.0.1:"+port))
	k.s.awaitAddresses(t, k.free[1], "10.77.0.1:"+port)
	k.reload(k.config("", discover, "failed.test:80"))
	k.z.awaitLookups(t, "failed.test")
	k.s.awaitAddresses(t, k.free[1], "10.77.0.1:"+port)
	k.awaitKept(2)
	k.reload(k.config(fmt.Sprintf(", {name: further, address: %q, protocol: http, service: app}", k.free[1]), discover, "failed.test:80"))
	k.s.awaitAddresses(t, "10.77.0.1:"+port)
	k.awaitKept(1)
	k.reload(k.config("", discover, "failed.test:81")) // what was refused does not come back
	k.z.awaitLookups(t, "failed.test")
	if got := k.s.addresses("app"); !slices.Equal(got, []string{"10.77.0.1:" + port}) {
		t.Errorf("in use are %v", got)
	}
	k.reload(k.config("", discover, "known.test:80", "failed.test:81"))
	k.s.awaitAddresses(t, "10.77.0.9:80")
	k.awaitKept(0)
}

// awaitKept waits until DNS has so many endpoints that stay in use.
func (k *keeping) awaitKept(want int) {
	k.t.Helper()
	eventually.True(k.t, fmt.Sprintf("%d kept endpoints", want), func() bool {
		all := k.s.discovery.stats()
		i := slices.IndexFunc(all, func(s admin.SourceStats) bool { return s.Name == admin.SourceDNS })
		return i >= 0 && all[i].Kept == want
	})
}

// TestReloadRefusedAndUnresolvedNames: a new service in place of one with endpoints must have a name that resolves, whatever is refused.
func TestReloadRefusedAndUnresolvedNames(t *testing.T) {
	t.Parallel() // it mostly waits
	const discover = "discover: static, endpoints: [%q], lb: {subset: 1}"
	k := newKeeping(t, "discover: static, endpoints: [%q]")
	k.s.changing.Lock()
	err := k.s.reloads.apply(k.config("", discover, "failed.test:80", "refused.test:80"))
	k.s.changing.Unlock()
	if r, ok := err.(*refusal); !ok || r.code != refusedEndpoints {
		t.Errorf("%v", err)
	}
	k.s.awaitAddresses(t, before)
	k.reload(k.config("", discover, "refused.test:80"))
	k.s.awaitAddresses(t)
}

// told is a watcher whose snapshots the test makes.
type told struct{ notify func(*registry.Snapshot) }

func (w *told) Watch(_ string, notify func(*registry.Snapshot)) (stop func()) {
	w.notify = notify
	return func() {}
}

// listAt returns a snapshot of the service s. Without addresses it has a host name that does not resolve.
func listAt(revision int64, addrs ...string) *registry.Snapshot {
	var endpoints []registry.Endpoint
	for _, addr := range addrs {
		endpoints = append(endpoints, registry.Endpoint{Addr: addr, Weight: 1})
	}
	s := registry.NewSnapshot("s", registry.SourceLive, time.Unix(1, 0), endpoints)
	s.Revision, s.Unresolved = revision, len(addrs) == 0
	return s
}

// TestRevisionOfKept: endpoints that stay are of no revision.
func TestRevisionOfKept(t *testing.T) {
	var got *registry.Snapshot
	inner, refused := &told{}, ""
	k := &keeper{inner: inner, log: slog.New(slog.DiscardHandler), refuses: func(_, addr string) bool { return addr == refused }}
	k.Watch("s", func(s *registry.Snapshot) { got = s })
	expect := func(endpoints int, revision int64) {
		t.Helper()
		if len(got.Endpoints) != endpoints || got.Revision != revision {
			t.Errorf("%d endpoints of revision %d, want %d of %d", len(got.Endpoints), got.Revision, endpoints, revision)
		}
	}
	inner.notify(listAt(5, before))
	expect(1, 5)
	inner.notify(listAt(6))
	expect(1, 0)
	refused = before
	k.judgeAgain()
	expect(0, 6)
}

// TestVersionsGrow: a snapshot that waits while kept endpoints are judged again is newer than what was delivered meanwhile.
func TestVersionsGrow(t *testing.T) {
	var versions []uint64
	inner, refused := &told{}, ""
	k := &keeper{inner: inner, log: slog.New(slog.DiscardHandler), refuses: func(_, addr string) bool { return addr == refused }}
	k.Watch("s", func(s *registry.Snapshot) { versions = append(versions, s.Version) })
	inner.notify(listAt(5, before))
	inner.notify(listAt(6))
	late := listAt(7, before)
	refused = before
	k.judgeAgain()
	inner.notify(late)
	if len(versions) != 4 || !slices.IsSorted(versions) || len(slices.Compact(versions)) != 4 {
		t.Errorf("the versions are %v", versions)
	}
}
