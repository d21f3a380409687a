package sources

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

// endpointsEach is how many endpoints each service of TestManyServices has.
const endpointsEach = 10

// manyName returns the name of a service.
func manyName(i int) string { return fmt.Sprintf("s%04d", i) }

// manyAddrs returns the addresses of a service. Nobody connects to them.
func manyAddrs(service int) (all []string) {
	for i := range endpointsEach {
		n := endpointsEach*service + i
		all = append(all, fmt.Sprintf("10.77.%d.%d", n/200, 1+n%200))
	}
	return all
}

// TestManyServices: a sidecar with a thousand services, of ten endpoints each, has one watch on the source, and no goroutine
// for each service. What it costs is only logged; scripts/sizing.sh prints it. The short form has 200 services.
func TestManyServices(t *testing.T) {
	count := 1000
	if testing.Short() {
		count = 200
	}
	for _, s := range sources {
		t.Run(s.name, func(t *testing.T) {
			src := s.make(t)
			if err := src.many(count); err != nil {
				t.Fatal(err)
			}
			var routes, services strings.Builder
			for i := range count {
				fmt.Fprintf(&routes, "  - {match: {path: /%[1]s}, service: %[1]s}\n", manyName(i))
				fmt.Fprintf(&services, "  %s: {%s, protocol: %s}\n", manyName(i), src.findIn(manyName(i), "80"), cmp.Or(src.manyProtocol, "http"))
			}
			cache := t.TempDir()
			p := harness.NewProcess(t, fmt.Sprintf("loops: %d\nregistry: {cache_dir: %q%s}\nlisteners: [{name: egress, address: %q, protocol: http}]\nroutes:\n%sservices:\n%s",
				manyLoops(), cache, src.keys, harness.FreeAddrs(t, 1)[0], routes.String(), services.String()))
			began := time.Now()
			p = src.launch(p)
			p.Ready() // each loop knows the endpoints of each service
			took, starting := time.Since(began), cpuOf(t, p)
			if src.watches != nil { // names have no cache
				eventually.True(t, "the cache to have all services", func() bool {
					files, _ := filepath.Glob(filepath.Join(cache, "*.json"))
					more, _ := filepath.Glob(filepath.Join(cache, "*", "*.json"))
					return len(files)+len(more) == count
				})
			}
			resident, cpu := p.Memory(t, "VmRSS"), cpuOf(t, p)
			rest := time.Duration(restSeconds()) * time.Second
			<-time.After(rest) // what is measured
			cpu = cpuOf(t, p) - cpu
			now := liveOf(t, p)
			t.Logf("sizing: %d services of %s, %d loops: ready %v after the start, with %v of CPU, resident %d MiB, live heap %d MiB, %d goroutines, CPU at rest %.2f%%", count, s.name,
				manyLoops(), took.Round(time.Millisecond), starting, resident>>20, now.heap>>20, now.goroutines, 100*cpu.Seconds()/rest.Seconds())
			if _, body := p.Get("/endpoints"); strings.Count(body, `"address": "10.77.`) != count*endpointsEach {
				t.Errorf("%d endpoints", strings.Count(body, `"address": "10.77.`))
			}
			if src.watches != nil {
				eventually.Nil(t, "one watch", func() error { // a watch may have been lost on a busy machine
					if n := src.watches(); n != 1 {
						return fmt.Errorf("%d watches", n)
					}
					return nil
				})
			}
			if now.goroutines > 100 {
				t.Errorf("%d goroutines", now.goroutines)
			}
		})
	}
}

// manyLoops returns the number of loops: $LOOPS, or one.
func manyLoops() int {
	n, _ := strconv.Atoi(cmp.Or(os.Getenv("LOOPS"), "1"))
	return n
}

// restSeconds returns how long a sidecar is at rest: $SECONDS_AT_REST, or a short time.
func restSeconds() int {
	n, _ := strconv.Atoi(cmp.Or(os.Getenv("SECONDS_AT_REST"), "1"))
	return n
}

// cpuOf returns the CPU time that a sidecar has used.
func cpuOf(t *testing.T, p *harness.Process) time.Duration {
	t.Helper()
	stat := must.ReadFile(t, fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid))
	_, after, _ := strings.Cut(string(stat), ") ")
	var ticks time.Duration
	for _, field := range strings.Fields(after)[11:13] { // utime and stime, in hundredths of a second
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}
