package sidecar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/fleet"
	"github.com/remora-proxy/remora/fleet/store"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry/etcd"
)

// leaseTime is how long a status outlives its sidecar.
const leaseTime = 10 * time.Second

// errEtcdDown is the error of requests to etcd while it is down.
var errEtcdDown = errors.New("etcd is down")

// simEtcd has the keys of a fleet in memory. Heads reach each sidecar after a random time of less than a second, or
// once etcd is back.
type simEtcd struct {
	mu        sync.Mutex
	down      bool
	head      fleet.Head
	at        int64
	revisions map[int64]fleet.Revision
	statuses  map[string]fleet.Status
	leases    map[string]int // of the statuses, counted
	heads     map[*simFollower]bool
}

type simFollower struct{ changed chan struct{} }

func newSimEtcd() *simEtcd {
	return &simEtcd{
		revisions: map[int64]fleet.Revision{}, statuses: map[string]fleet.Status{}, leases: map[string]int{}, heads: map[*simFollower]bool{},
	}
}

// setDown stops etcd, or starts it again.
func (e *simEtcd) setDown(down bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down = down
	e.tell()
}

// tell wakes all followers. The caller holds mu.
func (e *simEtcd) tell() {
	for f := range e.heads {
		select {
		case f.changed <- struct{}{}:
		default:
		}
	}
}

// access locks e. Its error is that etcd is down.
func (e *simEtcd) access() (unlock func(), err error) {
	e.mu.Lock()
	if e.down {
		err = errEtcdDown
	}
	return e.mu.Unlock, err
}

func (e *simEtcd) Follow(notify func(*fleet.Head, error)) (stop func()) {
	f := &simFollower{make(chan struct{}, 1)}
	f.changed <- struct{}{}
	e.mu.Lock()
	e.heads[f] = true
	e.mu.Unlock()
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-f.changed:
			case <-ended:
				return
			}
			time.Sleep(rand.N(time.Second))
			if h, at, err := e.Head(context.Background()); err == nil && at > 0 {
				notify(&h, nil)
			} else if err == nil {
				notify(nil, nil)
			}
		}
	}()
	return func() {
		close(ended)
		<-done
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.heads, f)
	}
}

func (e *simEtcd) Head(context.Context) (fleet.Head, int64, error) {
	unlock, err := e.access()
	defer unlock()
	return e.head, e.at, err
}

func (e *simEtcd) Change(_ context.Context, at int64, next *fleet.Head, added *fleet.Revision) error {
	unlock, err := e.access()
	defer unlock()
	switch {
	case err != nil:
		return err
	case at != e.at:
		return &store.MovedError{Now: e.head.Change}
	}
	e.head, e.at = *next, e.at+1
	if added != nil {
		e.revisions[added.Number] = *added
	}
	e.tell()
	return nil
}

func (e *simEtcd) Revision(_ context.Context, n int64) (fleet.Revision, error) {
	unlock, err := e.access()
	defer unlock()
	r, known := e.revisions[n]
	if err == nil && !known {
		err = store.ErrUnusable
	}
	return r, err
}

func (e *simEtcd) First(context.Context) (string, error) {
	unlock, err := e.access()
	defer unlock()
	names := slices.Sorted(maps.Keys(e.statuses))
	return append(names, "")[0], err
}

func (e *simEtcd) Statuses(_ context.Context, each func(*fleet.Status)) (unread store.Unread, err error) {
	unlock, err := e.access()
	defer unlock()
	for _, name := range slices.Sorted(maps.Keys(e.statuses)) {
		st := e.statuses[name]
		each(&st)
	}
	return unread, err
}

func (e *simEtcd) Report(name string, st *fleet.Status) store.Report {
	e.mu.Lock()
	e.leases[name]++
	e.mu.Unlock()
	r := simReport{e, name}
	r.Set(st)
	return r
}

type simReport struct {
	e    *simEtcd
	name string
}

func (r simReport) Set(st *fleet.Status) {
	unlock, err := r.e.access()
	defer unlock()
	if err == nil {
		r.e.statuses[r.name] = *st
	}
}

