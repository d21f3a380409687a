package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/lab/replica"
	"github.com/remora-proxy/remora/lab/steal"
)

// TestMain lets this binary stand in for remora-lab, which the bench starts as replica, as
// watcher of the processors, and as storm of handshakes.
func TestMain(m *testing.M) {
	if len(os.Args) == 1 || strings.HasPrefix(os.Args[1], "-") {
		leaktest.Main(m)
		return
	}
	var err error
	switch os.Args[1] {
	case "replica":
		err = runReplica(os.Args)
	case "steal":
		err = steal.Print(context.Background(), steal.Period, os.Stdin, os.Stdout)
	case "storm":
		err = runStorm(os.Args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runReplica(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	o := replica.Options{Mode: replica.Fast, Listen: args[slices.Index(args, "--listen")+1]}
	r, err := replica.Start(o)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return r.Close(context.Background())
}

func runStorm(args []string) error {
	rate, err := strconv.ParseFloat(args[slices.Index(args, "--rate")+1], 64)
	if err != nil {
		return err
	}
	return Storm(context.Background(), args[2], args[3], rate, os.Stdin, os.Stdout)
}

// self is the path of this binary.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// noChildren fails the test if a child process is left.
func noChildren(t *testing.T) {
	t.Helper()
	if left, err := family(os.Getpid()); err != nil || len(left) > 1 {
		t.Errorf("processes are left: %v, %v", left, err)
	}
}

// TestSidecars runs each kind of measurement with real sidecars.
func TestSidecars(t *testing.T) {
	remora := filepath.Join(t.TempDir(), "remora")
	build := exec.Command("go", "build", "-o", remora, "../../cmd/remora")
	build.Env = append(build.Environ(), "CGO_ENABLED=0") // as elsewhere: cgo is for the race detector of this test alone
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	t.Run("Costs", func(t *testing.T) { testCosts(t, remora) })
	t.Run("Work", func(t *testing.T) { testWork(t, remora) })
	t.Run("Handshakes", func(t *testing.T) { testHandshakes(t, remora) })
	t.Run("Mesh", func(t *testing.T) { testMesh(t, remora) })
	t.Run("Scale", func(t *testing.T) { testScale(t, remora) })
	t.Run("Tail", func(t *testing.T) { testTail(t, remora) })
	t.Run("Matrix", func(t *testing.T) { testMatrix(t, remora) })
	t.Run("Frontier", func(t *testing.T) { testFrontier(t, remora) })
	t.Run("Memory", func(t *testing.T) { testMemory(t, remora) })
}

// testCosts measures a sidecar and the direct way for a moment.
func testCosts(t *testing.T, remora string) {
	rows := choose(t, Rows(), "remora-1", "direct", "envoy-1")
	closed, open := Closed(4, 200*time.Millisecond), Open(200, 200*time.Millisecond)
	var told []string
	r, err := Run(context.Background(), Options{
		Tools: Tools{Lab: self(t), Remora: remora}, Rows: rows, Rounds: 2, Loads: []Load{closed, open}, Watch: true,
		Rest:     Rest{Duration: 200 * time.Millisecond, Connections: 50},
		Progress: func(line string) { told = append(told, line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	noChildren(t)
	if want := []string{"round 1 of 2: direct", "round 1 of 2: remora-1", "round 2 of 2: remora-1", "round 2 of 2: direct"}; !slices.Equal(told, want) {
		t.Errorf("progress %q", told)
	}
	if want := []string{"direct", "remora-1"}; !slices.Equal(r.Rows, want) || r.Missing[Envoy] == "" || r.Missing[Wrk] == "" {
		t.Errorf("rows %q, missing %q", r.Rows, r.Missing)
	}
	for _, load := range []Load{closed, open} {
		for _, f := range []Figure{CPU, Rate, P50, P99, P999, Max, RSS} {
			v := r.Samples.Values("remora-1", load.Name, f)
			disturbed := f.ofLatency() && len(v) < 2 && load.Name == open.Name && r.Unwatched == ""
			if len(v) != 2 && !disturbed || slices.ContainsFunc(v, func(v float64) bool { return v <= 0 }) {
				t.Errorf("remora-1, %s: %s %v, want 2 values above 0", load.Name, f, v)
			}
		}
		if v := r.Samples.Values("remora-1", load.Name, Collections); len(v) != 2 {
			t.Errorf("remora-1, %s: collections %v", load.Name, v)
		}
		if v := r.Samples.Values("direct", load.Name, Rate); len(v) != 2 || v[0] <= 0 {
			t.Errorf("direct, %s: %v requests/s", load.Name, v)
		}
		if v := r.Samples.Values("direct", load.Name, CPU); len(v) != 0 {
			t.Errorf("direct has no proxy, but a CPU time of %v", v)
		}
	}
	if v := r.Samples.Values("remora-1", closed.Name, AddedP50); len(v) != 2 {
		t.Errorf("remora-1: added latency %v", v)
	}
	for _, f := range []Figure{RestRSS, OwnRSS, StartTime, ProgramSize} {
		if v := r.Samples.Values("remora-1", AtRest, f); len(v) != 2 || v[0] <= 0 {
			t.Errorf("at rest: %s %v", f, v)
		}
	}
	for _, f := range []Figure{RestCPU, Connection} {
		if v := r.Samples.Values("remora-1", AtRest, f); len(v) != 2 {
			t.Errorf("at rest: %s %v", f, v)
		}
	}
	for row, values := range map[string]int{"direct": 2, "remora-1": 2} {
		if r.Unwatched != "" {
			values = 0
		}
		if v := r.Samples.Values(row, open.Name, Disturbed); len(v) != values {
			t.Errorf("%s: disturbed %v, unwatched %q", row, v, r.Unwatched)
		}
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}

func TestRunInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	rows := choose(t, Rows(), "direct")
	running := 0
	interrupted := Load{Name: "interrupted", send: func(ctx context.Context, _ *Stack) (*Result, error) {
		all, err := family(os.Getpid())
		running = len(all) - 1
		cancel()
		<-ctx.Done()
		return nil, errors.Join(err, ctx.Err())
	}}
	_, err := Run(ctx, Options{Tools: Tools{Lab: self(t)}, Rows: rows, Rounds: 1, Loads: []Load{interrupted}, Progress: func(string) {}})
	if !errors.Is(err, context.Canceled) || running == 0 { // the replica
		t.Errorf("%v, with %d processes", err, running)
	}
	noChildren(t)
}

// TestProcessEnds checks that the error has the log of a replica that ended, at the start and
// later.
func TestProcessEnds(t *testing.T) {
	rows := choose(t, Rows(), "direct")
	replica := filepath.Join(t.TempDir(), "replica")
	script := func(s string) {
		t.Helper()
		if err := os.WriteFile(replica, []byte("#!/bin/sh\n"+s), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script("echo so long; exit 1")
	if _, err := Start(t.Context(), Tools{Lab: replica}, rows[0], 0); err == nil || !strings.Contains(err.Error(), "so long") {
		t.Error(err)
	}
	noChildren(t)

	script("trap 'echo and thanks' EXIT; " + self(t) + " \"$@\"")
	o := Options{Tools: Tools{Lab: replica}}
	err := o.with(t.Context(), rows[0], 1, func(s *Stack) error {
		all, err := family(os.Getpid())
		if err != nil || len(all) != 3 {
			t.Fatalf("processes %v, %v", all, err)
		}
		syscall.Kill(all[2], syscall.SIGTERM)
		eventually.True(t, "the replica ends", func() bool { return s.procs.Check() != nil })
		return errors.New("refused")
	})
	if err == nil || !strings.Contains(err.Error(), "and thanks") || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
	noChildren(t)
}

// TestPeerFails checks that the failure of a peer does not end the run. Its row has no figures
// of that round.
func TestPeerFails(t *testing.T) {
	rows := choose(t, Rows(), "direct", "relay-1", "nginx-1")
	dir := t.TempDir()
	relayed := filepath.Join(dir, "relayed")
	program := func(name, script string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	nginx := program("nginx", "echo no nginx; exit 1")
	relay := program("relay", "touch "+relayed+"; ADDR=127.0.0.1:$1; exec "+self(t)+" replica --listen $ADDR")
	l := Load{Name: "fish", send: func(context.Context, *Stack) (*Result, error) {
		if _, err := os.Stat(relayed); err == nil {
			return nil, errors.New("refused")
		}
		return &Result{Requests: 1, Seconds: 1}, nil
	}}
	var told []string
	r, err := Run(t.Context(), Options{Tools: Tools{Lab: self(t), Relay: relay, Nginx: nginx}, Rows: rows, Rounds: 1, Loads: []Load{l},
		Progress: func(line string) { told = append(told, line) }})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Failures) != 2 || r.Failures[0].Row != "relay-1" || !strings.Contains(r.Failures[0].Why, "refused") ||
		r.Failures[1].Row != "nginx-1" || !strings.Contains(r.Failures[1].Why, "no nginx") {
		t.Errorf("%+v", r.Failures)
	}
	if len(r.Samples) != 1 || r.Samples[0].Row != "direct" {
		t.Errorf("%+v", r.Samples)
	}
	if said := strings.Join(told, "\n"); !strings.Contains(said, "refused") {
		t.Errorf("progress %s", said)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	noChildren(t)
}

// TestRoomAtRest checks that a proxy at rest is started with room for its connections, that rows
// which are not measured at rest are left out, and that too many connections become fewer.
func TestRoomAtRest(t *testing.T) {
	rows := choose(t, Rows(), "direct", "haproxy-1")
	haproxy := filepath.Join(t.TempDir(), "haproxy")
	if err := os.WriteFile(haproxy, []byte("#!/bin/sh\ngrep maxconn $3\nexit 1"), 0o755); err != nil {
		t.Fatal(err)
	}
	for asked, room := range map[int]string{100: "maxconn 16584", 1 << 40: "maxconn"} {
		r, err := Run(t.Context(), Options{Tools: Tools{Lab: self(t), HAProxy: haproxy}, Rows: rows, Rounds: 1,
			Rest: Rest{Duration: time.Second, Connections: asked}, Progress: func(string) {}})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.Rows, []string{"haproxy-1"}) || len(r.Failures) != 1 || !strings.Contains(r.Failures[0].Why, room) {
			t.Errorf("rows %v, failures %v", r.Rows, r.Failures)
		}
		if fewer := r.Rest.Connections < asked; fewer != (asked > 100) || fewer != (r.Rest.Asked == asked) {
			t.Errorf("of %d connections: %+v", asked, r.Rest)
		}
	}
}

// TestDescriptorLimit checks that children may open as many files as the system allows.
func TestDescriptorLimit(t *testing.T) {
	rows := choose(t, Rows(), "direct")
	told := filepath.Join(t.TempDir(), "limit")
	replica := told + ".sh"
	if err := os.WriteFile(replica, []byte("#!/bin/sh\n[ $(ulimit -Sn) = $(ulimit -Hn) ] && touch "+told+"; exit 1"), 0o755); err != nil {
		t.Fatal(err)
	}
	// Without a replica the run ends.
	if _, err := Run(t.Context(), Options{Tools: Tools{Lab: replica}, Rows: rows, Rounds: 1, Loads: []Load{Closed(1, time.Second)}, Progress: func(string) {}}); !errors.Is(err, errReplica) {
		t.Error(err)
	}
	if _, err := os.Stat(told); err != nil {
		t.Error("the replica may open fewer files than the system allows")
	}
}

func TestOptionsValidate(t *testing.T) {
	good := Options{Rounds: 1, Loads: []Load{Closed(1, time.Second)}, Rest: Rest{Duration: time.Second, Connections: 1}}
	alone := good
	alone.Loads = nil
	if err := errors.Join(good.validate(), alone.validate()); err != nil {
		t.Error(err)
	}
	for what, spoil := range map[string]func(*Options){
		"no round": func(o *Options) { o.Rounds = 0 }, "nothing to measure": func(o *Options) { o.Loads, o.Rest.Connections = nil, 0 },
		"a load twice": func(o *Options) {
			o.Loads = []Load{Closed(64, time.Second), Closed(1, time.Second), Closed(64, time.Second)}
		},
		"rates of the same name": func(o *Options) { o.Loads = []Load{Open(2000, time.Second), Open(2000.1, time.Second)} },
		"no time":                func(o *Options) { o.Rest.Duration = 0 }, "less than nothing": func(o *Options) { o.Rest.Connections = -1 },
	} {
		bad := good
		if spoil(&bad); bad.validate() == nil {
			t.Errorf("%s was accepted", what)
		}
	}
}

// choose returns the rows with these names.
func choose(t *testing.T, all []Row, names ...string) []Row {
	t.Helper()
	rows, err := Choose(all, names)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestChoose(t *testing.T) {
	if all, err := Choose(Rows(), nil); err != nil || len(all) != len(Rows()) {
		t.Errorf("%d rows, %v", len(all), err)
	}
	if _, err := Choose(Rows(), []string{"direct", "squid-1"}); err == nil {
		t.Error("an unknown row was accepted")
	}
}
