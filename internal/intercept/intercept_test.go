//go:build linux

// Package intercept holds the test of transparent interception: programs that know nothing
// of Remora, in one network namespace, call servers in another one, and intercept.sh
// redirects their connections. scripts/intercept-test.sh runs it.
package intercept

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

var (
	dir   = flag.String("dir", "", "absolute path of a folder with bin/remora, for configuration files and logs")
	calls = flag.Int("calls", 100, "HTTP calls of each program and kind of address")
)

const (
	scripts = "../../scripts/"
	script  = scripts + "intercept.sh"
)

// Counts of checks.
var checksPassed, checksFailed int

func TestMain(m *testing.M) {
	code := m.Run()
	if code != 0 && checksFailed == 0 {
		checksFailed = 1 // it failed outside of the checks
	}
	if *dir != "" {
		fmt.Printf("\n%d passed, %d failed\n", checksPassed, checksFailed)
	}
	os.Exit(code)
}

// check counts and logs a check.
func (l lab) check(name string, good bool, detail ...any) {
	l.Helper()
	if good {
		checksPassed++
		l.Log("ok   ", name)
	} else {
		checksFailed++
		l.Errorf("FAIL  %s  %s", name, fmt.Sprint(detail...))
	}
}

func TestIntercept(t *testing.T) {
	if *dir == "" {
		t.Skip("-dir is not set: scripts/intercept-test.sh builds the program")
	}
	l := newLab(t)
	for _, part := range []struct {
		name string
		run  func(lab)
	}{
		{"all users", allUsers},
		{"by ports", byPorts},
		{"by uid", byUID},
		{"a wrong --proxy-uid", circle},
		{"a host with rules", guard},
		{"another install", replacement},
		{"remove", removal},
		{"refusals", refusals},
	} {
		t.Run(part.name, func(t *testing.T) {
			l.T = t
			part.run(l)
		})
	}
}

// program is one that knows nothing of Remora. It prints "ok NAME" or "FAIL NAME DETAIL"
// for each of its checks.
type program struct {
	name   string
	argv   []string
	passes float64 // connections that pass through; the Java client makes two for HTTP
}

// programChecks is how many checks each program makes.
const programChecks = 6

var programs = []program{
	{"Python", []string{"python3", scripts + "intercept/client.py"}, 5},
	{"Node", []string{"node", scripts + "intercept/client.js"}, 5},
	{"Java", []string{"java", scripts + "intercept/Client.java"}, 6},
}

func allUsers(l lab) {
	l.intercept("install", "--proxy-uid", proxyUID)
	once := l.rules()
	l.check("install makes rules for IPv4 and IPv6", strings.Count(once, "-j REDIRECT --to-ports 15001") == 2, once)
	l.intercept("install", "--proxy-uid", proxyUID)
	again := l.rules()
	l.check("a second install changes nothing", again == once, again)
	before, passed := l.counts(), l.passed()
	made, passes := l.runPrograms()
	n := l.counts()
	for i := range n {
		n[i] -= before[i]
	}
	passed = l.passed() - passed
	went := fmt.Sprintf("%d calls, %d at the replicas, %d at the original; %g passed", made, n[:3], n[3], passed)
	l.check("calls are balanced", min(n[0], n[1], n[2]) > 0 && n[3] == 0, went)
	l.check("calls are hedged", n[0]+n[1]+n[2] > made, went)
	l.check("the rest passes through Remora", passed == passes, went)
	l.Log("     ", went)
}

// counts returns the requests so far at each of the replicas, and at the original.
func (l lab) counts() (n [len(replicas) + 1]int64) {
	for i, port := range append(replicas[:], original) {
		n[i] = l.requests[port].Load()
	}
	return n
}

