package cost

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/internal/must"
)

const (
	// length is the time of a load.
	length = 4 * time.Second

	// enough is a number of requests. The process allocates by itself, above all for its
	// metrics: a few thousand more or less each time. A run that counts allocations lasts
	// until that is little for each request, but no longer than longest on a slow machine.
	enough  = 50_000
	longest = time.Minute
)

// Metrics of a sidecar that measure reads.
const (
	served      = "remora_requests_total"
	allocations = "go_memstats_mallocs_total"
	flushes     = "remora_link_flushes_total"
)

// sidecar is a process of remora.
type sidecar struct {
	name, admin string
	pid         int
}

// measure returns the system calls and the allocations per request of each sidecar.
func measure(t *testing.T, chain []string, connections int) map[string]counts {
	t.Helper()
	sidecars, url := start(t, chain)
	load(t, url, connections, time.Second)
	found := countSyscalls(t, sidecars, func() float64 { return load(t, url, connections, length) })
	for name, n := range countAllocations(t, sidecars, url, connections) {
		for what, each := range n {
			found[name][what] = each
		}
	}
	return found
}

// start runs two replicas behind sidecars of one loop each, and returns the URL of the first
// sidecar. There are two so that the sidecar forecasts what hedges would bring: its timers count.
// A "single" speaks HTTP on both sides; a "consumer" and a "provider" have a link between them.
func start(t *testing.T, chain []string) ([]*sidecar, string) {
	t.Helper()
	addrs, release, err := freeport.Loopback(2 + 2*len(chain))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	to := addrs[:2]
	for _, replica := range to {
		launch(t, "GOMAXPROCS=1", "remora-lab", "replica", "--listen", replica, "--mode", "fast")
		eventually.Nil(t, "a replica", func() error { return dial(replica) })
	}
	speaks := map[string][2]string{"single": {"http", "http"}, "consumer": {"http", "link"}, "provider": {"link", "http"}}
	sidecars := make([]*sidecar, len(chain))
	for i, name := range slices.Backward(chain) {
		s := &sidecar{name: name, admin: addrs[2+2*i]}
		at, file := addrs[3+2*i], filepath.Join(t.TempDir(), "remora.yaml")
		type object = map[string]any
		config, err := json.Marshal(object{ // JSON is YAML
			"node": object{"id": name}, "loops": 1, "log": object{"level": "warn"}, "admin": object{"address": s.admin},
			"listeners": []object{{"name": "in", "address": at, "protocol": speaks[name][0], "service": "out"}},
			"services": object{"out": object{
				"discover": "static", "endpoints": to, "protocol": speaks[name][1], "max_pending": 4096, "idempotent": true}},
		})
		if err == nil {
			err = os.WriteFile(file, config, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		s.pid = launch(t, "", "remora", "run", "-c", file).Pid
		eventually.Nil(t, "the "+name, func() error { _, err := s.get("/readyz"); return err })
		sidecars[i], to = s, []string{at}
	}
	return sidecars, "http://" + to[0] + "/compute"
}

// launch starts a program of bin, until the end of the test. env is one more variable.
func launch(t *testing.T, env, program string, args ...string) *os.Process {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, program), args...)
	cmd.Env, cmd.Stderr = append(os.Environ(), env), os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process
}

func dial(addr string) error {
	c, err := net.Dial("tcp", addr)
	if err == nil {
		c.Close()
	}
	return err
}

// get returns the body of an admin path.
func (s *sidecar) get(path string) ([]byte, error) {
	r, err := http.Get("http://" + s.admin + path)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, r.Status)
	}
	return body, err
}

var sample = regexp.MustCompile(`(?m)^(\w+)(?:\{.*\})? (\S+)$`)

// metrics returns each metric as the sum over its labels.
func (s *sidecar) metrics(t *testing.T) counts {
	t.Helper()
	var sums counts
	eventually.Nil(t, "the metrics of the "+s.name, func() error { // a loop without processor time makes it a 503
		sums = counts{}
		text, err := s.get("/metrics")
		for _, m := range sample.FindAllSubmatch(text, -1) {
			if n, err := strconv.ParseFloat(string(m[2]), 64); err == nil {
				sums[string(m[1])] += n
			}
		}
		return err
	})
	return sums
}

