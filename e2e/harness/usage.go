package harness

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

var pooledConnection = regexp.MustCompile(`(?m)^remora_endpoint_connections\{.*service="local".*\} [1-9]`)

// AwaitUnpooled waits until a provider has closed the pooled connections to its application.
func (p *Process) AwaitUnpooled() {
	p.T.Helper()
	eventually.Nil(p.T, "the pooled connections to close", func() error {
		if _, metrics := p.Get("/metrics"); pooledConnection.MatchString(metrics) {
			return errors.New("open")
		}
		return nil
	})
}

// RestBytes is more than a sidecar holds for its links and a well-behaved load.
const RestBytes = 64 << 10

// Level is what a sidecar uses: numbers of descriptors, goroutines and pending requests, and buffered bytes.
type Level struct{ Descriptors, Goroutines, Pending, Buffered int }

var (
	goroutineCount = regexp.MustCompile(`(?m)^(\d+) @`)
	pendingSeries  = regexp.MustCompile(`(?m)^remora_(?:requests_pending|requests_queued|slots_in_use|endpoint_pending)\{.*\} (\S+)$`)
)

// Level returns what the sidecar uses now.
func (p *Process) Level() (l Level) {
	p.T.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Cmd.Process.Pid))
	if err != nil {
		p.T.Fatal(err)
	}
	l.Descriptors = len(fds)
	_, stacks := p.Get("/debug/pprof/goroutine?debug=1")
	for _, stack := range strings.Split(stacks, "\n\n") {
		// The engine's pooled workers end when they have been idle long enough.
		if n := goroutineCount.FindStringSubmatch(stack); n != nil && !strings.Contains(stack, "ants/v2.(*goWorker).run") {
			count, _ := strconv.Atoi(n[1])
			l.Goroutines += count
		}
	}
	_, metrics := p.Get("/metrics")
	for _, found := range pendingSeries.FindAllStringSubmatch(metrics, -1) {
		n, _ := strconv.ParseFloat(found[1], 64)
		l.Pending += int(n)
	}
	l.Buffered = p.Metric("remora_buffered_bytes")
	return l
}

// Above returns an error if l is higher than before by more than normal variation.
func (l Level) Above(before Level) error {
	if l.Descriptors > before.Descriptors+4 || l.Goroutines > before.Goroutines+3 || l.Pending > 0 || l.Buffered > RestBytes {
		return fmt.Errorf("%+v, before %+v", l, before)
	}
	return nil
}

// Memory is a field of /proc/PID/status in bytes.
func (p *Process) Memory(t *testing.T, field string) int {
	status := must.ReadFile(t, fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	var n int
	_, after, _ := strings.Cut(string(status), field+":")
	if _, err := fmt.Sscan(after, &n); err != nil {
		t.Fatalf("%s: %v", field, err)
	}
	return n << 10
}