// runPrograms runs each program over both kinds of addresses, all at the same time: each waits long for
// the server that speaks first. It counts their own checks, and returns the number of their calls,
// and of their connections that pass through.
func (l lab) runPrograms() (made int64, passes float64) {
	type ended struct {
		name string
		ran  outcome
		err  error
	}
	ends := make(chan ended)
	for _, p := range programs {
		for _, suffix := range []string{"4", "6"} {
			made, passes = made+int64(*calls), passes+p.passes
			argv := append(slices.Clone(p.argv), suffix, strconv.Itoa(*calls))
			go func() {
				ran, err := execute(l.ctx, l.near.argv(argv)...)
				ends <- ended{p.name + ", IPv" + suffix + ": ", ran, err}
			}()
		}
	}
	for range 2 * len(programs) {
		e, tried := <-ends, 0
		for line := range strings.Lines(e.ran.stdout) {
			verdict, what, _ := strings.Cut(strings.TrimSpace(line), " ")
			l.check(e.name+what, verdict == "ok")
			tried++
		}
		l.check(e.name+"all was tried", tried == programChecks && e.ran.code == 0 && e.err == nil,
			"exit ", e.ran.code, ": ", e.ran.stderr, e.err)
	}
	return made, passes
}

const (
	compute4 = "http://compute4:8080/"
	compute6 = "http://compute6:8080/"
	other4   = "http://other4:8081/"

	// Patterns of bodies.
	fromReplica  = "^replica"
	fromOriginal = "^original$"
	fromOther4   = "Host: other4"
)

func byPorts(l lab) {
	l.intercept("install", "--proxy-uid", proxyUID, "--ports", "80,8000-8080")
	passed := l.passed()
	l.checkBody("a port in the list is redirected", fromReplica, compute4)
	l.checkBody("one that is not is left alone", fromOther4, other4)
	l.intercept("install", "--proxy-uid", proxyUID, "--exclude-ports", "8080,8081")
	l.checkBody("an excluded port is left alone", fromOriginal, compute4)
	body, now := l.get(other4), l.passed()
	l.check("so it does not pass through Remora", strings.Contains(body, fromOther4) && now == passed,
		now-passed, " passed: ", body)
	l.intercept("install", "--proxy-uid", proxyUID, "--exclude", far4+"/32")
	l.checkBody("an excluded address is left alone", fromOriginal, compute4)
	l.checkBody("and others are not", fromReplica, compute6)
}

func byUID(l lab) {
	l.intercept("install", "--proxy-uid", proxyUID, "--uid", appUID)
	for name, url := range map[string]string{"IPv4": compute4, "IPv6": compute6} {
		l.checkBody(name+": this user's connections are redirected", fromReplica, url,
			"setpriv", "--reuid", appUID, "--clear-groups")
		l.checkBody(name+": another's are not", fromOriginal, url)
	}
}

// checkBody checks that curl, behind the command line before, gets a body of a pattern.
func (l lab) checkBody(name, pattern, url string, before ...string) {
	l.Helper()
	body := l.get(url, before...)
	l.check(name, regexp.MustCompile(pattern).MatchString(body), body)
}

// circle does not exclude the sidecar's own connections, by a mistake of the configuration.
func circle(l lab) {
	l.intercept("install", "--proxy-uid", nobody)
	for _, suffix := range []string{"4", "6"} {
		ran := l.try(l.near, "curl", "--silent", "--max-time", "60", "http://other"+suffix+":8081/")
		l.check("IPv"+suffix+": a connection that would go in a circle is reset",
			slices.Contains([]int{52, 55, 56}, ran.code), "curl exit ", ran.code)
	}
	eventually.True(l, "connections to end", func() bool { return l.metric(`remora_reactor_connections{direction="in"}`) == 0 })
	found := l.metric(`remora_errors_total{code="loop-detected",listener="egress4"}`) +
		l.metric(`remora_errors_total{code="loop-detected",listener="egress6"}`)
	l.check("each is detected the first time that it comes back", found == 2, found)
	l.checkBody("a caller of the listener itself gets a response", "no route", "http://127.0.0.1:15001/")
}