// load runs wrk, a closed loop, and returns the number of requests.
func load(t *testing.T, url string, connections int, d time.Duration) float64 {
	seconds := int(d.Round(time.Second) / time.Second)
	out, err := exec.Command("wrk", "-t1", fmt.Sprintf("-c%d", connections), fmt.Sprintf("-d%ds", seconds), "--timeout", "120s",
		"-s", filepath.Join("..", "..", "lab", "bench", "wrk", "post.lua"), url).CombinedOutput()
	var result struct{ Requests, Errors float64 }
	_, last, found := bytes.Cut(out, []byte("\nRESULT "))
	if err == nil && found {
		err = json.Unmarshal(last, &result)
	}
	if err != nil || result.Requests == 0 || result.Errors > 0 {
		t.Errorf("wrk: %v\n%s", err, out)
	}
	return result.Requests
}

var call = regexp.MustCompile(`(?m)^ *(\w+) +(\d+) *$`)

// countSyscalls returns, for each sidecar, its system calls per request of a load, by name
// and in total.
func countSyscalls(t *testing.T, sidecars []*sidecar, load func() float64) map[string]counts {
	t.Helper()
	files := map[string]string{}
	var detach []func()
	for _, s := range sidecars {
		files[s.name] = filepath.Join(t.TempDir(), "strace")
		detach = append(detach, attach(t, s.pid, files[s.name]))
	}
	n := load()
	found := map[string]counts{}
	for i, s := range sidecars {
		detach[i]()
		text := must.ReadFile(t, files[s.name])
		found[s.name] = counts{}
		for _, m := range call.FindAllStringSubmatch(string(text), -1) {
			// nanosleep is of the runtime's monitor: it grows with time, not with requests.
			if calls, _ := strconv.ParseFloat(m[2], 64); m[1] != "total" && m[1] != "nanosleep" {
				found[s.name][m[1]] = calls / n
				found[s.name]["total"] += calls / n
			}
		}
	}
	return found
}

// attach lets strace count the system calls of all threads of a process into file, until
// detach is called.
func attach(t *testing.T, pid int, file string) (detach func()) {
	t.Helper()
	cmd := exec.Command("strace", "-f", "-c", "-U", "name,calls", "-p", strconv.Itoa(pid), "-o", file)
	errors, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(errors)
	if line, err := lines.ReadString('\n'); !strings.Contains(line, "attached") {
		t.Fatalf("strace: %s %v", line, err)
	}
	return func() {
		_ = cmd.Process.Signal(syscall.SIGINT) // it detaches and writes its counts
		_, _ = io.Copy(io.Discard, lines)
		_ = cmd.Wait()
	}
}

// countAllocations returns, for each sidecar, its allocations per request and, where it has
// a link, per flush of the link. Both are counted between two moments well within a load, so
// that the opening of connections does not count.
func countAllocations(t *testing.T, sidecars []*sidecar, url string, connections int) map[string]counts {
	t.Helper()
	scrapes := map[string]float64{}
	for _, s := range sidecars {
		scrapes[s.name] = costOfScrape(t, s)
	}
	rate := load(t, url, connections, time.Second)
	d := min(max(length, time.Duration(enough/rate*float64(time.Second))), longest)
	done := make(chan struct{})
	go func() {
		defer close(done)
		load(t, url, connections, d+2*time.Second)
	}()
	idle := sidecars[0].metrics(t)[served]
	eventually.True(t, "some requests on each connection", func() bool {
		return sidecars[0].metrics(t)[served] >= idle+float64(20*connections)
	})
	before := map[string]counts{}
	for _, s := range sidecars {
		before[s.name] = s.metrics(t)
	}
	time.Sleep(d) // the length of the measurement
	found := map[string]counts{}
	for _, s := range sidecars {
		after := s.metrics(t)
		rise := func(metric string) float64 { return after[metric] - before[s.name][metric] }
		n := max(0, rise(allocations)-scrapes[s.name])
		found[s.name] = counts{"allocations": n / rise(served)}
		if rise(flushes) > 0 {
			found[s.name]["allocations/flush"] = n / rise(flushes)
		}
	}
	<-done
	return found
}

// costOfScrape returns the most that one request for /metrics allocates, which is as much
// as thousands of requests do.
func costOfScrape(t *testing.T, s *sidecar) (most float64) {
	last := s.metrics(t)[allocations]
	for range 5 {
		now := s.metrics(t)[allocations]
		most, last = max(most, now-last), now
	}
	return most
}