func (r simReport) Close(context.Context) error {
	unlock, err := r.e.access()
	defer unlock()
	delete(r.e.statuses, r.name) // with its lease, if etcd is down
	return err
}

// simSidecar is a sidecar of which only the overlays are real: it has a file and a configuration, and no requests.
type simSidecar struct {
	t       *testing.T
	etcd    *simEtcd
	file    string // the text of the file
	log     *slog.Logger
	dir     string
	slow    float64 // factor of latencies with revision slowOne
	slowOne int64

	mu       sync.Mutex
	running  *config.Config
	revision fleet.Revision
	ever     map[int64]bool // revisions that ran
	hist     stats.Histogram
	counted  time.Time
	rand     *rand.Rand

	name  string // of the status
	end   context.CancelFunc
	ended chan struct{}
}

// parse returns the configuration with a revision of the overlay.
func (s *simSidecar) parse(r fleet.Revision) (*config.Config, error) {
	return config.ParseWith("file", []byte(s.file), nil, r.Overlay())
}

// use applies a revision, which takes 20 ms.
func (s *simSidecar) use(r fleet.Revision) *refusal {
	time.Sleep(20 * time.Millisecond)
	cfg, err := s.parse(r)
	if err != nil {
		return &refusal{codeOf(err), err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.revision, s.ever[r.Number] = cfg, r, true
	return nil
}

// now returns the number of the revision that runs.
func (s *simSidecar) now() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision.Number
}

// sums returns the counts of a service with 200 requests a second.
func (s *simSidecar) sums(context.Context) (map[string]*stats.ServiceStats, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	factor := 1.0
	if s.revision.Number == s.slowOne {
		factor = s.slow
	}
	for ; s.counted.Before(time.Now()); s.counted = s.counted.Add(5 * time.Millisecond) {
		s.hist.Observe(time.Duration(factor * float64(4*time.Millisecond) * math.Exp(s.rand.NormFloat64()/2)))
	}
	return map[string]*stats.ServiceStats{"app": {Requests: s.hist.Count(), Latency: s.hist}}, nil
}

// start starts the sidecar, as firstRevision and enterService do.
func (s *simSidecar) start() {
	s.t.Helper()
	alone, err := s.parse(fleet.Revision{})
	if err != nil {
		s.t.Fatal(err)
	}
	alone.Registry.CacheDir = s.dir
	var asked fleet.Revision
	head, at, unknown := s.etcd.Head(context.Background())
	if unknown == nil && at == 0 {
		unknown = errNoHead
	}
	if unknown == nil {
		asked, unknown = readRevision(context.Background(), s.etcd, head.RevisionOf(alone.Node.ID, alone.Node.Labels))
	}
	s.use(fleet.Revision{})
	first := chooseRevision(asked, unknown, alone, func(r fleet.Revision) bool { return s.use(r) == nil }, s.log)
	ctx, end := context.WithCancel(context.Background())
	o := &overlays{
		log: s.log, cfg: alone, serving: func() bool { return true }, ended: ctx, since: time.Now(), inUse: first.Number,
		use: s.use, refuse: func(int64, *refusal) {}, sums: s.sums, keys: s.etcd, wake: make(chan struct{}, 1),
	}
	s.name = o.name()
	s.end, s.ended, s.counted, s.hist = end, make(chan struct{}), time.Now(), stats.Histogram{}
	go func() {
		defer close(s.ended)
		o.run()
	}()
}

// stop stops the sidecar, as a drain does.
func (s *simSidecar) stop() {
	s.end()
	<-s.ended
}

// kill stops the sidecar, and leaves its status until the lease ends.
func (s *simSidecar) kill() {
	e := s.etcd
	e.mu.Lock()
	last, lease := e.statuses[s.name], e.leases[s.name]
	e.mu.Unlock()
	s.stop()
	e.mu.Lock()
	e.statuses[s.name] = last
	e.mu.Unlock()
	time.AfterFunc(leaseTime, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.leases[s.name] == lease { // otherwise the next process has taken the key over
			delete(e.statuses, s.name)
		}
	})
}

