package commands

import (
	"bytes"
	"compress/gzip"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/remora-proxy/remora/cmd/remora/adminclient"
	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

// runProfile runs "remora profile" with an output file in a directory that has no other file
// before and after. It returns the content of the file, if there is one, the exit code and the output.
func runProfile(t *testing.T, name string, args ...string) (content []byte, code int, output string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, name)
	code, output = harness.Run("profile", append(args, "-o", file)...)
	content, err := os.ReadFile(file)
	if err == nil {
		if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	expectNoFiles(t, dir)
	return content, code, output
}

func expectNoFiles(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files left: %v, %v", left, err)
	}
}

// loadUntilEnd sends requests to addr until the test ends.
func loadUntilEnd(t *testing.T, addr string) {
	harness.Repeat(t, func() (ok bool) {
		status, _, _, err := harness.Get(addr)
		if ok = err == nil && status == http.StatusOK; !ok {
			t.Errorf("response %d, %v", status, err)
		}
		return ok
	})
}

// TestProfileKinds: each kind of profile is a file for go tool pprof.
func TestProfileKinds(t *testing.T) {
	p, egress := harness.Consumer(t, harness.NewApp(t), "")
	p.Ready()
	loadUntilEnd(t, egress)
	const memory = "alloc_objects alloc_space inuse_objects inuse_space"
	for kind, types := range map[string]string{
		"cpu": "samples cpu", "heap": memory, "allocs": memory, "block": "contentions delay", "mutex": "contentions delay",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel() // each takes a second
			args := []string{"--admin", p.Admin, "--kind", kind}
			if kind != "heap" {
				args = append(args, "--seconds", "1")
			}
			// A sidecar on a busy machine may be late.
			eventually.Nil(t, "a profile", func() error {
				raw, code, out := runProfile(t, "a.pprof", args...)
				got, err := profile.ParseData(raw)
				if code != 0 || err != nil {
					return fmt.Errorf("exit code %d: %s%v", code, out, err)
				}
				var names []string
				for _, v := range got.SampleType {
					names = append(names, v.Type)
				}
				if strings.Join(names, " ") != types {
					t.Errorf("values %q, want %q", names, types)
				}
				if kind == "heap" && !strings.HasSuffix(out, " in use\n") {
					t.Errorf("output %q", out)
				}
				if (kind != "heap") != (got.DurationNanos > 9e8) {
					t.Errorf("a profile of %d ns", got.DurationNanos)
				}
				return nil
			})
		})
	}
}

// TestFlameGraph: the flame graph is XML, and has the names of functions that took CPU.
func TestFlameGraph(t *testing.T) {
	p, egress := harness.Consumer(t, harness.NewApp(t), "")
	p.Ready()
	loadUntilEnd(t, egress)
	// On a busy machine the sidecar may be late, or get no sample within a second.
	eventually.Nil(t, "the loop in a flame graph", func() error {
		svg, code, out := runProfile(t, "flame.svg", "-c", p.File, "--seconds", "1")
		if code != 0 {
			return fmt.Errorf("exit code %d: %s", code, out)
		}
		var picture struct {
			Groups []struct {
				Title string `xml:"title"`
			} `xml:"g"`
		}
		if err := xml.Unmarshal(svg, &picture); err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
		_, summary, _ := strings.Cut(strings.TrimSpace(out), ": ")
		if root := picture.Groups[0].Title; root != summary || !strings.Contains(root, "s of CPU in ") {
			return fmt.Errorf("the root is %q, and the output %q", root, out)
		}
		for _, g := range picture.Groups {
			if strings.HasPrefix(g.Title, "proxy/reactor.(*") {
				return nil
			}
		}
		return errors.New("no function of the reactor")
	})
}

// TestProfileAllocated: allocations are those between two profiles of the heap, each of which has
// all since the start.
func TestProfileAllocated(t *testing.T) {
	var asked atomic.Int64
	sidecar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		f := &profile.Function{ID: 1, Name: "main.allocate"}
		l := &profile.Location{ID: 1, Line: []profile.Line{{Function: f}}}
		var types []*profile.ValueType
		for _, name := range strings.Fields("alloc_objects alloc_space inuse_objects inuse_space") {
			types = append(types, &profile.ValueType{Type: name, Unit: "bytes"})
		}
		_, _ = w.Write(gzipped(t, &profile.Profile{
			SampleType: types, PeriodType: types[0], TimeNanos: n * 3e9, Function: []*profile.Function{f}, Location: []*profile.Location{l},
			Sample: []*profile.Sample{{Location: []*profile.Location{l}, Value: []int64{n, n * 1000, 1, 700}}},
		}))
	}))
	defer sidecar.Close()
	at := sidecar.Listener.Addr().String()
	for kind, want := range map[string]string{"allocs": "1000 B allocated in 3.0 s", "heap": "700 B in use"} {
		args := []string{"--kind", kind, "--admin", at}
		if kind == "allocs" {
			args = append(args, "--seconds", "1")
		}
		svg, code, out := runProfile(t, "a.svg", args...)
		if code != 0 || !strings.HasSuffix(out, ": "+want+"\n") || !strings.Contains(string(svg), ">main.allocate: ") {
			t.Errorf("%s: exit code %d: %s%s", kind, code, out, svg)
		}
	}
}

