package main

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// TestFleetErrors: exit codes and messages of commands that reach no etcd.
func TestFleetErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.WriteFile(t, path, text)
		return path
	}
	const nobody = "127.0.0.1:1"
	good, bad := file("good.yaml", "services: {app: {hedge: {mode: on}}}"), file("bad.yaml", "services: {app: {hedge: {mode: sometimes}}}\nadmin: {}")
	alone := file("alone.yaml", "loops: 1")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "expected a command"},
		{[]string{"nonsense"}, exitUsage, "expected a command"},
		{[]string{"status"}, exitUsage, "expected --etcd with the address of etcd, or -c with a configuration file"},
		{[]string{"status", "--etcd", nobody, "-c", alone}, exitUsage, "got both"},
		{[]string{"set", "--etcd", nobody}, exitUsage, "accepts 1 arg"},
		{[]string{"rollback", "1", "2", "--etcd", nobody}, exitUsage, "accepts at most 1 arg"},
		{[]string{"status", "-c", alone}, exitFailed, "has no config.etcd"},
		{[]string{"status", "-c", filepath.Join(dir, "none")}, exitFailed, "no such file"},
		{[]string{"status", "--etcd", "ftp://x"}, exitFailed, "expected host:port"},
		{[]string{"status", "--etcd", nobody, "--prefix", "x"}, exitFailed, "expected a path such as /remora/config"},
		{[]string{"status", "--etcd", nobody, "--prefix", "/remora/services/x"}, exitFailed, "expected another path"},
		{[]string{"set", bad, "--etcd", nobody}, exitFailed, "bad.yaml:1:32: services.app.hedge.mode: expected one of off, shadow, on"},
		{[]string{"set", bad, "--etcd", nobody}, exitFailed, "bad.yaml:2:1: admin: an overlay may not change it"},
		{[]string{"set", filepath.Join(dir, "none"), "--etcd", nobody}, exitFailed, "no such file"},
		{[]string{"set", file("huge.yaml", strings.Repeat("#", 300<<10)), "--etcd", nobody}, exitFailed, "larger than 262144 bytes"},
		{[]string{"set", good, "--etcd", nobody, "--to", "5"}, exitFailed, "--to: "},
		{[]string{"set", good, "--etcd", nobody, "--guard", "p99 <= 1.05x"}, exitFailed, "expected --to with some of them"},
		{[]string{"rollout", "--etcd", nobody, "--to", "5%", "--guard", "p99 < 1"}, exitFailed, "expected a bound such as p99 <= 1.05x"},
		{[]string{"rollback", "x", "--etcd", nobody}, exitFailed, "expected the number of a revision"},
	} {
		var out bytes.Buffer
		if code := execute(append([]string{"fleet"}, c.args...), io.Discard, &out); code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("fleet %s: exit code %d, want %d; %s, want %s", strings.Join(c.args, " "), code, c.code, out.String(), c.want)
		}
	}
}
