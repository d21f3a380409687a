package commands

import (
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/proxy/reactor/engine"
)

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
			t.Setenv(harness.EngineVariable, c.env)
			var flags []string
			if c.flag != "" {
				flags = []string{"--engine", c.flag}
			}
			p := harness.Start(t, c.file+file, flags...)
			p.Ready()
			if got := p.Engine(); got != c.want {
				t.Errorf("/readyz says %q, want %q", got, c.want)
			}
			for path, want := range map[string]string{
				"/metrics": `remora_engine_info{engine="` + c.want + `"} 1`,
				"/stats":   `"engine":"` + c.want + `"`,
			} {
				if _, body := p.Get(path); !strings.Contains(strings.ReplaceAll(body, ": ", ":"), want) {
					t.Errorf("%s does not say %s", path, want)
				}
			}
			p.AwaitLog("engine=" + c.want)
		})
	}
}

// TestEngineUnknown: an engine that does not exist is an error of the file, the environment or the command line, with
// the names that do.
func TestEngineUnknown(t *testing.T) {
	p, good := harness.NewProcess(t, "engine: libuv"), harness.NewProcess(t, "")
	for _, c := range []struct {
		env, flag string
		code      int
		want      string
	}{
		{"", "", harness.ExitFailed, "remora.yaml:1:9: engine: expected one of auto, epoll, gnet"},
		{"", "libuv", harness.ExitFailed, `--engine: no such engine: "libuv"; expected one of: auto, epoll, gnet`},
	} {
		args := []string{"-c", p.File}
		if c.flag != "" {
			args = []string{"-c", good.File, "--engine", c.flag}
		}
		if code, output := harness.Run("run", args...); code != c.code || !strings.Contains(output, c.want) {
			t.Errorf("exit code %d, output %q; want %d, %q", code, output, c.code, c.want)
		}
	}
	t.Setenv(harness.EngineVariable, "libuv")
	code, output := harness.Run("run", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--admin", "")
	if want := `REMORA_ENGINE: no such engine: "libuv"; expected one of: auto, epoll, gnet`; code != harness.ExitFailed || !strings.Contains(output, want) {
		t.Errorf("exit code %d, output %q; want %d, %q", code, output, harness.ExitFailed, want)
	}
	if code, output := harness.Run("version"); code != harness.ExitFailed || !strings.Contains(output, "REMORA_ENGINE: no such engine") {
		t.Errorf("version: exit code %d, output %q", code, output)
	}
}