// simFleet is a fleet of 30 sidecars.
type simFleet struct {
	t        *testing.T
	etcd     *simEtcd
	sidecars []*simSidecar
	lock     sync.Mutex
	log      bytes.Buffer
}

// Write implements io.Writer, for the logs of all sidecars.
func (f *simFleet) Write(b []byte) (int, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.log.Write(b)
}

// text returns what the sidecars have logged.
func (f *simFleet) text() string {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.log.String()
}

const simFile = `
node: {id: node-%02d, labels: {tier: t%d}}
registry: {etcd: {endpoints: ["127.0.0.1:2379"]}}
config: {etcd: /config}
admin: {address: "127.0.0.1:%d"}
listeners: [{name: l, address: "127.0.0.1:1", protocol: http, service: app}]
services: {app: {discover: static, endpoints: ["127.0.0.1:2"]}}
`

func startSimFleet(t *testing.T, size int) *simFleet {
	t.Helper()
	f := &simFleet{t: t, etcd: newSimEtcd()}
	dir := t.TempDir()
	for i := range size {
		s := &simSidecar{
			t: t, etcd: f.etcd, file: fmt.Sprintf(simFile, i, i%3, 9000+i), dir: filepath.Join(dir, fmt.Sprint(i)), ever: map[int64]bool{},
			log: slog.New(slog.NewTextHandler(f, nil)), slow: 1, slowOne: -1, rand: rand.New(rand.NewPCG(uint64(i), 1)),
		}
		f.sidecars = append(f.sidecars, s)
		s.start()
	}
	f.settle()
	return f
}

