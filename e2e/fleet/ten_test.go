package fleet

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
)

// TestTenSidecars steers ten sidecars under load, through hot restarts and an outage of etcd. A bad revision reaches none,
// 20% are two that stay two, a rollback reaches all, and no request fails.
func TestTenSidecars(t *testing.T) {
	if testing.Short() {
		t.Skip("ten processes are too many for a short run")
	}
	const size = 10
	f := start(t, size)
	stop := f.load()
	f.command(0, "set", f.overlay("services: {app: {hedge: {min_delay: 3m}}}"))
	eventually.Nil(t, "all to refuse", func() error {
		for _, s := range f.statuses() {
			if s.Refused == nil || s.Revision != 0 {
				return fmt.Errorf("%+v", s)
			}
		}
		return nil
	})
	f.command(0, "rollback")
	f.command(0, "set", f.overlay("services: {app: {max_pending: 71}}"), "--to", "20%")
	f.runs(2, 2)
	which := f.nodesOn(2)
	for i, p := range f.sidecars {
		f.sidecars[i] = p.Replace()
		p.Ends()
	}
	f.runs(2, 2)
	if again := f.nodesOn(2); again != which || f.pending(71) != 2 {
		t.Errorf("before hot restarts %s run the revision, afterwards %s", which, again)
	}
	if err := f.etcd.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		f.sidecars[i] = f.sidecars[i].Replace()
	}
	if f.pending(71) != 2 {
		t.Error("hot restarts without etcd have changed who runs the revision")
	}
	f.startEtcd()
	f.command(0, "rollout")
	f.runs(2, size)
	began := time.Now()
	f.command(0, "rollback")
	eventually.Nil(t, "the rollback", func() error {
		for _, p := range f.sidecars {
			if _, body := p.Get("/config"); !strings.Contains(body, "# revision 0 of the overlay") {
				return errors.New(body[:min(len(body), 200)])
			}
		}
		return nil
	})
	t.Logf("a rollback of %d sidecars took %v", size, time.Since(began))
	stop()
}

// nodesOn returns the sidecars that run a revision.
func (f *steered) nodesOn(revision int64) (nodes string) {
	f.t.Helper()
	all := f.statuses()
	for i := range f.sidecars {
		if node := fmt.Sprintf("n%d", i); all[node].Revision == revision {
			nodes += " " + node
		}
	}
	return nodes
}
