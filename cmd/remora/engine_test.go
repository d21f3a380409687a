package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/reactor/engine"
)

// engine returns the engine of a sidecar, as /readyz?verbose says.
func (p *process) engine() string {
	p.t.Helper()
	_, body := p.get("/readyz?verbose")
	for line := range strings.Lines(body) {
		if name, ok := strings.CutPrefix(line, "engine: "); ok {
			return strings.TrimSpace(name)
		}
	}
	p.t.Fatalf("no engine in %q", body)
	return ""
}

// anotherEngine returns the name of an engine that works here, and is not this one.
func anotherEngine(than string) string {
	for _, name := range engine.Names() {
		if e, err := engine.Find(name); err == nil && e.Name != than {
			return e.Name
		}
	}
	return than
}

// TestEngineNames: the configuration takes the names of the engines.
func TestEngineNames(t *testing.T) {
	if names := engine.Names(); !slices.Equal(names, config.Engines) {
		t.Errorf("the engines are %q, the configuration takes %q", names, config.Engines)
	}
}

// environmentKind returns the engine of the environment, for sidecars in the process of the tests.
func environmentKind(t *testing.T) engine.Kind {
	t.Helper()
	kind, err := chooseEngine("", "")
	if err != nil {
		t.Fatal(err)
	}
	return kind
}

// TestEngineSetting: the flag overrides the environment, and that the file. All that names the engine names the same.
func TestEngineSetting(t *testing.T) {
	const file = `
listeners: [{name: in, address: "127.0.0.1:0", protocol: http, service: app}]
services: {app: {discover: static, endpoints: ["127.0.0.1:9"]}}
`
	auto, err := engine.Find(engine.Auto)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, file, env, flag, want string }{
		{"default", "", "", "", auto.Name},
		{"file", "engine: gnet", "", "", "gnet"},
		{"environment", "engine: gnet", "auto", "", auto.Name},
		{"flag", "engine: auto", "auto", "gnet", "gnet"},
		{"auto", "engine: gnet", "", "auto", auto.Name},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(engineVariable, c.env)
			var flags []string
			if c.flag != "" {
				flags = []string{"--engine", c.flag}
			}
			p := startRemora(t, c.file+file, flags...)
			p.ready()
			if got := p.engine(); got != c.want {
				t.Errorf("/readyz says %q, want %q", got, c.want)
			}
			for path, want := range map[string]string{
				"/metrics": `remora_engine_info{engine="` + c.want + `"} 1`,
				"/stats":   `"engine":"` + c.want + `"`,
			} {
				if _, body := p.get(path); !strings.Contains(strings.ReplaceAll(body, ": ", ":"), want) {
					t.Errorf("%s does not say %s", path, want)
				}
			}
			eventually.True(t, "the log to name the engine", func() bool { return strings.Contains(p.output.String(), "engine="+c.want) })
		})
	}
}

// TestEngineUnknown: an engine that does not exist is an error of the file, the environment or the command line, with
// the names that do.
func TestEngineUnknown(t *testing.T) {
	p, good := newProcess(t, "engine: libuv"), newProcess(t, "")
	for _, c := range []struct {
		env, flag string
		code      int
		want      string
	}{
		{"", "", exitFailed, "remora.yaml:1:9: engine: expected one of auto, epoll, gnet"},
		{"", "libuv", exitFailed, `--engine: no such engine: "libuv"; expected one of: auto, epoll, gnet`},
	} {
		args := []string{"-c", p.file}
		if c.flag != "" {
			args = []string{"-c", good.file, "--engine", c.flag}
		}
		if code, output := runCommand("run", args...); code != c.code || !strings.Contains(output, c.want) {
			t.Errorf("exit code %d, output %q; want %d, %q", code, output, c.code, c.want)
		}
	}
	t.Setenv(engineVariable, "libuv")
	code, output := runCommand("run", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--admin", "")
	if want := `REMORA_ENGINE: no such engine: "libuv"; expected one of: auto, epoll, gnet`; code != exitFailed || !strings.Contains(output, want) {
		t.Errorf("exit code %d, output %q; want %d, %q", code, output, exitFailed, want)
	}
	if code, output := runCommand("version"); code != exitFailed || !strings.Contains(output, "REMORA_ENGINE: no such engine") {
		t.Errorf("version: exit code %d, output %q", code, output)
	}
}
