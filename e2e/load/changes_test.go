package load

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

// scripts/restart.sh --changes sets these.
var (
	changeRequests = flag.Int("change-requests", 3000, "requests over which the changes are spread")
	changeRate     = flag.Int("change-rate", 500, "requests a second meanwhile")
)

// TestChangesUnderOpenLoad reloads and replaces the sidecars of the consumer and the providers
// while requests flow: 50 reloads and 20 hot restarts for 5 million requests, and at least 5 and
// 2. No client may see a reset.
func TestChangesUnderOpenLoad(t *testing.T) {
	m := newMesh(t)
	load := startMixedLoad(t, m.egress, *changeRate)
	turns := []**harness.Process{&m.consumer, &m.providers[0], &m.consumer, &m.providers[1]}
	changes := max(7, 70**changeRequests/5_000_000)
	var draining []*harness.Process
	for i := range changes {
		load.awaitRequests((i + 1) * *changeRequests / changes)
		p := turns[i%len(turns)]
		if i%7 != 1 && i%7 != 4 {
			(*p).Reload(changedConfig(t, *p, i), "applied")
			continue
		}
		draining = append(draining, *p)
		*p = (*p).Replace()
		if len(draining) > maxDraining {
			draining[0].ExitCode()
			draining = draining[1:]
		}
	}
	load.end(fmt.Sprintf("%d changes", changes))
	for _, p := range draining {
		p.Ends()
	}
}

// changedConfig returns the configuration of p with another limit of pending requests.
func changedConfig(t *testing.T, p *harness.Process, i int) string {
	t.Helper()
	b := must.ReadFile(t, p.File)
	text, _, ok := strings.Cut(string(b), "\nadmin:") // which write appends
	head, tail, ok2 := strings.Cut(text, "max_pending: ")
	if !ok || !ok2 {
		t.Fatalf("no admin, or no max_pending in\n%s", b)
	}
	return head + fmt.Sprintf("max_pending: %d", 60_001+i) + tail[len("60000"):]
}

// awaitRequests waits until n requests have been sent.
func (l *mixedLoad) awaitRequests(n int) {
	l.t.Helper()
	eventually.Within(l.t, 10*time.Minute, "load", func() error {
		l.mu.Lock()
		sent := l.sum.Counts.Requests + l.plain.sent.Load()
		l.mu.Unlock()
		if sent < int64(n) {
			return fmt.Errorf("%d of %d requests", sent, n)
		}
		return nil
	})
}
