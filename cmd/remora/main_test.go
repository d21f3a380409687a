package main

import (
	"bytes"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

func TestExecute(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.WriteFile(t, path, text)
		return path
	}
	good := write("good.yaml", `listeners: [{name: in, address: "127.0.0.1:1", protocol: http}, {name: out, address: "127.0.0.1:2", protocol: http}]
routes: [{service: app}]
services: {app: {discover: static, protocol: http, endpoints: ["127.0.0.1:3"]}}
`)
	poor := write("poor.yaml", "log:\n")
	bad := write("bad.yaml", "loops: x\nlog: {level: loud}\n")
	for _, c := range []struct {
		args   string
		code   int
		stdout string // regular expressions for all of the output
		stderr string
	}{
		{"check " + good, 0, `ok: 2 listeners, 1 route, 1 service\n`, ``},
		{"check -c " + good, 0, `ok: 2 listeners, 1 route, 1 service\n`, ``},
		{"check --config " + good, 0, `ok: 2 listeners, 1 route, 1 service\n`, ``},
		{"check " + poor, 0, `ok: 0 listeners, 0 routes, 0 services, 2 warnings\n`, `\S+poor\.yaml:1:1: warning: listeners: .*\n\S+poor\.yaml:1:1: warning: log: .*\n`},
		{"check -c " + bad, 1, ``, `\S+bad\.yaml:1:8: loops: expected .*\n\S+bad\.yaml:2:14: log\.level: expected .*\n`},
		{"check -c " + dir + "/none", 1, ``, `remora: reading the configuration: .*\n`},
		{"check", 2, ``, `remora: expected one configuration file.*\n`},
		{"check -c", 2, ``, `remora: flag needs an argument.*\n`},
		{"check -c " + good + " more", 2, ``, `remora: expected one configuration file.*\n`},
		{"check " + good + " more", 2, ``, `remora: expected one configuration file.*\n`},
		{"schema", 0, `\{(.|\n)*"\$schema": "https://json-schema\.org/draft/2020-12/schema"(.|\n)*\}\n`, ``},
		{"check -x", 2, ``, `remora: unknown shorthand.*\n`},
		{"chekc", 2, ``, `remora: unknown command(.|\n)*check(.|\n)*`},
		{"", 2, ``, `remora: expected a command.*\n`},
		{"version", 0, `remora \S+ go\S+ \w+/\w+ engine=(epoll|gnet)\n`, ``},
		{"--version", 0, `remora \S+ go\S+ \w+/\w+\n`, ``},
		{"version x", 2, ``, `remora: unknown command.*\n`},
		{"--help", 0, `(.|\n)*check(.|\n)*version(.|\n)*`, ``},
	} {
		var stdout, stderr bytes.Buffer
		code := execute(strings.Fields(c.args), &stdout, &stderr)
		if code != c.code || !matches(c.stdout, stdout.String()) || !matches(c.stderr, stderr.String()) {
			t.Errorf("remora %s: exit code %d, want %d\nstdout: %s\nstderr: %s", c.args, code, c.code, &stdout, &stderr)
		}
	}
}

func matches(pattern, text string) bool {
	return regexp.MustCompile(`^(?:` + pattern + `)$`).MatchString(text)
}

func TestVersionOf(t *testing.T) {
	built := func(version, revision, modified string) *debug.BuildInfo {
		return &debug.BuildInfo{
			Main: debug.Module{Version: version},
			Settings: []debug.BuildSetting{
				{Key: "vcs.revision", Value: revision}, {Key: "vcs.modified", Value: modified},
			},
		}
	}
	for _, c := range []struct {
		set  string
		info *debug.BuildInfo
		want string
	}{
		{"v1.2.3", built("v1.0.0", "", ""), "v1.2.3"},
		{"", built("v1.0.0", "abc", ""), "v1.0.0"},
		{"", built("(devel)", "0123456789abcdef", "false"), "devel-0123456789ab"},
		{"", built("", "0123456789abcdef", "true"), "devel-0123456789ab-dirty"},
		{"", built("(devel)", "", ""), "devel"},
		{"", nil, "devel"},
	} {
		if got := versionOf(c.set, c.info); got != c.want {
			t.Errorf("versionOf(%q, %+v) = %q, want %q", c.set, c.info, got, c.want)
		}
	}
}
