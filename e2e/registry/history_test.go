package registry

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab/history"
	"github.com/remora-proxy/remora/lab/history/record"
)

// TestHistory: what sidecars make of a registry is what it had, within the bounds of docs/discovery.md, while members of a cluster of
// three are killed, paused, cut off and compacted, and while endpoints come and go under load. Package history has the rules.
//
// $HISTORY_SECONDS is how long faults follow each other in a random order, after each has come once. Without it the bounds are wider, as the
// machine may be busy. $HISTORY names a folder for the history, which "remora-lab history check" reads.
func TestHistory(t *testing.T) {
	t.Parallel() // it mostly waits
	seconds, _ := strconv.Atoi(os.Getenv("HISTORY_SECONDS"))
	m := startWatched(t)
	m.bounds = history.DefaultBounds
	if seconds == 0 { // beside other tests
		m.bounds = history.Bounds{Seen: harness.Patience, Grace: m.bounds.Grace, Return: harness.Patience}
	}
	steps := []func(){
		m.retire, m.compact, m.killLeader, m.remove, m.endLease, m.pauseMember, m.cutConsumer, m.lag, m.restartConsumer, m.lag, m.cutProvider, m.killMajority,
	}
	isRight := true
	for i := 0; i < len(steps) && isRight; i++ {
		m.run(steps[i])
		isRight = m.settle()
	}
	steps = steps[1:] // nobody else retires
	m.isLong = seconds > 0
	for end := time.Now().Add(time.Duration(seconds) * time.Second); isRight && time.Now().Before(end); {
		m.run(steps[rand.IntN(len(steps))])
	}
	isRight = isRight && m.settle()
	h := m.finish()
	t.Log(h.Summary())
	if !isRight {
		t.Error("the views were not right after a step")
	}
	if len(h.Changes) < 50 || len(h.Views) < 20 || len(h.Requests) < 1000 {
		t.Error("too little was recorded")
	}
	for _, v := range h.Check(m.bounds) {
		t.Error(v)
	}
}

// services is the prefix of all keys.
const services = "/remora/services"

// watched is a cluster of etcd with sidecars, whose history is recorded.
type watched struct {
	t         *testing.T
	etcds     *harness.Etcds
	client    *clientv3.Client
	log       *record.Log
	file      *os.File // of the history
	recorder  *record.Recorder
	unfollow  func() // ends the recording of views
	consumers []*consumer
	providers []*provider
	load      *harness.Load
	bounds    history.Bounds
	retired   string // replica whose provider has ended for good
	isLong    bool   // faults may last for longer than a sidecar takes to notice them
}

// sidecar is a sidecar that reaches etcd by forwarders of its own.
type sidecar struct {
	name    string
	fronts  []*harness.Forwarder // to the members, in their order
	process *harness.Process
}

// consumer is a sidecar that calls the service.
type consumer struct {
	sidecar
	egress, access string // address of the listener; file of the access log
}

// provider is a sidecar that registers a replica. The replica responds also while the provider does not run, so that a request to it does
// not go to another one.
type provider struct {
	sidecar
	replica string
	since   time.Time // when it had registered the replica; zero while it does not run
}

func startWatched(t *testing.T) *watched {
	m := &watched{t: t, etcds: harness.StartEtcds(t, "--experimental-watch-progress-notify-interval", "1s")}
	m.etcds.Leader()
	var addrs []string
	for _, member := range m.etcds.Members {
		addrs = append(addrs, member.Addr())
	}
	var err error
	if m.client, err = record.Client(addrs); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.client.Close() })
	dir := os.Getenv("HISTORY")
	if dir == "" {
		dir = t.TempDir()
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if m.file, err = os.Create(filepath.Join(dir, "history.jsonl")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.file.Close() })
	m.log = record.NewLog(m.file)
	if m.recorder, err = record.Start(t.Context(), m.client, services, m.log); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		p := &provider{sidecar: m.sidecar(fmt.Sprint("p", i)), replica: harness.NewApp(t).Addr}
		ingress := harness.FreeAddrs(t, 1)[0]
		p.process = harness.NewProcess(t, fmt.Sprintf(`
loops: 1
node: {id: %s}
registry: {etcd: {endpoints: %s, lease_ttl: 2s}}
listeners: [{name: ingress, address: %q, protocol: http, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http}}
register: [{service: app, listener: ingress, advertise: %[4]q}]`, p.name, p.endpoints(), ingress, p.replica))
		m.providers = append(m.providers, p)
		m.start(p)
	}
	var views []record.Sidecar
	for _, name := range []string{"a", "b"} {
		c := &consumer{sidecar: m.sidecar(name), egress: harness.FreeAddrs(t, 1)[0], access: filepath.Join(dir, "access-"+name+".jsonl")}
		_ = os.Remove(c.access) // of an earlier test
		c.process = harness.Start(t, fmt.Sprintf(`
loops: 1
registry: {etcd: {endpoints: %s, lease_ttl: 2s}, cache_dir: %q}
listeners: [{name: egress, address: %q, protocol: http, service: app}]
services: {app: {discover: etcd, protocol: http}}
access_log: {path: %q}`, c.endpoints(), t.TempDir(), c.egress, c.access))
		c.process.Ready()
		m.consumers = append(m.consumers, c)
		views = append(views, record.Sidecar{Name: name, Admin: c.process.Admin})
	}
	m.unfollow = record.Follow(m.log, views...)
	t.Cleanup(m.unfollow)
	m.load = harness.StartLoad(t, 4, m.call)
	return m
}

