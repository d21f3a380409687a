package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
	labcerts "github.com/remora-proxy/remora/lab/certs"
	"github.com/remora-proxy/remora/proxy/config"
)

// TestKubernetesSidecars: the native sidecars have commands that exist, valid configurations, and
// time to drain.
func TestKubernetesSidecars(t *testing.T) {
	env := func(name string) (string, bool) {
		value, set := map[string]string{"POD_NAME": "n", "POD_IP": "10.0.0.1", "SERVICE": "compute"}[name]
		return value, set
	}
	for _, side := range []string{"provider", "consumer"} {
		dir := "../../packaging/kubernetes/kustomize/" + side
		text := must.ReadFile(t, dir+"/remora.yaml")
		cfg, err := config.Parse(dir+"/remora.yaml", text, env)
		if err != nil {
			t.Fatal(err)
		}

		type probe struct{ Exec struct{ Command []string } }
		var d struct {
			Spec struct {
				Template struct {
					Spec struct {
						Grace   int `yaml:"terminationGracePeriodSeconds"`
						Sidecar []struct {
							RestartPolicy string `yaml:"restartPolicy"`
							Args          []string
							Startup       probe `yaml:"startupProbe"`
							Readiness     probe `yaml:"readinessProbe"`
							Liveness      probe `yaml:"livenessProbe"`
							Lifecycle     struct {
								PreStop probe `yaml:"preStop"`
							}
						} `yaml:"initContainers"`
					}
				}
			}
		}
		if text, err = os.ReadFile(dir + "/patch.yaml"); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		pod := &d.Spec.Template.Spec
		if len(pod.Sidecar) != 1 || pod.Sidecar[0].RestartPolicy != "Always" {
			t.Fatalf("%s: no native sidecar: %+v", side, pod.Sidecar)
		}
		if grace := int(cfg.Timeouts.Drain.Seconds()) + 10; pod.Grace < grace {
			t.Errorf("%s: the grace period is %d s, but a drain may take %d", side, pod.Grace, grace)
		}
		c := &pod.Sidecar[0]
		commands := []probe{c.Startup, c.Readiness, c.Liveness}
		if side == "provider" { // a consumer's application may call others until it ends
			commands = append(commands, c.Lifecycle.PreStop)
		}
		parses(t, c.Args)
		for _, p := range commands {
			if len(p.Exec.Command) == 0 {
				t.Errorf("%s: a probe or preStop is missing", side)
				continue
			}
			parses(t, p.Exec.Command[1:])
		}
	}
}

// parses checks that the program accepts a command line, without running it.
func parses(t *testing.T, args []string) {
	t.Helper()
	cmd, rest, err := newRoot().Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err != nil || !cmd.Runnable() || cmd.Name() != args[0] {
		t.Errorf("remora %s: %v", strings.Join(args, " "), err)
	}
}

// TestSystemdExample: the unit's commands exist, and it leaves time to drain. systemd, if
// installed, reports no error.
func TestSystemdExample(t *testing.T) {
	text := must.ReadFile(t, "../../packaging/remora.service")
	for line := range strings.Lines(string(text)) {
		if _, command, ok := strings.Cut(strings.TrimSpace(line), "=/usr/bin/remora "); ok {
			parses(t, strings.Fields(command))
		}
	}
	for _, want := range []string{"\nType=notify\n", "\nNotifyAccess=all\n", "\nTimeoutStopSec=40\n", "\nRuntimeDirectory=remora\n"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("no %q", want)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("no systemd-analyze here: the unit was read by eye only")
		return
	}
	// systemd-analyze needs the program to exist. That of the tests will do.
	unit := filepath.Join(t.TempDir(), "remora.service")
	local := bytes.ReplaceAll(text, []byte("/usr/bin/remora"), []byte(os.Args[0]))
	must.WriteFile(t, unit, local)
	if out, err := exec.Command(analyze, "verify", "--man=no", unit).CombinedOutput(); err != nil || bytes.Contains(out, []byte("remora.service")) {
		t.Errorf("systemd-analyze: %v\n%s", err, out)
	}
}

// TestExamples: "remora check" has nothing against the configurations of the
// documentation.
func TestExamples(t *testing.T) {
	ca := testcerts.New(t)
	t.Setenv("CERTS", filepath.Dir(harness.CertFiles(t, ca, "app.example.org").Cert))
	files, err := filepath.Glob("../../docs/examples/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		var out bytes.Buffer
		if code := execute([]string{"check", file}, io.Discard, &out); code != 0 || out.Len() > 0 {
			t.Errorf("%s: exit code %d\n%s", file, code, out.String())
		}
	}
}

// TestTLSExamples: "remora check" has nothing against the examples of TLS, beside the files of
// "remora-lab certs certs".
func TestTLSExamples(t *testing.T) {
	examples, err := filepath.Abs("../../docs/examples/tls")
	if err != nil {
		t.Fatal(err)
	}
	leaves, err := labcerts.ParseLeaves(labcerts.Default)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if _, err := labcerts.Make("certs", leaves, time.Hour); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"consumer.yaml", "provider.yaml"} {
		var out bytes.Buffer
		if code := execute([]string{"check", filepath.Join(examples, name)}, io.Discard, &out); code != 0 || out.Len() > 0 {
			t.Errorf("%s: exit code %d\n%s", name, code, &out)
		}
	}
}