// replacement installs other rules where some are in place.
func replacement(l lab) {
	l.intercept("install", "--proxy-uid", proxyUID, "--exclude-ports", "7")
	before := l.rules()
	broken := filepath.Join(*dir, "broken")
	if err := os.MkdirAll(broken, 0o755); err != nil {
		l.Fatal(err)
	}
	restore := filepath.Join(broken, "ip6tables-restore") // it tests rules, and fails to set them
	l.write(restore, "#!/bin/sh\ncase \"$*\" in *--test*) exit 0;; esac\necho broken >&2\nexit 1\n")
	if err := os.Chmod(restore, 0o755); err != nil {
		l.Fatal(err)
	}
	ran := l.try(l.near, "env", "PATH="+broken+":"+os.Getenv("PATH"), script, "install", "--proxy-uid", proxyUID)
	after := l.rules()
	l.check("an install that fails half-way leaves the rules of before", ran.code == 1 && after == before,
		"exit ", ran.code, ": ", ran.stderr, after)
	l.intercept("install", "--proxy-uid", proxyUID, "--no-ipv6")
	once := l.rules()
	l.check("--no-ipv6 takes the rules for IPv6 away", strings.Count(once, "-j REDIRECT") == 1, once)
	l.intercept("install", "--proxy-uid", "0"+proxyUID, "--no-ipv6")
	again := l.rules()
	l.check("a zero before a number makes it no octal one", again == once, again)
}

func removal(l lab) {
	for _, what := range []string{"remove", "a second remove"} {
		l.intercept("remove")
		l.checkNoRules(what + " leaves nothing")
	}
	l.checkBody("connections go where they always went", fromOriginal, compute4)
}

func (l lab) checkNoRules(name string) {
	l.Helper()
	rules := l.rules()
	l.check(name, !strings.Contains(rules, "REMORA"), rules)
}

func refusals(l lab) {
	refused := func(name, message string, argv ...string) {
		l.Helper()
		ran := l.try(l.near, argv...)
		l.check(name, ran.code == 1 && strings.Contains(ran.stderr, message), "exit ", ran.code, ": ", ran.stderr)
	}
	install := func(args ...string) []string {
		return append([]string{script, "install", "--proxy-uid", proxyUID}, args...)
	}

	text := must.ReadFile(l, script)
	readable := filepath.Join(*dir, "intercept.sh") // by any user
	l.write(readable, string(text))
	refused("without rights it fails with a message", "CAP_NET_ADMIN",
		"setpriv", "--reuid", nobody, "--clear-groups", "--inh-caps=-all",
		"bash", "-c", `exec bash -s "$@" <"`+readable+`"`, "-", "install", "--proxy-uid", proxyUID)
	tools := l.linkTools("basename", "bash", "env", "id", "sed")
	refused("without iptables too", "iptables is not installed",
		append([]string{filepath.Join(tools, "env"), "PATH=" + tools}, install()...)...)
	refused("--proxy-uid is a must", "--proxy-uid is missing", script, "install")
	refused("Remora's own user is not redirected", "need another user", install("--uid", proxyUID)...)
	refused("an unknown user", "there is no user", script, "install", "--proxy-uid", "no-such-user")
	refused("a port that is none", "not a port", install("--ports", "80,66000")...)
	refused("ports that are no list", "not a list of ports", install("--ports", "80-90-100")...)
	refused("a rule in an address", "not an address", install("--exclude", "10.0.0.0/8 -j RETURN\n-A OUTPUT -d 10.0.0.1")...)
	refused("an address that is none", "invalid mask", install("--exclude", "10.0.0.0/99")...)
	l.checkNoRules("nothing of that leaves a trace")
}

// linkTools returns a folder with links to these programs: all that intercept.sh needs but
// iptables.
func (l lab) linkTools(names ...string) string {
	l.Helper()
	tools := filepath.Join(*dir, "tools")
	if err := os.MkdirAll(tools, 0o755); err != nil {
		l.Fatal(err)
	}
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(tools, name))
		}
		if err != nil && !errors.Is(err, os.ErrExist) { // from an earlier run
			l.Fatal(err)
		}
	}
	return tools
}