// call sends a request. Its outcome is in the access log.
func (m *watched) call() error {
	_, _, _, _ = harness.Get(m.consumers[rand.IntN(len(m.consumers))].egress)
	return nil
}

func (m *watched) sidecar(name string) sidecar {
	s := sidecar{name: name}
	for _, member := range m.etcds.Members {
		s.fronts = append(s.fronts, harness.Forward(m.t, member.Addr()))
	}
	return s
}

// endpoints returns the addresses by which a sidecar reaches etcd, as a list in YAML.
func (s *sidecar) endpoints() string {
	var all []string
	for _, f := range s.fronts {
		all = append(all, strconv.Quote(f.Addr()))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// setSilent cuts a sidecar off from etcd, or connects it again.
func (s *sidecar) setSilent(silent bool) {
	for _, f := range s.fronts {
		f.SetSilent(silent)
	}
}

func (p *provider) key() string { return services + "/app/" + p.name + "@" + p.replica }

// run runs a step under load.
func (m *watched) run(step func()) {
	m.load.Await(50)
	step()
	m.load.Await(50)
}

// outage runs what a sidecar can't reach etcd during; an empty name means all.
func (m *watched) outage(name string, during func()) {
	from := time.Now()
	during()
	m.log.Put(&history.Outage{Sidecar: name, From: from, Until: time.Now()})
}

// start starts a provider.
func (m *watched) start(p *provider) {
	p.process = p.process.Again()
	p.process.Ready()
	p.since = time.Now()
}

// end ends a provider by a signal.
func (m *watched) end(p *provider, sig syscall.Signal) {
	m.log.Put(&history.Owner{Sidecar: p.name, Key: p.key(), From: p.since, Until: time.Now()})
	p.since = time.Time{}
	p.process.Signal(sig)
	harness.Receive(m.t, "the provider to end", p.process.Exited)
}

// some returns a provider that runs, while others run, too.
func (m *watched) some() *provider {
	all := slices.DeleteFunc(slices.Clone(m.providers), func(p *provider) bool { return p.since.IsZero() })
	if len(all) < 2 {
		m.t.Fatal("too few providers run")
	}
	return all[rand.IntN(len(all))]
}

// eventually repeats a request to etcd.
func (m *watched) eventually(what string, do func(ctx context.Context) error) {
	m.t.Helper()
	eventually.Nil(m.t, what, func() error {
		ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Second)
		defer cancel()
		return do(ctx)
	})
}

// delete deletes the key of a provider by hand.
func (m *watched) delete(p *provider) {
	m.eventually("a deletion", func(ctx context.Context) error {
		_, err := m.client.Delete(ctx, p.key())
		return err
	})
}

// settle waits until all views are right, or until each bound has passed. isRight is false then, and the history says which rule is broken.
func (m *watched) settle() (isRight bool) {
	end := time.After(m.bounds.Seen + m.bounds.Grace)
	for !m.isSettled() {
		select {
		case <-end:
			m.load.Await(100)
			return false
		case <-time.After(50 * time.Millisecond): // before the sidecars are asked again
		}
	}
	return true
}

// isSettled reports whether all consumers use exactly the replicas whose providers run.
func (m *watched) isSettled() bool {
	for _, c := range m.consumers {
		_, body := c.process.Get("/endpoints")
		if strings.Contains(body, strconv.Quote(m.retired)) {
			return false
		}
		for _, p := range m.providers {
			if strings.Contains(body, strconv.Quote(p.replica)) == p.since.IsZero() {
				return false
			}
		}
	}
	return true
}

// finish ends the load and the recording, and returns the history.
func (m *watched) finish() *history.History {
	m.load.End("changes of the registry")
	for _, p := range m.providers {
		if !p.since.IsZero() {
			m.log.Put(&history.Owner{Sidecar: p.name, Key: p.key(), From: p.since, Until: time.Now()})
		}
	}
	m.unfollow()
	ctx, cancel := context.WithTimeout(m.t.Context(), harness.Patience)
	defer cancel()
	if err := m.recorder.Finish(ctx); err != nil {
		m.t.Fatal(err)
	}
	var h history.History
	m.read(m.file.Name(), func(text []byte) error { return h.Read(bytes.NewReader(text)) })
	for _, c := range m.consumers {
		c.process.Signal(syscall.SIGTERM) // it writes the last lines
		c.process.Ends()
		m.read(c.access, func(text []byte) error { return h.ReadAccessLog(c.name, []string{"app"}, bytes.NewReader(text)) })
	}
	return &h
}

func (m *watched) read(name string, take func(text []byte) error) {
	m.t.Helper()
	text, err := os.ReadFile(name)
	if err == nil {
		err = take(text)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}