// settle waits for two seconds, in which each head reaches each sidecar.
func (f *simFleet) settle() {
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

func (f *simFleet) stop() {
	for _, s := range f.sidecars {
		s.stop()
	}
	f.settle()
}

// change changes the head as the commands do.
func (f *simFleet) change(text string, change func(h fleet.Head, nodes []string) (fleet.Head, error)) {
	f.t.Helper()
	head, at, err := f.etcd.Head(context.Background())
	if err != nil {
		f.t.Fatal(err)
	}
	var nodes []string
	_, _ = f.etcd.Statuses(context.Background(), func(st *fleet.Status) { nodes = append(nodes, st.Node) })
	next, err := change(head, nodes)
	if err != nil {
		f.t.Fatal(err)
	}
	var added *fleet.Revision
	if text != "" {
		added = &fleet.Revision{Number: next.Newest, Text: text}
	}
	if err := f.etcd.Change(context.Background(), at, &next, added); err != nil {
		f.t.Fatal(err)
	}
}

// now is a change of now.
func now() fleet.Change { return fleet.Change{At: time.Now()} }

func (f *simFleet) set(text, to, guard string) {
	f.t.Helper()
	f.change(text, func(h fleet.Head, nodes []string) (fleet.Head, error) {
		target, g := f.parse(to, guard)
		return h.Set(target.Among(nodes), g, now())
	})
}

func (f *simFleet) rollout(to string) {
	f.t.Helper()
	f.change("", func(h fleet.Head, nodes []string) (fleet.Head, error) {
		target, g := f.parse(to, "")
		return h.Rollout(target.Among(nodes), g, now())
	})
}

func (f *simFleet) parse(to, guard string) (target fleet.Target, g *fleet.Guard) {
	f.t.Helper()
	target, err := fleet.ParseTarget(to)
	if err == nil && guard != "" {
		g, err = fleet.ParseGuard(guard)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return target, g
}

func (f *simFleet) rollback() {
	f.t.Helper()
	f.change("", func(h fleet.Head, _ []string) (fleet.Head, error) { return h.Rollback(now()) })
}

// on returns the indexes of the sidecars that run a revision, and checks that each has the configuration of its file
// with that revision.
func (f *simFleet) on(revision int64) (which []int) {
	f.t.Helper()
	for i, s := range f.sidecars {
		if s.now() != revision {
			continue
		}
		which = append(which, i)
		s.mu.Lock()
		want, err := s.parse(f.etcd.revisions[revision])
		if err != nil || !s.running.Equal(want) {
			f.t.Errorf("sidecar %d does not have the settings of revision %d: %v", i, revision, err)
		}
		s.mu.Unlock()
	}
	return which
}

func (f *simFleet) expect(revision int64, count int) (which []int) {
	f.t.Helper()
	f.settle()
	if which = f.on(revision); len(which) != count {
		f.t.Errorf("%d sidecars run revision %d, want %d", len(which), revision, count)
	}
	return which
}

const (
	faster = "services: {app: {hedge: {mode: on}}}"
	broken = "services: {app: {hedge: {min_delay: 3m}}}" // above max_delay
)

// TestFleet steers 30 sidecars: a bad revision reaches none, parts are as large as they say and hold over restarts with
// and without etcd, and a rollback reaches all within two seconds.
func TestFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startSimFleet(t, 30)
		defer f.stop()
		f.set(broken, "100%", "")
		f.expect(0, 30)
		for _, st := range f.etcd.statuses {
			if r := st.Refused; r == nil || r.Revision != 1 || r.Code != refusedInvalid || r.Line != 1 || r.Column != 37 {
				t.Errorf("%s refuses %+v", st.Node, r)
			}
		}
		f.rollback()
		f.expect(0, 30)
		f.set(faster, "20%", "")
		some := f.expect(2, 6)
		for i, s := range f.sidecars {
			if f.etcd.setDown(i%2 == 0); i%4 < 2 {
				s.stop()
			} else {
				s.kill()
			}
			s.start()
			if got := s.now(); (got == 2) != slices.Contains(some, i) {
				t.Errorf("sidecar %d begins with revision %d", i, got)
			}
		}
		f.etcd.setDown(false)
		if again := f.expect(2, 6); !slices.Equal(some, again) {
			t.Errorf("before restarts %v run the revision, and afterwards %v", some, again)
		}
		f.rollout("50%")
		more := f.expect(2, 15)
		for _, i := range some {
			if !slices.Contains(more, i) {
				t.Errorf("sidecar %d ran the revision at 20%%, and not at 50%%", i)
			}
		}
		f.rollout("tier=t1")
		for _, i := range f.expect(2, 10) {
			if i%3 != 1 {
				t.Errorf("sidecar %d of another tier runs the revision", i)
			}
		}
		f.rollout("100%")
		f.expect(2, 30)
		f.rollback()
		f.expect(0, 30) // after two seconds
		for i, s := range f.sidecars {
			if s.ever[1] {
				t.Errorf("sidecar %d ran the broken revision", i)
			}
		}
	})
}

// TestFleetFixedFile: a revision that a sidecar has refused is applied by a start with another file.
func TestFleetFixedFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startSimFleet(t, 3)
		defer f.stop()
		f.set(broken, "100%", "")
		f.expect(0, 3)
		s := f.sidecars[1]
		s.stop()
		s.file = strings.Replace(s.file, `["127.0.0.1:2"]`, `["127.0.0.1:2"], hedge: {max_delay: 5m}, timeout: 10m`, 1)
		s.start()
		if which := f.expect(1, 1); len(which) != 1 || which[0] != 1 {
			t.Errorf("%v run the revision", which)
		}
	})
}

// TestFleetWiped: an etcd that has lost its data changes nothing.
func TestFleetWiped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startSimFleet(t, 3)
		defer f.stop()
		f.set(faster, "100%", "")
		f.expect(1, 3)
		f.etcd.mu.Lock()
		f.etcd.head, f.etcd.at, f.etcd.statuses = fleet.Head{}, 0, map[string]fleet.Status{}
		f.etcd.tell()
		f.etcd.mu.Unlock()
		f.expect(1, 3)
		s := f.sidecars[0]
		s.stop()
		s.start()
		f.expect(1, 3) // by the revision on disk
	})
}

