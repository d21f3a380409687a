package sidecar

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// lowPercent is GOGC of a sidecar that knows much. What thousands of endpoints take hardly changes, and a request makes
	// no garbage: so little is won by as much garbage as live heap, which GOGC has at 100.
	lowPercent = 50

	usualPercent = 100

	// muchLive is the live heap, in bytes, from which on a sidecar knows much: at lowPercent it still makes more garbage
	// between two collections than the least sidecar.
	muchLive = 12 << 20
)

// PaceStart makes the garbage collector run sooner until the sidecar serves: a start throws away more than what stays, and
// the process would keep the pages. GOGC overrides it.
func PaceStart() { pace(lowPercent) }

// paceCollector sets how soon the garbage collector runs, after a start or a reload.
func paceCollector() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	pace(percentOf(live[0].Value.Uint64()))
}

// percentOf returns GOGC for so many bytes of live heap.
func percentOf(live uint64) int {
	if live >= muchLive {
		return lowPercent
	}
	return usualPercent
}

func pace(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
