package demo

import (
	"math"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/report"
)

// TestTally counts users of two calls, in minutes of 6 s, whose first second is apart.
func TestTally(t *testing.T) {
	epoch := time.Unix(1000, 0)
	tally := newTotals(epoch, 6*time.Second, 100*time.Millisecond, 2)
	add := func(index int, due, latency time.Duration, kind load.ErrorKind) {
		tally.add(load.End{Index: index, Due: epoch.Add(due), Latency: latency, Kind: kind})
	}
	const ms = time.Millisecond
	// Calls of two users end in any order.
	add(12, 500*ms, 3*ms, "")
	add(14, 6*time.Second, 7*ms, "")
	add(13, 500*ms, 2*ms, load.ErrStatus) // early, but an error
	add(15, 6*time.Second, 5*ms, "")
	for i := range 100 {
		add(20+2*i, 2*time.Second, time.Duration(i+1)*ms, "")
		add(21+2*i, 2*time.Second, ms/2, "")
	}
	add(220, 3*time.Second, 101*ms, "") // late
	add(221, 3*time.Second, 2*time.Second, load.ErrTimeout)
	add(222, 3*time.Second, ms, "") // of a user that has not ended

	var p report.FeaturePhase
	tally.fill(&p)
	near := func(name string, got, want float64) {
		if math.Abs(got-want) > want/500 {
			t.Errorf("%s %v, want %v", name, got, want)
		}
	}
	if p.Requests != 207 || p.Users != 103 || len(tally.users) != 1 || p.Slowest10 != nil || p.Second0.Requests != 4 {
		t.Errorf("%+v, %d users in flight", p, len(tally.users))
	}
	near("p50", p.P50, 1)
	near("p99", p.P99, 100)
	near("p99.9", p.P999, 2000)
	near("p99 of users", p.Slowest, 100)
	near("errors", p.Errors, 1000*3./207)
	near("p99 of second 0", p.Second0.P99, 100)
	near("errors of second 0", p.Second0.Errors, 250)
}

func TestTallyOfTen(t *testing.T) {
	tally := newTotals(time.Unix(0, 0), time.Minute, time.Second, 10)
	for i := range 10 {
		tally.add(load.End{Index: i, Due: time.Unix(20, 0), Latency: time.Duration(i+1) * time.Millisecond})
	}
	var p report.FeaturePhase
	tally.fill(&p)
	if p.Slowest10 == nil || math.Abs(*p.Slowest10-10) > .01 || p.Slowest != *p.Slowest10 || p.Second0 != (report.Second0{}) || p.Errors != 0 {
		t.Errorf("%+v", p)
	}
}
