package bench

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFind(t *testing.T) {
	dir := t.TempDir()
	program := func(path string) string {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho remora v1.2.3 go1.26\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Setenv("PATH", filepath.Join(dir, "path"))
	places := Places{Self: filepath.Join(dir, "own", "remora-lab"), Peers: filepath.Join(dir, "peers")}
	if _, err := Find(places); err == nil {
		t.Error("there is no remora: no error")
	}
	inPath := program("path/remora")
	expect := func(p Program, want string) {
		t.Helper()
		tools, err := Find(places)
		if err != nil || tools[p] != want {
			t.Errorf("%s is %q, want %q; %v", p, tools[p], want, err)
		}
	}
	expect(Remora, inPath)
	beside := program("own/remora")
	expect(Remora, beside)
	expect(Envoy, "")
	pip := program("peers/venv/bin/envoy")
	expect(Envoy, pip)
	expect(HAProxy, program("path/haproxy"))
	expect(HAProxy, program("peers/bin/haproxy")) // the newest
	expect(Relay, "")
	expect(Relay, program("own/relay"))
	tools, err := Find(places)
	if err != nil || tools.version(t.Context(), Remora) != "v1.2.3" {
		t.Errorf("version %q, %v", tools.version(t.Context(), Remora), err)
	}
	places.Envoy = filepath.Join(dir, "no such")
	if _, err := Find(places); err == nil {
		t.Error("there is no such envoy: no error")
	}
}
