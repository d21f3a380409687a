package cost

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// slack is how far, as a share, a count of instructions may be from the one in the list.
const slack = 0.05

// requests is the number of requests of a run. A second run has twice as many. Start and
// end cost the same in both, so they are not in the difference.
const requests = 1920

// settled lets two runs of a program take the same way: no collector, no preemption, one
// thread. The seeds of the hash tables still vary, by less than 1%.
var settled = []string{"GOGC=off", "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1"}

// countInstructions returns the instructions per request of the shapes of BenchmarkShape
// in a test binary of ./proxy.
//
// It counts with callgrind alone. Hardware counters ("perf stat -e instructions:u") are
// missing on most virtual machines, and would differ: microcode is one instruction to
// them, and Go chooses its routines by the processor's features. Callgrind emulates the
// same processor everywhere.
func countInstructions(t *testing.T, binary string, shapes []string) counts {
	t.Helper()
	var mu sync.Mutex
	var runs sync.WaitGroup
	found := counts{}
	turns := make(chan struct{}, runtime.NumCPU())
	for _, shape := range shapes {
		for times, sign := range map[int]float64{1: -1, 2: 1} {
			runs.Go(func() {
				turns <- struct{}{}
				defer func() { <-turns }()
				n, err := instructions(filepath.Join(bin, binary), shape, times*requests)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				found[shape] += sign * n / requests
			})
		}
	}
	runs.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return found
}

var collected = regexp.MustCompile(`Collected : (\d+)`)

// instructions returns how many a process executes that sends n requests of a shape.
func instructions(binary, shape string, n int) (float64, error) {
	way, name, _ := strings.Cut(shape, "/")
	cmd := exec.Command("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", binary, "-test.run=^$",
		fmt.Sprintf("-test.bench=^BenchmarkShape$/^%s$/^%s$", regexp.QuoteMeta(way), regexp.QuoteMeta(name)),
		fmt.Sprintf("-test.benchtime=%dx", n))
	cmd.Env = append(os.Environ(), settled...)
	out, err := cmd.CombinedOutput()
	m := collected.FindSubmatch(out)
	if err != nil || m == nil || !strings.Contains(string(out), "BenchmarkShape/"+shape) {
		return 0, fmt.Errorf("%s: %v\n%s", cmd, err, out)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