// TestProfileRefused: without the setting or the token there is no profile, and the command
// says what it lacks. A reload is enough to get one.
func TestProfileRefused(t *testing.T) {
	t.Setenv("REMORA_TEST_PROFILES", "false")
	t.Setenv("REMORA_TEST_TOKEN", "secret")
	p, _ := harness.Consumer(t, harness.NewApp(t), "")
	p.Ready()
	if _, code, out := runProfile(t, "a.svg", "--admin", p.Admin); code != harness.ExitFailed || !strings.Contains(out, "401") || !strings.Contains(out, adminclient.TokenVariable) {
		t.Errorf("without a token: exit code %d: %s", code, out)
	}
	for _, kind := range []string{"cpu", "heap", "allocs", "block", "mutex"} {
		if _, code, out := runProfile(t, "a.svg", "-c", p.File, "--kind", kind); code != harness.ExitFailed || !strings.Contains(out, "403 Forbidden: profiles are off: set admin.profiles to true") {
			t.Errorf("%s without the setting: exit code %d: %s", kind, code, out)
		}
	}
	yaml := must.ReadFile(t, p.File)
	yaml = bytes.Replace(yaml, []byte("${REMORA_TEST_PROFILES:-true}"), []byte("true"), 1)
	must.WriteFile(t, p.File, yaml)
	p.Signal(syscall.SIGHUP)
	eventually.Nil(t, "a profile after the reload", func() error {
		if _, code, out := runProfile(t, "a.svg", "-c", p.File, "--kind", "heap"); code != 0 {
			return errors.New(out)
		}
		return nil
	})
}

// TestProfileFailures: a command that can't take a profile says why, and leaves no file.
func TestProfileFailures(t *testing.T) {
	t.Parallel() // it mostly waits
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 65 {
		must.Write(t, z, make([]byte, 1<<20))
	}
	z.Close()
	cpu := gzipped(t, &profile.Profile{SampleType: []*profile.ValueType{{Type: "cpu", Unit: "nanoseconds"}}})
	responses := map[string][]byte{
		"/debug/pprof/profile": []byte("a page of another program"), "/debug/pprof/heap": bomb.Bytes(),
		"/debug/pprof/block": cpu[:len(cpu)-3], "/debug/pprof/mutex": cpu,
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := responses[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write(body)
	}))
	defer other.Close()
	long := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 65 {
			_, _ = w.Write(make([]byte, 1<<20))
		}
	}))
	defer long.Close()
	nobody, at := harness.FreeAddrs(t, 1)[0], other.Listener.Addr().String()
	dir := t.TempDir()
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--admin " + nobody, harness.ExitFailed, "no sidecar has its admin API at " + nobody},
		{"--admin " + at, harness.ExitFailed, "not a profile: gzip"},
		{"--admin " + long.Listener.Addr().String(), harness.ExitFailed, "the response has more than 67108864 bytes"},
		{"--kind heap --admin " + at, harness.ExitFailed, "not a profile: more than 67108864 bytes"},
		{"--kind block --admin " + at, harness.ExitFailed, "not a profile: unexpected EOF"},
		{"--kind mutex --admin " + at, harness.ExitFailed, "the profile has no values of type delay"},
		{"--kind disk", harness.ExitUsage, "--kind: expected one of cpu, heap, allocs, block, mutex, got disk"},
		{"--kind heap --seconds 3", harness.ExitUsage, "--seconds does not go with --kind heap"},
		{"--seconds 0", harness.ExitUsage, "--seconds: expected a number from 1 to 300, got 0"},
		{"--seconds 301", harness.ExitUsage, "--seconds: expected a number from 1 to 300, got 301"},
		{"-c /none", harness.ExitFailed, "no such file"},
		{"more", harness.ExitUsage, "unknown command"},
	} {
		// Another process may take the free address for a moment.
		eventually.Nil(t, "profile "+c.args, func() error {
			if _, code, out := runProfile(t, "a.svg", strings.Fields(c.args)...); code != c.code || !strings.Contains(out, c.want) {
				return errors.New(fmt.Sprint(code, " ", out))
			}
			return nil
		})
	}
	for output, want := range map[string]string{
		"-o " + dir:             "--output: " + dir + " is not a regular file",
		"-o " + dir + "/none/a": "no such file or directory",
		"":                      `required flag(s) "output" not set`,
	} {
		if code, out := harness.Run("profile", strings.Fields(output)...); code == 0 || !strings.Contains(out, want) {
			t.Errorf("%q: exit code %d: %s", output, code, out)
		}
	}
	expectNoFiles(t, dir)
}

func gzipped(t *testing.T, p *profile.Profile) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestProfileKeepsFile: a command that fails or is interrupted leaves the file of an earlier one
// as it is. One that succeeds replaces it, whatever was sampled.
func TestProfileKeepsFile(t *testing.T) {
	requested := make(chan struct{}, 1)
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requested <- struct{}{}
		<-r.Context().Done()
	}))
	defer slow.Close()
	empty := gzipped(t, &profile.Profile{SampleType: []*profile.ValueType{{Type: "cpu", Unit: "nanoseconds"}}, DurationNanos: 2e9})
	idle := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(empty) }))
	defer idle.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "a.svg")
	must.WriteFile(t, file, "old")
	cmd := exec.Command(harness.Binary, "profile", "--admin", slow.Listener.Addr().String(), "-o", file)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	harness.Receive(t, "the request", requested)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != harness.ExitFailed || !strings.Contains(said.String(), ": interrupted") {
		t.Errorf("interrupted: exit code %d: %s", code, &said)
	}
	if old, err := os.ReadFile(file); err != nil || string(old) != "old" {
		t.Errorf("%q, %v", old, err)
	}
	const nothing = "nothing was sampled in 2.0 s: it used next to no CPU"
	if code, out := harness.Run("profile", "--admin", idle.Listener.Addr().String(), "-o", file); code != 0 || out != file+": "+nothing+"\n" {
		t.Errorf("without samples: exit code %d: %s", code, out)
	}
	if svg, err := os.ReadFile(file); err != nil || !strings.Contains(string(svg), ">"+nothing+"<") {
		t.Errorf("%s, %v", svg, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	expectNoFiles(t, dir)
}