// TestFleetGuard: a guard takes a roll-out back that makes 6 of 30 sidecars slower, also if the sidecar that compares
// is killed. It lets another one pass.
func TestFleetGuard(t *testing.T) {
	for _, c := range []struct {
		name   string
		slow   float64
		killed bool
		back   bool
	}{
		{"slower", 2, false, true},
		{"slower, without the first sidecar", 2, true, true},
		{"the same", 1, false, false},
		{"faster", .7, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := startSimFleet(t, 30)
			defer f.stop()
			for _, s := range f.sidecars {
				s.mu.Lock()
				s.slow, s.slowOne = c.slow, 1
				s.mu.Unlock()
			}
			f.set(faster, "20%", "p99 <= 1.05x")
			first := f.sidecars[0]
			if c.killed {
				first.kill()
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if c.killed {
				first.start()
			}
			head, _, _ := f.etcd.Head(context.Background())
			if stopped := strings.HasPrefix(head.Change.Why, "service app: p99 is "); stopped != c.back || (head.Candidate == 0) != c.back {
				t.Errorf("%s: %+v", c.name, head)
			}
			lines := strings.Count(f.text(), "roll-out taken back by its guard")
			if c.back {
				f.expect(0, 30)
				lines--
			} else {
				f.expect(1, 6)
			}
			if lines != 0 {
				t.Errorf("%s: the log:\n%s", c.name, f.text())
			}
		})
	}
}

// TestFleetOperators: of two operators that have read one head, the second changes nothing.
func TestFleetOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startSimFleet(t, 3)
		defer f.stop()
		head, at, err := f.etcd.Head(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		f.set(faster, "100%", "")
		next, err := head.Set(fleet.Everywhere(), nil, now())
		if err != nil {
			t.Fatal(err)
		}
		var moved *store.MovedError
		if err := f.etcd.Change(context.Background(), at, &next, &fleet.Revision{Number: 1, Text: broken}); !errors.As(err, &moved) {
			t.Errorf("the second operator: %v", err)
		}
		f.expect(1, 3)
	})
}

// TestRetriesAreToldOnce: the log has an error of a step that is retried once, and again after the step has succeeded.
func TestRetriesAreToldOnce(t *testing.T) {
	var log strings.Builder
	o := &overlays{log: slog.New(slog.NewTextHandler(&log, nil))}
	ofEtcd := func(code, text string) error { return &etcd.RequestError{Code: code, Err: errors.New(text)} }
	for _, err := range []error{
		errors.New("down"), errors.New("down"), errors.New("denied"), nil, nil, errors.New("denied"),
		ofEtcd("unreachable", "from port 1"), ofEtcd("unreachable", "from port 2"), ofEtcd("denied", "from port 2"),
	} {
		o.tell("not read", err)
	}
	if n := strings.Count(log.String(), "not read"); n != 5 {
		t.Errorf("%d lines, want 5:\n%s", n, log.String())
	}
}

// TestKeepOnce: a revision is written to disk when it comes into use, and not again. A write that has failed is repeated.
func TestKeepOnce(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "cache")
	must.WriteFile(t, dir, "a file in place of the directory")
	cfg := &config.Config{Overlays: config.Overlays{Etcd: "/config"}}
	cfg.Registry.CacheDir = dir
	o := &overlays{log: slog.New(slog.DiscardHandler), cfg: cfg}
	one, other := fleet.Revision{Number: 1, Text: "one"}, fleet.Revision{Number: 2, Text: "other"}
	var last os.FileInfo
	for i, step := range []struct {
		keep    fleet.Revision
		written bool
	}{{one, false}, {one, true}, {one, false}, {other, true}, {other, false}, {one, true}} {
		if i == 1 {
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
		}
		o.keep(step.keep)
		now, err := os.Stat(filepath.Join(dir, "overlay"))
		if i > 0 && err != nil {
			t.Fatal(err)
		}
		if written := err == nil && !os.SameFile(now, last); written != step.written {
			t.Errorf("step %d: written is %v", i, written)
		}
		last = now
	}
}
