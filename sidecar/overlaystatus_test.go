package sidecar

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/fleet"
	"github.com/remora-proxy/remora/fleet/store"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestCounted: a status has the counts since the last change. A service that a reload has replaced counts from 0, also once it
// has had more requests than the one before.
func TestCounted(t *testing.T) {
	type look struct {
		change    int       // of the head
		fast      uint64    // requests of 10 us
		slow      uint64    // requests of a minute
		gone      bool      // there is no such service
		want      uint64    // requests
		latencies [2]uint64 // fast and slow ones
	}
	const million = 1_000_000
	for name, looks := range map[string][]look{
		"the same service": {
			{fast: 10, want: 0},
			{fast: 15, slow: 1, want: 6, latencies: [2]uint64{5, 1}},
			{fast: 20, slow: 1, want: 11, latencies: [2]uint64{10, 1}},
			{change: 1, fast: 21, slow: 1, want: 0},
			{change: 1, fast: 22, slow: 1, want: 1, latencies: [2]uint64{1, 0}},
		},
		"replaced": {
			{fast: million, want: 0},
			{fast: million + 5, want: 5, latencies: [2]uint64{5, 0}},
			{fast: 3, want: 3, latencies: [2]uint64{3, 0}},
			{fast: million - 1, want: million - 1, latencies: [2]uint64{million - 1, 0}},
			{fast: million, slow: 1, want: million + 1, latencies: [2]uint64{million, 1}},
			{fast: 2 * million, slow: million, want: 3 * million, latencies: [2]uint64{2 * million, million}},
		},
		"replaced, and above the base by the next look": {
			{fast: 10, want: 0},
			{fast: 50, want: 40, latencies: [2]uint64{40, 0}},
			{fast: 20, slow: 1, want: 21, latencies: [2]uint64{20, 1}},
			{fast: 70, slow: 1, want: 71, latencies: [2]uint64{70, 1}},
		},
		"replaced, with as many requests, but slower ones": {
			{fast: 10, want: 0},
			{slow: 12, want: 12, latencies: [2]uint64{0, 12}},
			{fast: 20, slow: 12, want: 32, latencies: [2]uint64{20, 12}},
		},
		"replaced at a change": {
			{fast: 10, want: 0},
			{change: 1, fast: 4, want: 0},
			{change: 1, fast: 5, want: 1, latencies: [2]uint64{1, 0}},
		},
		"removed and added": {
			{fast: 10, want: 0},
			{gone: true},
			{fast: 30, want: 30, latencies: [2]uint64{30, 0}},
		},
	} {
		var c counted
		for i, l := range looks {
			sums := map[string]*stats.ServiceStats{}
			if !l.gone {
				s := &stats.ServiceStats{Requests: l.fast + l.slow}
				s.Latency.Counts[0], s.Latency.Counts[stats.HistogramBuckets-2] = l.fast, l.slow
				sums["app"] = s
			}
			c.look(sums, time.Unix(int64(l.change), 0), 1)
			got := c.services(true)["app"]
			var latencies [2]uint64
			for j, n := range got.Latency {
				latencies[min(j, 1)] += n
			}
			if got.Requests != l.want || latencies != l.latencies {
				t.Errorf("%s, look %d: %s", name, i, fmt.Sprint(fleet.Service{Requests: got.Requests, Latency: got.Latency}))
			}
		}
	}
}

// slowKeys are the keys of a fleet in an etcd that takes a while for all statuses.
type slowKeys struct {
	*simEtcd
	takes time.Duration
}

// Statuses implements fleetKeys.
func (k *slowKeys) Statuses(ctx context.Context, each func(*fleet.Status)) (unread store.Unread, err error) {
	select {
	case <-ctx.Done():
		return unread, ctx.Err()
	case <-time.After(k.takes):
		return k.simEtcd.Statuses(ctx, each)
	}
}

// TestGuardOfSlowEtcd: a guard has the time that the statuses of a large fleet take, and gives up on an etcd that does not respond.
func TestGuardOfSlowEtcd(t *testing.T) {
	for _, c := range []struct {
		takes, ends time.Duration
		line        bool // in the log
	}{
		{time.Second, time.Second, false},
		{29 * time.Second, 29 * time.Second, false},
		{time.Hour, 30 * time.Second, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			guard, err := fleet.ParseGuard("p99 <= 1.05x")
			if err != nil {
				t.Fatal(err)
			}
			head := fleet.Head{Candidate: 1, Guard: guard}
			etcd := newSimEtcd()
			etcd.head, etcd.at = head, 1
			var log strings.Builder
			o := &overlays{
				log: slog.New(slog.NewTextHandler(&log, nil)), cfg: config.Default(), ended: t.Context(), head: &head, keys: &slowKeys{etcd, c.takes},
			}
			etcd.statuses[o.name()] = fleet.Status{}
			began := time.Now()
			o.guard()
			if took := time.Since(began); took != c.ends || strings.Contains(log.String(), "guard of the roll-out not asked") != c.line {
				t.Errorf("statuses that take %v: the guard ends after %v, and the log has %q", c.takes, took, log.String())
			}
		})
	}
}
