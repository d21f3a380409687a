package mesh

import (
	"testing"
	"time"
)

// share returns the share of the requests between two moments that a replica, counted
// from 0, has served.
func (r *Result) share(replica int, from, to time.Duration) float64 {
	served, all := 0, 0
	for _, p := range r.Series {
		if p.From < from || p.From >= to {
			continue
		}
		for i, at := range p.Replicas {
			all += at.Served
			if i == replica {
				served += at.Served
			}
		}
	}
	return float64(served) / float64(max(1, all))
}

// runScript runs the script, and fails the test for each violation of an invariant.
func runScript(t *testing.T, script string) *Result {
	t.Helper()
	sc, err := Parse("test", "title test\n"+script)
	if err != nil {
		t.Fatal(err)
	}
	r := Run(sc.Full.Spec)
	for _, v := range r.Violations {
		t.Error(v)
	}
	return r
}

// TestRecoveredReplicaIsUsed checks that a replica that was slow gets its share again.
// While others are idle it gets one request a second, and the first quick response ends
// that.
func TestRecoveredReplicaIsUsed(t *testing.T) {
	for _, direct := range []string{"", "direct\n"} {
		r := runScript(t, direct+`
			load 50/s for 40s
			at 0s slow provider 1 x12 for 30s`)
		if share := r.share(0, 2*time.Second, 30*time.Second); share > 0.1 {
			t.Errorf("%q: %.2f of the requests go to the replica while it is slow", direct, share)
		}
		if share := r.share(0, 33*time.Second, 40*time.Second); share < 0.2 {
			t.Errorf("%q: 3 s after it was slow, one replica of three gets %.2f of the requests", direct, share)
		}
	}
}

// TestFailuresAreNotReportedAsFast checks that a replica that fails at once, and can't be
// ejected, does not attract load by its low latency, with a sidecar beside it or without.
func TestFailuresAreNotReportedAsFast(t *testing.T) {
	for _, direct := range []string{"", "direct\n"} {
		r := runScript(t, direct+`
			providers 2
			load 50/s for 60s
			consumer outlier: {max_ejected: 0}
			at 2s fail provider 1`)
		failed := 0
		for _, q := range r.Requests {
			if q.Status != 200 {
				failed++
			}
		}
		if share := float64(failed) / float64(len(r.Requests)); share > 0.1 {
			t.Errorf("%q: %.3f of the requests went to the failing replica", direct, share)
		}
	}
}
