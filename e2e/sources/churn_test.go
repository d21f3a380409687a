package sources

import (
	"cmp"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
)

// maxGrowth is how much more live memory a sidecar may have after many replicas have come and gone, in bytes.
const maxGrowth = 8 << 20

// TestChurn: no request fails while a hundred replicas come and go, ten in a second. Afterwards the view of the sidecar is
// right, and its memory is as before. How long the view took is only logged.
func TestChurn(t *testing.T) {
	for _, s := range sources {
		t.Run(s.name, func(t *testing.T) {
			src := s.make(t)
			r := newReplicas(t, 100)
			p, egress := src.start(t, r)
			changes := 10 * churnSeconds()
			l := startLoad(t, egress)
			var before live
			var last time.Time // of the changes
			for i := range changes {
				<-time.After(100 * time.Millisecond) // the pace of the changes
				if i == changes/4 {                  // the pools of memory are full
					before = liveOf(t, p)
				}
				r.add()
				r.removeOne()
				r.leave(src.linger)
				if err := src.publish(r.addrs(), r.port); err != nil {
					t.Fatal(err)
				}
				last = time.Now()
			}
			r.await(p, "after the last change")
			t.Logf("right %v after the last change", time.Since(last))
			l.End("replicas come and go")
			after := liveOf(t, p)
			t.Logf("before: %+v; after: %+v; resident %d KiB", before, after, p.Memory(t, "VmRSS")>>10)
			if after.heap > before.heap+maxGrowth || after.goroutines > before.goroutines+20 {
				t.Errorf("%+v, and before %+v", after, before)
			}
		})
	}
}

// churnSeconds returns how long replicas come and go: $SECONDS_OF_CHURN, or a short time.
func churnSeconds() int {
	n, _ := strconv.Atoi(cmp.Or(os.Getenv("SECONDS_OF_CHURN"), "4"))
	return n
}

// live is what a sidecar holds after a garbage collection.
type live struct{ heap, goroutines int }

var heapInUse = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

func liveOf(t *testing.T, p *harness.Process) (l live) {
	t.Helper()
	_, text := p.Get("/debug/pprof/heap?gc=1&debug=1")
	found := heapInUse.FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no size of the heap in %.300q", text)
	}
	l.heap, _ = strconv.Atoi(found[1])
	l.goroutines = p.Level().Goroutines
	return l
}
